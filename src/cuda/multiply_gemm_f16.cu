#include <utility>

#include "cuda/multiply_gemm.cuh"
#include "cuda/multiply_gemm.hpp"

namespace kronsparse::cuda {

GemmKernel gemm_f16_kernel(std::size_t shape) {
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{static_cast<GemmKernel>(multiply_gemm<GemmTraits<Arithmetic::f16, gemm_shapes[I]>>)...};
  }
  (std::make_index_sequence<gemm_shapes.size()>());
  return kernels[shape];
}

}  // namespace kronsparse::cuda
