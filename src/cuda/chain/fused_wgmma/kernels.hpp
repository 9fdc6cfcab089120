// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/chain/fused_wgmma/tiles.cuh"

namespace kronsparse::cuda {
namespace fused_wgmma {

// Threads have 128 registers and more: 64 of them are sums.
inline constexpr std::array shapes = {Shape{1, 3, 1}, Shape{2, 1, 1}, Shape{3, 1, 1}, Shape{1, 1, 3}};

using Kernel = void (*)(Arguments);

}  // namespace fused_wgmma

[[nodiscard]] fused_wgmma::Kernel fused_wgmma_f16_kernel(std::size_t shape);
[[nodiscard]] fused_wgmma::Kernel fused_wgmma_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
