// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <cstddef>

#include "cuda/gradient/wgmma/search.hpp"

namespace kronsparse::cuda {

using GradientWgmmaKernel = void (*)(GradientWgmmaArguments);

[[nodiscard]] GradientWgmmaKernel gradient_wgmma_f16_kernel(std::size_t shape);
[[nodiscard]] GradientWgmmaKernel gradient_wgmma_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
