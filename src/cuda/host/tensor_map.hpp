// Tensors as Hopper's copy engine sees them: addresses, sizes, strides, and the box of one copy.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace kronsparse::cuda {

/// A tensor of four dimensions of 16-bit elements, the first contiguous. A box lies in shared memory as rows
/// of its first dimension. Rows of 128 bytes are swizzled; shorter ones are not (but see swaps_halves).
/// Elements outside the tensor are read as zeros and not written.
struct TensorView {
  static constexpr std::int64_t element_bytes = 2;

  const void* data = nullptr;
  std::array<std::int64_t, 4> sizes{};    ///< elements
  std::array<std::int64_t, 3> strides{};  ///< in elements, from the second dimension on
  std::array<int, 4> box{};               ///< elements
  bool swaps_halves = false;  ///< rows of 32 bytes: their halves change places in every other 128 bytes

  /// Bytes from one element of a dimension to the next. A dimension with a single element has the stride of
  /// the one before.
  [[nodiscard]] std::int64_t stride_bytes(std::size_t dimension) const noexcept {
    while (dimension > 0 && sizes[dimension] == 1) --dimension;
    return dimension == 0 ? 16 : strides[dimension - 1] * element_bytes;
  }

  /// Whether the copy engine takes these sizes and strides, whatever the address.
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

  /// Whether the copy engine takes the address, too.
  [[nodiscard]] bool fits() const noexcept {
    return strides_fit() && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }
};

/// The view in the form that the copy engine reads; it must fit.
[[nodiscard]] CUtensorMap tensor_map(const TensorView& view);

}  // namespace kronsparse::cuda
