// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/chain/fused_wgmma/tiles.cuh"

namespace kronsparse::cuda {
namespace fused_wgmma {

// 64 of the registers are sums for each row group.
inline constexpr std::array shapes = {Shape{1, 3, 1, 160}, Shape{1, 2, 2, 104}, Shape{2, 2, 1, 232}};

using Kernel = void (*)(Arguments);

}  // namespace fused_wgmma

[[nodiscard]] fused_wgmma::Kernel fused_wgmma_f16_kernel(std::size_t shape);
[[nodiscard]] fused_wgmma::Kernel fused_wgmma_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
