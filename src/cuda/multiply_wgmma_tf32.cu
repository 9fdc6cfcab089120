#include "cuda/multiply_wgmma.cuh"
#include "cuda/multiply_wgmma.hpp"

namespace kronsparse::cuda {

WgmmaKernel wgmma_tf32_kernel(std::size_t shape) {
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{
        static_cast<WgmmaKernel>(multiply_wgmma<WgmmaTraits<Arithmetic::tf32, float_shapes[I]>>)...};
  }
  (std::make_index_sequence<float_shapes.size()>());
  return kernels[shape];
}

}  // namespace kronsparse::cuda
