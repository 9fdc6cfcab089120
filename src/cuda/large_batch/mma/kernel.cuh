// The kernel `mma`: the fused product on tensor cores from sm_80 on (mma.sync), for every shape, layout,
// stride and alignment.
//
// x goes from memory to lines in shared memory, chunk by chunk (loads.cuh). Weights are the tensor core's
// left operand and come from L2 in fragment order. Warps keep the sums in registers; results become lines,
// and leave for memory (store.cuh). A multiprocessor has several blocks: while one waits, another computes.
#pragma once

#include "cuda/large_batch/mma/products.cuh"
#include "cuda/large_batch/mma/store.cuh"

namespace kronsparse::cuda {
namespace mma {

/// The tile of the calling block.
[[nodiscard]] __device__ inline Position position_of(const Arguments& p, int samples) {
  const auto split = [](std::uint32_t& number, const Divisor& by) {
    const std::uint32_t quotient = by.quotient(number), rest = number - quotient * by.value();
    number = quotient;
    return static_cast<int>(rest);
  };
  std::uint32_t number = blockIdx.x;
  Position at{};
  at.k = split(number, p.k_tiles) * p.to.rows;
  at.j = split(number, p.j_tiles) * static_cast<int>(p.run.value());
  at.n = static_cast<std::int64_t>(split(number, p.n_tiles)) * samples;
  at.i = static_cast<int>(number) * p.i_count;
  return at;
}

}  // namespace mma

template <class Traits>
__global__ void __launch_bounds__(mma::most_threads, Traits::blocks)
    multiply_mma(const __grid_constant__ mma::Arguments p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // the host refuses earlier GPUs
  using namespace mma;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane_number = static_cast<int>(threadIdx.x) % 32;
  const Lane lane{lane_number, lane_number / 4, lane_number % 4};
  const int group = warp / p.warps, in_group = warp - group * p.warps;
  const Position at = position_of(p, p.groups * Traits::samples);
  const std::uint32_t x = shared + group * p.from.lines * line_bytes;
  const std::uint32_t y = shared + p.y_offset + group * p.to.lines * line_bytes;
  const std::uint32_t zeros = shared + p.zero_offset;
  if (threadIdx.x < line_bytes / 4) ptx::store_shared_4(zeros + static_cast<int>(threadIdx.x) * 4, 0);
  fill_table<Traits>(p, p.from, at, 0, shared);
  fill_table<Traits>(p, p.to, at, at.k, shared);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  ptx::let_later_kernels_start();
  ptx::wait_for_earlier_kernels();
#endif
  __syncthreads();
  if constexpr (!Traits::has_chunks) {
    load_chunk<Traits>(p, at, 0, shared);
    __syncthreads();
  }
  // Terms in several chunks come once, so there is one pass; x that lies there whole serves all passes.
  for (int pass = 0; pass < p.passes; ++pass) {
    const int first_slot = (pass * p.warps + in_group) * Traits::slots;
    const Slots<Traits> slots(p, at, first_slot, lane);
    Sums<Traits, Traits::slots> sums{};
    uint4 ahead[Traits::slots];
#pragma unroll
    for (int s = 0; s < Traits::slots; ++s) ahead[s] = slots.weights[s][0];
    for (int chunk = 0; chunk < (Traits::has_chunks ? p.chunks : 1); ++chunk) {
      if constexpr (Traits::has_chunks) {
        if (chunk > 0) __syncthreads();
        load_chunk<Traits>(p, at, chunk, shared);
        __syncthreads();
      }
      if (!slots.is_empty) multiply_chunk<Traits>(p, slots, chunk, ahead, x, zeros, sums, lane);
    }
    keep_sums<Traits>(p, at, first_slot, y, group, sums, lane);
  }
  __syncthreads();
  store_tile<Traits>(p, at, shared);
#endif
}

}  // namespace kronsparse::cuda
