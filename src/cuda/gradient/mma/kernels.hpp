// The kernels of gradient_mma.cuh, by number of their shape; each arithmetic is compiled in its own file.
#pragma once

#include <cstddef>

#include "cuda/gradient/mma/search.hpp"

namespace kronsparse::cuda {

using GradientKernel = void (*)(GradientArguments);

[[nodiscard]] GradientKernel gradient_f16_kernel(std::size_t shape);
[[nodiscard]] GradientKernel gradient_bf16_kernel(std::size_t shape);

}  // namespace kronsparse::cuda
