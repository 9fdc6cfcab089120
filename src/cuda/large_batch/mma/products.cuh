// The products of the kernel `mma`: weights from L2, x from lines, sums to the lines of y.
#pragma once

#include "cuda/device/sums.cuh"
#include "cuda/large_batch/mma/block.cuh"

namespace kronsparse::cuda::mma {

/// A float as a TF32 number and the remainder. An infinity leaves a NaN: such results are computed again.
struct Split {
  std::uint32_t high, low;
};
__device__ inline Split split(std::uint32_t bits) {
  const std::uint32_t high = (bits + 0x1000u) & 0xffffe000u;
  return {high, __float_as_uint(__uint_as_float(bits) - __uint_as_float(high))};
}

/// The right operand of one step of terms, for all samples of a group.
template <class Traits>
struct Terms {
  std::uint32_t b[Traits::n_tiles][2];
  std::uint32_t low[Traits::compensated ? Traits::n_tiles : 1][2];

  /// `lines`: of the group. Terms from `count` on do not exist.
  __device__ void load(std::uint32_t lines, std::uint32_t zeros, int block, int rows, int first, int count,
                       const Lane& at) {
    if constexpr (Traits::half) {
      // Lanes 0 to 7 give the rows of b0, lanes 8 to 15 those of b1, for 8 samples; the others for the
      // next 8.
      const int row = first + at.lane % 16;
      const std::uint32_t from = (row < count ? lines + (block * rows + row) * line_bytes : zeros) +
                                 (at.lane / 16 ^ swizzle_of<Traits>(block, row)) * 16;
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; n += 2) {
        const uint4 words = ptx::load_matrices_transposed(from ^ n * 16);
        b[n][0] = words.x, b[n][1] = words.y;
        b[n + 1][0] = words.z, b[n + 1][1] = words.w;
      }
    } else {
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int row = first + at.t + 4 * part;
        const std::uint32_t from = (row < count ? lines + (block * rows + row) * line_bytes : zeros) +
                                   (at.g / 4 ^ swizzle_of<Traits>(block, row)) * 16 + at.g % 4 * 4;
#pragma unroll
        for (int n = 0; n < Traits::n_tiles; ++n) {
          const std::uint32_t bits = ptx::load_shared_4(from ^ n * 32);
          if constexpr (Traits::compensated) {
            const Split parts = split(bits);
            b[n][part] = parts.high;
            low[n][part] = parts.low;
          } else {
            b[n][part] = ptx::round_to_tf32(bits);
          }
        }
      }
    }
  }
};

/// Adds the products of 16 outputs with one step of terms.
template <class Traits>
__device__ inline void multiply(float (&sums)[Traits::n_tiles][4], const uint4& a, const Terms<Traits>& x) {
  if constexpr (Traits::half) {
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      if constexpr (Traits::arithmetic == Arithmetic::bf16)
        ptx::mma_bf16(sums[n], a, x.b[n][0], x.b[n][1]);
      else
        ptx::mma_f16(sums[n], a, x.b[n][0], x.b[n][1]);
    }
  } else if constexpr (!Traits::compensated) {
    const uint4 left{ptx::round_to_tf32(a.x), ptx::round_to_tf32(a.y), ptx::round_to_tf32(a.z),
                     ptx::round_to_tf32(a.w)};
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) ptx::mma_tf32(sums[n], left, x.b[n][0], x.b[n][1]);
  } else {
    const Split a0 = split(a.x), a1 = split(a.y), a2 = split(a.z), a3 = split(a.w);
    const uint4 high{a0.high, a1.high, a2.high, a3.high}, low{a0.low, a1.low, a2.low, a3.low};
    // Tensor cores truncate when they add. They add up these terms alone; plain additions, which round, add
    // them to the others.
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      float step[4]{};
      ptx::mma_tf32(step, low, x.b[n][0], x.b[n][1]);
      ptx::mma_tf32(step, high, x.low[n][0], x.low[n][1]);
      ptx::mma_tf32(step, high, x.b[n][0], x.b[n][1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] += step[e];
    }
  }
}

/// A tile of 16 outputs of a block (i, j), that a warp computes in one pass.
struct Slot {
  int block = 0;    ///< in the tile
  int m_tile = -1;  ///< in the block's outputs; negative: there is none, and nobody stores its sums
  int i = 0, j = 0;

  Slot() = default;
  __device__ Slot(const Arguments& p, const Position& at, int number) {
    const auto of_number = static_cast<int>(p.m_tiles.quotient(static_cast<std::uint32_t>(number)));
    const int tile = number - of_number * static_cast<int>(p.m_tiles.value());
    const auto i_here = static_cast<int>(p.run.quotient(static_cast<std::uint32_t>(of_number)));
    i = at.i + i_here;
    j = at.j + of_number - i_here * static_cast<int>(p.run.value());
    if (i_here >= p.i_count || i >= p.a || j >= p.d || at.k / 16 + tile >= p.all_m_tiles) return;
    block = of_number;
    m_tile = tile;
  }
};

/// The slots of a warp in one pass.
template <class Traits>
struct Slots {
  const uint4* weights[Traits::slots];  ///< the lane's part of the first fragment
  int block[Traits::slots];
  bool is_empty = true;

  __device__ Slots(const Arguments& p, const Position& at, int first, const Lane& lane) {
#pragma unroll
    for (int s = 0; s < Traits::slots; ++s) {
      const Slot slot(p, at, first + s);
      block[s] = slot.block;
      std::int64_t fragment = 0;
      if (slot.m_tile >= 0) {
        is_empty = false;
        fragment =
            ((static_cast<std::int64_t>(slot.i) * p.d + slot.j) * p.all_m_tiles + at.k / 16 + slot.m_tile) *
            p.k_steps;
      }
      weights[s] = reinterpret_cast<const uint4*>(p.weights) + fragment * 32 + lane.lane;
    }
  }
};

/// Adds the products with the terms of a chunk. `ahead` are the weights of its first step.
template <class Traits>
__device__ inline void multiply_chunk(const Arguments& p, const Slots<Traits>& slots, int chunk,
                                      uint4 (&ahead)[Traits::slots], std::uint32_t lines, std::uint32_t zeros,
                                      Sums<Traits, Traits::slots>& sums, const Lane& at) {
  const int rows = p.from.rows;
  const int first_step = chunk * p.chunk_steps;
  const int steps = min(p.chunk_steps, p.k_steps - first_step);
  const int count = min(rows, p.from.height - chunk * rows);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    uint4 now[Traits::slots];
    const int next = min(first_step + step + 1, p.k_steps - 1);
#pragma unroll
    for (int s = 0; s < Traits::slots; ++s) {
      now[s] = ahead[s];
      ahead[s] = slots.weights[s][next * 32];
    }
    Terms<Traits> terms;
#pragma unroll
    for (int s = 0; s < Traits::slots; ++s) {
      if (s == 0 || slots.block[s] != slots.block[s - 1])
        terms.load(lines, zeros, slots.block[s], rows, step * Traits::k_step, count, at);
      multiply<Traits>(sums[s], now[s], terms);
    }
  }
}

/// The sum of one result by FMA alone, for results whose split gave no number.
template <class Traits>
__device__ __noinline__ float sum_again(const Arguments& p, int i, int k, int j, std::int64_t n) {
  const auto* x = reinterpret_cast<const float*>(p.x) + n * p.from.sample +
                  (static_cast<std::int64_t>(i) * p.from.height * p.d + j) * p.from.feature;
  const auto* weights = reinterpret_cast<const float*>(p.weights) +
                        ((static_cast<std::int64_t>(i) * p.d + j) * p.all_m_tiles + k / 16) * p.k_steps * 128;
  float sum = 0;
  for (int l = 0; l < p.from.height; ++l)
    sum = fmaf(weights[l / 8 * 128 + (4 * (k % 8) + l % 4) * 4 + l / 4 % 2 * 2 + k / 8 % 2],
               x[static_cast<std::int64_t>(l) * p.d * p.from.feature], sum);
  return sum;
}

/// Computes sums again that are no numbers. They take turns in the registers of one copy of the code.
/// `first`: the first output.
template <class Traits>
__device__ inline void mend_sums(const Arguments& p, float (&sums)[Traits::n_tiles][4], int i, int first,
                                 int j, std::int64_t sample, const Lane& at) {
  // Zero times a sum is not zero only for an infinity or a NaN.
  constexpr int count = Traits::n_tiles * 4;
  float* const all = &sums[0][0];
  float zeros = 0.0f;
#pragma unroll
  for (int e = 0; e < count; ++e) zeros = fmaf(all[e], 0.0f, zeros);
  if (zeros == 0.0f) return;
#pragma unroll 1
  for (int turn = 0; turn < count; ++turn) {
    float sum = all[0];
#pragma unroll
    for (int e = 0; e + 1 < count; ++e) all[e] = all[e + 1];
    const int k = first + at.g + turn % 4 / 2 * 8;
    const std::int64_t n = sample + turn / 4 * 8 + 2 * at.t + turn % 2;
    if (k < p.to.height && n < p.batch && !isfinite(sum)) sum = sum_again<Traits>(p, i, k, j, n);
    all[count - 1] = sum;
  }
}

/// Bias and activation; then the sums go to the lines of y. `first` is the number of the first slot.
template <class Traits>
__device__ inline void keep_sums(const Arguments& p, const Position& at, int first, std::uint32_t lines,
                                 int group, Sums<Traits, Traits::slots>& sums, const Lane& lane) {
  const int rows = p.to.rows;
#pragma unroll
  for (int s = 0; s < Traits::slots; ++s) {
    const Slot slot(p, at, first + s);
    const int output = at.k + slot.m_tile * 16;
    if (slot.m_tile < 0) continue;
    if constexpr (Traits::compensated)
      mend_sums<Traits>(p, sums[s], slot.i, output, slot.j, at.n + group * Traits::samples, lane);
    if (p.bias != nullptr)
      add_bias<Traits>(sums[s], p.bias,
                       (static_cast<std::int64_t>(slot.i) * p.to.height + output) * p.d + slot.j, p.d,
                       p.to.height - output, lane.g);
  }
  if (p.activation != Activation::none) activate_sums<Traits, Traits::slots>(sums, p.activation);
#pragma unroll
  for (int s = 0; s < Traits::slots; ++s) {
    const Slot slot(p, at, first + s);
    if (slot.m_tile < 0) continue;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int row = slot.m_tile * 16 + upper * 8 + lane.g;
      if (row >= rows) continue;
      const std::uint32_t to = lines + place_of<Traits>(slot.block, rows, row);
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        const float v0 = sums[s][n][2 * upper], v1 = sums[s][n][2 * upper + 1];
        if constexpr (Traits::half)
          ptx::store_shared_4((to ^ n * 16) + lane.t * 4, pack_pair<Traits>(v0, v1));
        else
          ptx::store_shared_floats((to ^ (2 * n + lane.t / 2) * 16) + lane.t % 2 * 8, v0, v1);
      }
    }
  }
}

}  // namespace kronsparse::cuda::mma
