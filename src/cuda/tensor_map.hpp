// Tensors as Hopper's copy engine sees them: addresses, sizes, strides, and the box of one copy.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

namespace kronsparse::cuda {

/// A tensor of four dimensions of 16-bit elements, the first contiguous. Boxes lie in shared memory
/// in rows of 128 bytes, swizzled; what of them lies outside the tensor is read as zeros, and not written.
struct TensorView {
  const void* data = nullptr;
  std::array<std::int64_t, 4> sizes{};    ///< elements
  std::array<std::int64_t, 3> strides{};  ///< elements: of the second dimension and on
  std::array<int, 4> box{};               ///< elements
};

/// Whether the copy engine takes such strides, whatever the address.
[[nodiscard]] bool strides_fit(const TensorView& view) noexcept;
/// Whether it takes the address, too.
[[nodiscard]] bool fits(const TensorView& view) noexcept;
/// The view in the engine's own words; it must fit.
[[nodiscard]] CUtensorMap tensor_map(const TensorView& view);

}  // namespace kronsparse::cuda
