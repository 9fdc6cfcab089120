#include <utility>

#include "cuda/gradient_wgmma.cuh"
#include "cuda/gradient_wgmma.hpp"

namespace kronsparse::cuda {

GradientWgmmaKernel gradient_wgmma_bf16_kernel(std::size_t shape) {
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{static_cast<GradientWgmmaKernel>(
        gradient_wgmma<GradientWgmmaTraits<Arithmetic::bf16, gradient_wgmma_shapes[I]>>)...};
  }
  (std::make_index_sequence<gradient_wgmma_shapes.size()>());
  return kernels[shape];
}

}  // namespace kronsparse::cuda
