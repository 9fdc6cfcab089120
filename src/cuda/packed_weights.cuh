// Weights in the order in which a small batch's kernel reads them: the kernel's cut says of every place which
// weight belongs there.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "cuda/divisor.hpp"
#include "cuda/launch.hpp"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

/// Which weight lies at a place of the packed ones; some do not exist.
struct PackedPlace {
  std::int64_t i, k, l, j;
};

/// Of tensor cores' right operand a lane holds four terms of 16, or eight of 32; which of them is free, as
/// long as weights follow. The one at place `at`, when a load has `load_terms` of them: those that make the
/// loads of neighbouring lanes contiguous.
[[nodiscard]] __host__ __device__ constexpr int term_of(int load_terms, int lane_in_four, int at) {
  return load_terms * (4 * (at / load_terms) + lane_in_four) + at % load_terms;
}

/// Takes a number apart, the fastest digit first.
class Digits {
 public:
  __host__ __device__ explicit Digits(std::int64_t number) : rest_(number) {}
  __host__ __device__ std::int64_t take(std::int64_t count) {
    const std::int64_t digit = rest_ % count;
    rest_ /= count;
    return digit;
  }
  [[nodiscard]] __host__ __device__ std::int64_t rest() const { return rest_; }

 private:
  std::int64_t rest_;
};

#if defined(__CUDACC__)

/// Of every cut there is a function packed_place(cut, index).
template <class T, class Cut>
__global__ void pack(T* packed, const T* values, Cut cut, std::int64_t elements, std::int64_t b,
                     std::int64_t c, std::int64_t d, std::int64_t k_stride, std::int64_t l_stride) {
  for (std::int64_t index = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; index < elements;
       index += std::int64_t{gridDim.x} * blockDim.x) {
    const PackedPlace at = packed_place(cut, index);
    packed[index] = at.k < b && at.l < c && at.j < d
                        ? values[at.i * b * c * d + at.k * k_stride + at.l * l_stride + at.j]
                        : static_cast<T>(0.0f);
  }
}

/// Enqueues the packing of all of `weights`, f16 or bf16.
template <class Cut>
void pack_by_cut(const Cut& cut, const Problem& problem, const void* values, const DeviceMemory& weights,
                 Stream stream) {
  const Product p = product_of(problem);
  const bool transposed = is_transposed(problem.operation);
  const auto elements = static_cast<std::int64_t>(weights.bytes() / 2);
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(divided_up(elements, 256), 8192));
  const auto enqueue = [&]<class T>(T* packed) {
    launch("packing", pack<T, Cut>, {.blocks = blocks, .threads = 256}, stream, packed,
           static_cast<const T*>(values), cut, elements, p.b, p.c, p.d, transposed ? p.d : p.c * p.d,
           transposed ? p.b * p.d : p.d);
  };
  if (problem.dtype == DType::f16)
    enqueue(static_cast<__half*>(weights.data()));
  else
    enqueue(static_cast<__nv_bfloat16*>(weights.data()));
}

#endif

}  // namespace kronsparse::cuda
