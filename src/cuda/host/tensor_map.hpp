// Tensors as Hopper's copy engine sees them: addresses, sizes, strides, and the box of one copy.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kronsparse::cuda {

/// A tensor of four dimensions of 16-bit elements, the first contiguous. Boxes lie in shared memory in rows
/// of their first dimension: of 128 bytes, swizzled, or shorter and as they are (but see swaps_halves). What
/// of them lies outside the tensor is read as zeros, and not written.
struct TensorView {
  static constexpr std::int64_t element_bytes = 2;

  const void* data = nullptr;
  std::array<std::int64_t, 4> sizes{};    ///< elements
  std::array<std::int64_t, 3> strides{};  ///< elements: of the second dimension and on
  std::array<int, 4> box{};               ///< elements
  bool swaps_halves = false;  ///< rows of 32 bytes: their halves change places in every other 128 bytes

  /// From one element of a dimension to the next; of one that has a single element, that of the one before.
  [[nodiscard]] std::int64_t stride_bytes(std::size_t dimension) const noexcept {
    while (dimension > 0 && sizes[dimension] == 1) --dimension;
    return dimension == 0 ? 16 : strides[dimension - 1] * element_bytes;
  }

  /// Whether the copy engine takes such sizes and strides, whatever the address.
  [[nodiscard]] bool strides_fit() const noexcept {
    constexpr std::int64_t size_limit = std::int64_t{1} << 31;  // coordinates are signed
    constexpr std::int64_t stride_limit = std::int64_t{1} << 40;
    // The engine writes whole units of 16 bytes, even over the end of a row.
    if (sizes[0] * element_bytes % 16 != 0) return false;
    for (std::size_t dimension = 0; dimension < 4; ++dimension) {
      if (sizes[dimension] < 1 || sizes[dimension] + box[dimension] >= size_limit) return false;
      const std::int64_t stride = stride_bytes(dimension);
      if (stride % 16 != 0 || stride >= stride_limit) return false;
    }
    return true;
  }

  [[nodiscard]] bool is_swizzled() const noexcept { return box[0] * element_bytes == 128; }

  /// Whether it takes the address, too.
  [[nodiscard]] bool fits() const noexcept {
    return strides_fit() && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }
};

/// The view in the engine's own words; it must fit.
[[nodiscard]] CUtensorMap tensor_map(const TensorView& view);

}  // namespace kronsparse::cuda
