// The kernels of kernel.cuh, by arithmetic and the number of their shape. Each arithmetic is compiled in its
// own file, which takes a minute.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "cuda/large_batch/wgmma/search.hpp"

namespace kronsparse::cuda {

using WgmmaKernel = void (*)(WgmmaArguments);

[[nodiscard]] WgmmaKernel wgmma_f16_kernel(std::size_t shape);
[[nodiscard]] WgmmaKernel wgmma_bf16_kernel(std::size_t shape);
[[nodiscard]] WgmmaKernel wgmma_tf32_kernel(std::size_t shape);
[[nodiscard]] WgmmaKernel wgmma_tf32x3_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
