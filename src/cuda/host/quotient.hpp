// Division of sizes by the host, for searches that divide thousands of times. Host code only.
#pragma once

#include <cstdint>

namespace kronsparse::cuda {

/// value / by, of numbers that are not negative. Many processors divide numbers of 64 bits in four times the
/// time of 32 bits, and most sizes are small.
[[nodiscard]] constexpr std::int64_t quotient(std::int64_t value, std::int64_t by) {
  if (((value | by) >> 32) == 0) return static_cast<std::uint32_t>(value) / static_cast<std::uint32_t>(by);
  return value / by;
}

/// The same, rounded up.
[[nodiscard]] constexpr std::int64_t quotient_up(std::int64_t value, std::int64_t by) {
  return quotient(value + by - 1, by);
}

}  // namespace kronsparse::cuda
