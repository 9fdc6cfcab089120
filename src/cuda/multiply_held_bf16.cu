#include <algorithm>
#include <utility>

#include "cuda/held_config.hpp"
#include "cuda/multiply_held.cuh"

namespace kronsparse::cuda {

HeldKernel held_bf16_kernel(const held::Shape& shape, bool ordinary) {
  using held::shapes;
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{
        std::array{static_cast<HeldKernel>(multiply_held<__nv_bfloat16, shapes[I].d, false>),
                   static_cast<HeldKernel>(multiply_held<__nv_bfloat16, shapes[I].d, true>)}...};
  }
  (std::make_index_sequence<shapes.size()>());
  return kernels[static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin())]
                [ordinary ? 1 : 0];
}

}  // namespace kronsparse::cuda
