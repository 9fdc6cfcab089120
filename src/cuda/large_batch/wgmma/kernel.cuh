// The kernel `wgmma`: the fused product on Hopper's tensor cores, for every layout.
//
// One warpgroup, the producer, brings x and the weights into a ring of stages in shared memory (loads.cuh).
// Two warpgroups multiply: (samples, terms) from registers by (terms, outputs) from shared memory. x is
// sorted on its way to registers: a lane reads four terms of a sample with one load, and for half types
// separates the pairs of neighbouring j, which are one word in memory, into the operands of two products.
// Sums stay in registers. Results leave in whole rows through shared memory (store.cuh).
#pragma once

#include "cuda/device/wgmma.cuh"
#include "cuda/large_batch/wgmma/loads.cuh"
#include "cuda/large_batch/wgmma/store.cuh"

namespace kronsparse::cuda {
namespace wgmma {

/// Splits a float into a TF32 number and the remainder. An infinity leaves a NaN: such results are computed
/// again before they are stored.
__device__ inline void split(std::uint32_t bits, std::uint32_t& high, std::uint32_t& low) {
  high = (bits + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(__uint_as_float(bits) - __uint_as_float(high));
}

/// The left operands of 16 terms of one word (the j of a float, a pair of j of a half type, or the only j).
/// Floats: two steps of 8 terms; high parts, then low parts.
template <class Traits>
struct Operands16 {
  static constexpr int count = Traits::half ? Traits::word_products : Traits::compensated ? 4 : 2;
  std::uint32_t a[count][4];
};

template <class Traits>
class Consumer {
 public:
  __device__ Consumer(const WgmmaArguments& p, std::uint32_t shared)
      : p_(p), shared_(shared), barriers_{shared}, at_(lane_place<Traits>()) {}

  __device__ void run() {
    ptx::wait_for_earlier_kernels();  // they may still read y, or write the bias
    const Share share = share_of_block(p_);
    int group_parity = 0;
    for (std::uint32_t index = share.first; index < share.end;) {
      const std::uint32_t group_end = share.group_end(p_, index);
      if (p_.w_stage_bytes == 0) {
        ptx::barrier_wait(barriers_.group_full(), group_parity);
        group_parity ^= 1;
      }
      for (; index < group_end; index += share.step) {
        multiply_tile();
        const Tile tile = tile_at(p_, index, Traits::tile_n);
        finish<Traits>(p_, at_, tile, sums_);
        store<Traits>(p_, at_, tile, sums_, shared_ + p_.out_offset);
      }
      if (p_.w_stage_bytes == 0) release(barriers_.group_empty());
    }
    ptx::wait_bulk_stores();  // they must have read shared memory before the block ends
  }

 private:
  /// Words whose operands are in registers at once; four of split floats would not fit.
  static constexpr int kOperands = Traits::compensated && Traits::words == 4 ? 2 : Traits::words;

  __device__ void release(std::uint32_t barrier) const {
    if (speaks_for_warp()) ptx::barrier_arrive(barrier);
  }

  __device__ void multiply_tile() {
    // Tensor cores truncate when they add. So compensated sums stay at 32 terms there, and the FMA units add
    // them up.
    constexpr int chunks_together = 2;
    int add = 0;
    for (int chunk = 0; chunk < p_.chunks; chunk += Traits::sub_chunks) {
      ptx::barrier_wait(barriers_.full(place_.at), place_.parity);
      const std::uint32_t x = shared_ + p_.stages_offset + place_.at * p_.x_stage_bytes;
      const std::uint32_t weights =
          shared_ + p_.w_region_offset +
          (p_.w_stage_bytes == 0 ? chunk * p_.w_chunk_bytes : place_.at * p_.w_stage_bytes);
      // Operands have registers of their own until their products are done: the compiler lets no wgmma be
      // under way across the end of a stage.
      Operands16<Traits> operands[Traits::sub_chunks][kOperands];  // (chunks, words)
      Raw raw[2];                                                  // the chunk in use, and the next
      load(raw[0], x);
#pragma unroll
      for (int sub = 0; sub < Traits::sub_chunks; ++sub) {
        if (sub + 1 < Traits::sub_chunks) load(raw[(sub + 1) % 2], x + (sub + 1) * Traits::x.bytes);
#pragma unroll
        for (int word = 0; word < Traits::words; ++word) {
          if (word >= kOperands) ptx::wgmma_wait<kOperands - 1>();
          prepare(operands[sub][word % kOperands], raw[sub % 2], word);
          ptx::wgmma_fence();
          issue(operands[sub][word % kOperands], weights + sub * p_.w_chunk_bytes, word, sub == 0 ? add : 1);
          ptx::wgmma_commit();
        }
      }
      ptx::wgmma_wait<0>();
      release(barriers_.empty(place_.at));
      place_.advance(p_.stages);
      add = 1;
      if constexpr (Traits::compensated) {
        const int done = chunk + Traits::sub_chunks;
        if (done % chunks_together == 0 || done >= p_.chunks) {
#pragma unroll
          for (int j = 0; j < Traits::products; ++j)
#pragma unroll
            for (int e = 0; e < Traits::n / 2; ++e)
              sums_[j][e] = done <= chunks_together ? short_sums_[j][e] : sums_[j][e] + short_sums_[j][e];
          add = 0;
        }
      }
    }
  }

  /// Four terms of the lane's two samples, for each of its words. Rows and columns of half types: two pairs
  /// of terms. Lines: as they lie in memory.
  static constexpr int kRawWords = Traits::form == XForm::lines ? (Traits::words + 1) / 2 : Traits::words;
  struct Raw {
    std::uint32_t upper[4][kRawWords], lower[4][kRawWords];
  };

  __device__ void load(Raw& raw, std::uint32_t x) const {
    if constexpr (Traits::form == XForm::planes) {
      load_planes(raw.upper, x, at_.row);
      load_planes(raw.lower, x, at_.row + 8);
    } else if constexpr (Traits::form == XForm::lines) {
      const std::uint32_t from = x + at_.row * Traits::x.row_bytes + at_.t * (8 * Traits::words);
#pragma unroll
      for (int pair = 0; pair < Traits::words; ++pair) {
        const uint2 upper = ptx::load_shared_8(from + pair * 8);
        const uint2 lower = ptx::load_shared_8(from + 8 * Traits::x.row_bytes + pair * 8);
        (&raw.upper[0][0])[2 * pair] = upper.x;
        (&raw.upper[0][0])[2 * pair + 1] = upper.y;
        (&raw.lower[0][0])[2 * pair] = lower.x;
        (&raw.lower[0][0])[2 * pair + 1] = lower.y;
      }
    } else if constexpr (Traits::form == XForm::rows) {
      const std::uint32_t from = x + at_.row * 32 + at_.t * 8;
      const uint2 upper = ptx::load_shared_8(from);
      const uint2 lower = ptx::load_shared_8(from + 8 * 32);
      raw.upper[0][0] = upper.x;
      raw.upper[1][0] = upper.y;
      raw.lower[0][0] = lower.x;
      raw.lower[1][0] = lower.y;
    } else if constexpr (Traits::half) {
      // The rows of four 8x8 matrices: terms of the first half for 8 samples, for the next 8, then the same
      // for the second half.
      const int lane = 4 * at_.g + at_.t;
      const int r = lane % 8;
      const int l = r / 2 * 4 + r % 2 + lane / 16 * 2;
      const int unit = at_.warp_row / 8 + lane / 8 % 2;
      const uint4 words =
          ptx::load_matrices_transposed(x + l * Traits::x.row_bytes + ((unit ^ mma::swizzle(l)) << 4));
      raw.upper[0][0] = words.x;
      raw.lower[0][0] = words.y;
      raw.upper[1][0] = words.z;
      raw.lower[1][0] = words.w;
    } else {
#pragma unroll
      for (int term = 0; term < 4; ++term) {
        const int l = 4 * at_.t + term;
        const std::uint32_t row = x + l * Traits::x.row_bytes + at_.row % 4 * 4;
        raw.upper[term][0] = ptx::load_shared_4(row + (((at_.row / 4) ^ mma::swizzle(l)) << 4));
        raw.lower[term][0] = ptx::load_shared_4(row + (((at_.row / 4 + 2) ^ mma::swizzle(l)) << 4));
      }
    }
  }

  /// Terms 4t to 4t + 3 of one sample, for all words of the warpgroup.
  __device__ void load_planes(std::uint32_t (&terms)[4][Traits::words], std::uint32_t x, int row) const {
    constexpr int block_words = Traits::x.words;
    const std::uint32_t from = x + row * Traits::x.row_bytes;
    if constexpr (block_words == 8) {
#pragma unroll
      for (int term = 0; term < 4; ++term) {
        const uint4 words =
            ptx::load_shared_16(from + swizzled<8>(2 * (4 * at_.t + term) + at_.word / 4, row) * 16);
        terms[term][0] = words.x;
        terms[term][1] = words.y;
        terms[term][2] = words.z;
        terms[term][3] = words.w;
      }
    } else if constexpr (block_words == 4) {
#pragma unroll
      for (int term = 0; term < 4; ++term) {
        const uint2 words = ptx::load_shared_8(from + swizzled<4>(4 * at_.t + term, row) * 16 + at_.word * 4);
        terms[term][0] = words.x;
        terms[term][1] = words.y;
      }
    } else {
      // All words of four terms fill block_words units.
      std::uint32_t words[4 * block_words];
#pragma unroll
      for (int unit = 0; unit < block_words; ++unit) {
        const uint4 four =
            ptx::load_shared_16(from + swizzled<block_words>(block_words * at_.t + unit, row) * 16);
        words[4 * unit] = four.x;
        words[4 * unit + 1] = four.y;
        words[4 * unit + 2] = four.z;
        words[4 * unit + 3] = four.w;
      }
#pragma unroll
      for (int term = 0; term < 4; ++term)
#pragma unroll
        for (int word = 0; word < Traits::words; ++word) {
          const std::uint32_t first = words[term * block_words + word];
          terms[term][word] =
              Traits::split_words && at_.word != 0
                  ? words[term * block_words + word + (Traits::split_words ? Traits::words : 0)]
                  : first;
        }
    }
  }

  __device__ static void prepare(Operands16<Traits>& operands, const Raw& raw, int word) {
    if constexpr (Traits::form == XForm::lines) {
      // Element `word` of each of four terms, which lie `words` elements apart.
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int first = 2 * pair * Traits::words + word;
        const int second = first + Traits::words;
        const int selector = (second % 2 == 0 ? 0x5400 : 0x7600) | (first % 2 == 0 ? 0x10 : 0x32);
        operands.a[0][2 * pair] =
            __byte_perm((&raw.upper[0][0])[first / 2], (&raw.upper[0][0])[second / 2], selector);
        operands.a[0][2 * pair + 1] =
            __byte_perm((&raw.lower[0][0])[first / 2], (&raw.lower[0][0])[second / 2], selector);
      }
    } else if constexpr (Traits::half && Traits::word_products == 2) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int first = 2 * pair;
        operands.a[0][first] = __byte_perm(raw.upper[first][word], raw.upper[first + 1][word], 0x5410);
        operands.a[0][first + 1] = __byte_perm(raw.lower[first][word], raw.lower[first + 1][word], 0x5410);
        operands.a[1][first] = __byte_perm(raw.upper[first][word], raw.upper[first + 1][word], 0x7632);
        operands.a[1][first + 1] = __byte_perm(raw.lower[first][word], raw.lower[first + 1][word], 0x7632);
      }
    } else if constexpr (Traits::half) {
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        operands.a[0][2 * pair] = raw.upper[pair][word];
        operands.a[0][2 * pair + 1] = raw.lower[pair][word];
      }
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const std::uint32_t upper = raw.upper[2 * step + odd][word];
          const std::uint32_t lower = raw.lower[2 * step + odd][word];
          if constexpr (Traits::compensated) {
            split(upper, operands.a[step][2 * odd], operands.a[2 + step][2 * odd]);
            split(lower, operands.a[step][2 * odd + 1], operands.a[2 + step][2 * odd + 1]);
          } else {
            operands.a[step][2 * odd] = ptx::round_to_tf32(upper);
            operands.a[step][2 * odd + 1] = ptx::round_to_tf32(lower);
          }
        }
    }
  }

  __device__ void issue(const Operands16<Traits>& operands, std::uint32_t weights, int word, int add) {
    using Instruction = ptx::Wgmma<Traits::n>;
    const int first = (at_.word + word) * Traits::word_products;
    if constexpr (Traits::half) {
#pragma unroll
      for (int product = 0; product < Traits::word_products; ++product) {
        const std::uint64_t b = ptx::wgmma_operand(weights + (first + product) * (Traits::n * 32), 128, 256);
        float(&sums)[Traits::n / 2] = sums_[word * Traits::word_products + product];
        if constexpr (Traits::arithmetic == Arithmetic::bf16)
          Instruction::bf16(sums, operands.a[product], b, add);
        else
          Instruction::f16(sums, operands.a[product], b, add);
      }
    } else {
      // Weights: [high, low] of [two steps]. Operands: high parts of both steps, then low parts of both.
      constexpr int step_bytes = Traits::n * 32;
      const std::uint32_t from = weights + first * (4 * step_bytes);
      float(&sums)[Traits::n / 2] = Traits::compensated ? short_sums_[word] : sums_[word];
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const std::uint64_t high = ptx::wgmma_operand(from + step * step_bytes, 128, 256);
        if constexpr (Traits::compensated) {
          const std::uint64_t low = ptx::wgmma_operand(from + (2 + step) * step_bytes, 128, 256);
          Instruction::tf32(sums, operands.a[2 + step], high, step == 0 ? add : 1);
          Instruction::tf32(sums, operands.a[step], low, 1);
          Instruction::tf32(sums, operands.a[step], high, 1);
        } else {
          Instruction::tf32(sums, operands.a[step], high, step == 0 ? add : 1);
        }
      }
    }
  }

  const WgmmaArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  LanePlace at_;
  RingPlace place_;
  Sums<Traits> sums_;
  float short_sums_[Traits::compensated ? Traits::products : 1][Traits::n / 2];  // (j, sums of a lane)
};

}  // namespace wgmma

template <class Traits>
__global__ void __launch_bounds__(kProducerThreads + kConsumerThreads, 1)
    multiply_wgmma(const __grid_constant__ WgmmaArguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)  // the host refuses other GPUs; an empty body compiles quickly
  extern __shared__ __align__(128) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const wgmma::Barriers barriers{shared};
  if (threadIdx.x == 0) {
    constexpr int consumer_warps = kConsumerThreads / 32;
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::barrier_init(barriers.full(stage), kProducerThreads + (p.w_stage_bytes == 0 ? 0 : 1));
      ptx::barrier_init(barriers.empty(stage), arrivals_of_warps(consumer_warps));
    }
    ptx::barrier_init(barriers.group_full(), 1);
    ptx::barrier_init(barriers.group_empty(), arrivals_of_warps(consumer_warps));
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::let_later_kernels_start();
  if (threadIdx.x < kProducerThreads) {
    ptx::give_registers<40>();
    wgmma::Producer<Traits>(p, shared).run();
  } else {
    ptx::take_registers<232>();
    wgmma::Consumer<Traits>(p, shared).run();
  }
#endif
}

}  // namespace kronsparse::cuda
