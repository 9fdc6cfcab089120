// The kernels of kernel.cuh, by the number of their shape. Each arithmetic is compiled in its own file.
#pragma once

#include <cstddef>

#include "cuda/gradient/mma/search.hpp"

namespace kronsparse::cuda {

using GradientKernel = void (*)(GradientArguments);

[[nodiscard]] GradientKernel gradient_f16_kernel(std::size_t shape);
[[nodiscard]] GradientKernel gradient_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
