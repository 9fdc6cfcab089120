// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/chain/fused/tiles.cuh"

namespace kronsparse::cuda {
namespace fused {

// 128 registers for a thread: 64 of them are sums at most.
inline constexpr std::array half_shapes = {Shape{16, 4}, Shape{32, 2}, Shape{64, 2}, Shape{128, 2}};
inline constexpr std::array float_shapes = {Shape{16, 2}, Shape{32, 2}, Shape{64, 2}};

using Kernel = void (*)(Arguments);

}  // namespace fused

[[nodiscard]] fused::Kernel fused_f16_kernel(std::size_t shape);
[[nodiscard]] fused::Kernel fused_bf16_kernel(std::size_t shape);
[[nodiscard]] fused::Kernel fused_tf32_kernel(std::size_t shape);
[[nodiscard]] fused::Kernel fused_tf32x3_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
