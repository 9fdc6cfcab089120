#include <algorithm>
#include <utility>

#include "cuda/direct_config.hpp"
#include "cuda/multiply_direct.cuh"

namespace kronsparse::cuda {

DirectKernel direct_bf16_kernel(const direct::Shape& shape) {
  using direct::shapes;
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{static_cast<DirectKernel>(multiply_direct<__nv_bfloat16, I>)...};
  }
  (std::make_index_sequence<shapes.size()>());
  return kernels[static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin())];
}

}  // namespace kronsparse::cuda
