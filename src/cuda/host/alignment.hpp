// How wide the copies of an operand may be, and at which addresses it may begin.
#pragma once

#include <cstdint>

namespace kronsparse::cuda {

/// The widest of 16, 4 and 2 bytes (no less than `least`) that divides every number given.
template <class... Numbers>
[[nodiscard]] int common_alignment(int least, Numbers... numbers) {
  for (const int width : {16, 4})
    if (width > least && ((static_cast<std::uint64_t>(numbers) % static_cast<unsigned>(width) == 0) && ...))
      return width;
  return least;
}

/// Whether `data` lies at a multiple of `bytes`; a null pointer does.
[[nodiscard]] inline bool is_aligned(const void* data, int bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(bytes) == 0;
}

}  // namespace kronsparse::cuda
