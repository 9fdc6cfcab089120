#include <utility>

#include "cuda/gradient_mma.cuh"
#include "cuda/gradient_mma.hpp"

namespace kronsparse::cuda {

GradientKernel gradient_bf16_kernel(std::size_t shape) {
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{
        static_cast<GradientKernel>(gradient_mma<GradientTraits<Arithmetic::bf16, gradient_shapes[I]>>)...};
  }
  (std::make_index_sequence<gradient_shapes.size()>());
  return kernels[shape];
}

}  // namespace kronsparse::cuda
