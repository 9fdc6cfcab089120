// The kernel that multiplies neighbouring factors together, and its launch.
#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/packing/merging.cuh"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(merging::threads) merge(const __grid_constant__ MergeTask task) {
  merging::merge_in_grid<T>(task);
}

}  // namespace

void merge_values(const MergeTask& task, Stream stream) {
  const std::int64_t needed =
      (task.all_padded_outputs() * task.lanes + merging::threads - 1) / merging::threads;
  const LaunchShape shape{.blocks = dim3(static_cast<unsigned>(std::min<std::int64_t>(needed, 1 << 16))),
                          .threads = merging::threads};
  switch (task.dtype) {
    case DType::f16:
      return launch("merge", merge<__half>, shape, stream, task);
    case DType::bf16:
      return launch("merge", merge<__nv_bfloat16>, shape, stream, task);
    case DType::f32:
      return launch("merge", merge<float>, shape, stream, task);
    default:
      throw Error(ErrorCode::internal, "merging: takes f16, bf16 and f32");
  }
}

}  // namespace kronsparse::cuda
