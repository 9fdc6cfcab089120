// The kernel that multiplies neighbouring factors together, and its launch.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/host/launch.hpp"
#include "cuda/packing/merging.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

constexpr int threads = 128;

__device__ inline float widened(__half value) { return __half2float(value); }
__device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widened(float value) { return value; }
__device__ inline void store(__half* to, float value) { *to = __float2half_rn(value); }
__device__ inline void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }
__device__ inline void store(float* to, float value) { *to = value; }

/// A thread computes values of the product, each from beginning to end.
template <class T>
__global__ void __launch_bounds__(threads) merge(const __grid_constant__ MergeTask task) {
  const Sizes& p = task.merged;
  const std::int64_t count = p.a * p.b * p.c * p.d;
  for (std::int64_t at = std::int64_t{blockIdx.x} * threads + threadIdx.x; at < count;
       at += std::int64_t{gridDim.x} * threads) {
    const std::int64_t j = at % p.d, l = at / p.d % p.c, k = at / (p.d * p.c) % p.b,
                       i = at / (p.d * p.c * p.b);
    const float value = merged_value(task, (i * p.b + k) * p.d + j, (i * p.c + l) * p.d + j,
                                     [&](int factor, std::int64_t index) {
                                       return widened(static_cast<const T*>(task.values[factor])[index]);
                                     });
    store(static_cast<T*>(task.to) + at, value);
    if (task.to_rest == nullptr) continue;
    const float rest = value - widened(static_cast<const T*>(task.to)[at]);
    store(static_cast<T*>(task.to_rest) + at, isfinite(rest) ? rest : 0.0f);
  }
}

}  // namespace

void merge_values(const MergeTask& task, Stream stream) {
  const Sizes& p = task.merged;
  const std::int64_t needed = (p.a * p.b * p.c * p.d + threads - 1) / threads;
  const LaunchShape shape{.blocks = dim3(static_cast<unsigned>(std::min<std::int64_t>(needed, 1 << 16))),
                          .threads = threads};
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
