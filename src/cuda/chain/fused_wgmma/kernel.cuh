// The kernel `fused_wgmma`: a chain of products in one pass over x and y, on Hopper's tensor cores.
//
// One warp, the producer, brings slabs of weights, and of x for the first product, into a ring of stages
// (loads.cuh). Warpgroups multiply: samples by terms from the stage, or from the lines of features that the
// product before left in shared memory, by terms and outputs from the stage (products.cuh). They meet between
// two products. Lines of y become rows on their way out (store.cuh), while the producer copies the next x.
#pragma once

#include "cuda/chain/fused_wgmma/loads.cuh"
#include "cuda/chain/fused_wgmma/products.cuh"
#include "cuda/chain/fused_wgmma/store.cuh"

namespace kronsparse::cuda {
namespace fused_wgmma {

/// An output of a step, by its number among them: its block's i and j, and its own number k.
struct Output {
  int block, i, j, k;
};
[[nodiscard]] __device__ inline int quotient(int number, const Divisor& by) {
  return static_cast<int>(by.quotient(static_cast<std::uint32_t>(number)));
}
[[nodiscard]] __device__ inline Output output_at(const Step& step, int number) {
  const int block = quotient(number, step.by_padded), i = quotient(block, step.by_d);
  return {block, i, block - i * step.d, number - block * step.padded};
}

/// The line of a feature, where a step reads it as a term.
[[nodiscard]] __device__ inline int line_of(const Step& step, int feature) {
  const int i = quotient(feature, step.by_block);
  const int in_block = feature - i * static_cast<int>(step.by_block.value());
  const int l = quotient(in_block, step.by_d), j = in_block - l * step.d;
  return (i * step.d + j) * step.block_lines + mixed_term(l, j, step.mixing);
}

/// Fills the tables: the line of each output of each step, and of each feature of y.
template <class Traits>
__device__ inline void fill_tables(const Arguments& p, std::uint32_t shared) {
  for (int s = 0; s < p.steps; ++s) {
    const Step& step = p.step[s];
    const int outputs = step.blocks * step.padded;
    for (int at = static_cast<int>(threadIdx.x); at < outputs; at += Traits::consumer_threads) {
      const Output output = output_at(step, at);
      int line = step.out_group / line_bytes - 1;  // the last one is nobody's
      if (output.k < step.b && s + 1 < p.steps) {
        line = line_of(p.step[s + 1], (output.i * step.b + output.k) * step.d + output.j);
      } else if (output.k < step.b) {
        // A part has lines of its own outputs alone.
        int k = output.k;
        while (k >= p.y_outputs) k -= p.y_outputs;
        line = output.block * p.y_block_lines + y_term(k, output.j);
        if (k == output.k)
          ptx::store_shared_2(shared + p.y_lines + ((output.i * p.y_outputs + k) * step.d + output.j) * 2,
                              static_cast<std::uint16_t>(line));
      }
      ptx::store_shared_2(shared + step.lines + at * 2, static_cast<std::uint16_t>(line));
    }
  }
}

/// Fills the tables that depend on what earlier kernels wrote: the bias, and the factors of sums.
template <class Traits>
__device__ inline void fill_numbers(const Arguments& p, std::uint32_t shared) {
  for (int s = 0; s < p.steps; ++s) {
    const Step& step = p.step[s];
    const bool has_bias = s + 1 == p.steps && p.biases >= 0;
    if (step.factors < 0 && !has_bias) continue;
    const int outputs = step.blocks * step.padded;
    for (int at = static_cast<int>(threadIdx.x); at < outputs; at += Traits::consumer_threads) {
      const Output output = output_at(step, at);
      const bool exists = output.k < step.b;
      const std::int64_t feature = (std::int64_t{output.i} * step.b + output.k) * step.d + output.j;
      if (step.factors >= 0) {
        const auto exponent = exists ? static_cast<std::uint32_t>(p.weights[step.exponents + feature]) : 127u;
        ptx::store_shared_4(shared + step.factors + at * 4, exponent << 23);
      }
      if (has_bias)
        ptx::store_shared_float(shared + p.biases + at * 4,
                                exists ? mma::load_element<Traits>(p.bias, feature) : 0.0f);
    }
  }
}

/// Writes zeros to the lines of terms that do not exist.
template <class Traits>
__device__ __forceinline__ void clear_padding(const Step& step, std::uint32_t shared) {
  const int all = step.block_lines, padding = all - step.terms;
  if (padding == 0) return;
  const int count = step.blocks * padding * 8;
  for (int at = static_cast<int>(threadIdx.x); at < count; at += Traits::consumer_threads) {
    const int unit = at % 8, number = at / 8, block = number / padding;
    const int line = block * all + mixed_term(step.terms + number % padding, block % step.d, step.mixing);
#pragma unroll
    for (int group = 0; group < Traits::row_groups; ++group)
      ptx::store_shared_16(unit_at(shared + step.in + group * step.in_group, line, unit), 0, 0, 0, 0);
  }
}

template <class Traits>
__device__ __forceinline__ void consume(const Arguments& p, std::uint32_t shared) {
  const Lane at = this_lane();
  RingPlace place;
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    for (int s = 0; s < p.steps; ++s) {
      const bool is_last = s + 1 == p.steps;
      for (int part = 0; part < (is_last ? p.parts : 1); ++part) {
        if (s == 0)
          multiply_step<Traits, true>(p, s, part, shared, at, place);
        else
          multiply_step<Traits, false>(p, s, part, shared, at, place);
        if (!is_last) clear_padding<Traits>(p.step[s + 1], shared);
        meet<Traits>();
        if (!is_last) continue;
        YStore<Traits>(p, tile, part, shared, at).run();
        if (p.y_waits) meet<Traits>();
      }
    }
  }
}

}  // namespace fused_wgmma

template <class Traits>
__global__ void __launch_bounds__(Traits::threads, Traits::blocks_at_once)
    multiply_fused_wgmma(const __grid_constant__ fused_wgmma::Arguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)  // the host refuses other GPUs; an empty body compiles quickly
  using namespace fused_wgmma;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const Barriers barriers{shared};
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::barrier_init(barriers.full(stage), 1);
      ptx::barrier_init(barriers.empty(stage), consumer_warps_in_group);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::let_later_kernels_start();
  if (threadIdx.x >= Traits::consumer_threads) {
    ptx::give_registers<24>();
    if (threadIdx.x < Traits::consumer_threads + 32) Producer<Traits>(p, shared).run();
  } else {
    ptx::take_registers<Traits::registers>();
    fill_tables<Traits>(p, shared);
    ptx::wait_for_earlier_kernels();
    fill_numbers<Traits>(p, shared);
    ptx::barrier_of(1, Traits::consumer_threads);
    consume<Traits>(p, shared);
  }
#endif
}

}  // namespace kronsparse::cuda
