// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <cstddef>

#include "cuda/large_batch/gemm/search.hpp"

namespace kronsparse::cuda {

using GemmKernel = void (*)(GemmArguments);

[[nodiscard]] GemmKernel gemm_f16_kernel(std::size_t shape);
[[nodiscard]] GemmKernel gemm_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
