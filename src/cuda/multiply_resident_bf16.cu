#include <algorithm>
#include <utility>

#include "cuda/multiply_resident.cuh"
#include "cuda/resident_config.hpp"

namespace kronsparse::cuda {

ResidentKernel resident_bf16_kernel(const resident::Shape& shape) {
  using resident::shapes;
  static constexpr auto kernels = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{static_cast<ResidentKernel>(multiply_resident<__nv_bfloat16, I>)...};
  }
  (std::make_index_sequence<shapes.size()>());
  return kernels[static_cast<std::size_t>(std::ranges::find(shapes, shape) - shapes.begin())];
}

}  // namespace kronsparse::cuda
