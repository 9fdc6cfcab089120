#include <algorithm>
#include <utility>

#include "cuda/multiply_narrow.cuh"
#include "cuda/narrow_config.hpp"

namespace kronsparse::cuda {

NarrowKernel narrow_bf16_kernel(const narrow::Shape& shape) {
  using narrow::shapes;
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{
        static_cast<NarrowKernel>(multiply_narrow<__nv_bfloat16, shapes[I].block_j, shapes[I].outputs>)...};
  }
  (std::make_index_sequence<shapes.size()>());
  return kernels[static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin())];
}

}  // namespace kronsparse::cuda
