// The kernel `mma`: the fused product on tensor cores from sm_80 on (mma.sync), for every layout.
//
// x goes by asynchronous copies from memory to stages in shared memory, in place and without a permuted copy
// (loads.cuh). Weights that fit stay in shared memory beside it; others are streamed. Warps load both as
// fragments and keep the sums in registers. Results leave in place, in whole rows, through shared memory.
#pragma once

#include "cuda/large_batch/mma/loads.cuh"

namespace kronsparse::cuda {
namespace mma {

/// The part of a block's tile that a warp computes.
struct WarpPlace {
  int word, k, n;  ///< word of j, and the warp's index along outputs and samples
  int g, t;        ///< lane = 4g + t, as in the description of fragments
};

__device__ inline WarpPlace warp_place(const MmaArguments& p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {warp / (p.warps_k * p.warps_n), warp / p.warps_n % p.warps_k, warp % p.warps_n, lane / 4, lane % 4};
}

template <class Traits>
using Accumulators = float[Traits::products][Traits::k_tiles][Traits::n_tiles][4];  // (j, 16 k, 8 n, 4 sums)

/// Splits a float into a TF32 number and the remainder. An infinity leaves a NaN: the epilogue computes such
/// results again.
__device__ inline void split(std::uint32_t bits, std::uint32_t& high, std::uint32_t& low) {
  high = (bits + 0x1000u) & 0xffffe000u;
  low = __float_as_uint(__uint_as_float(bits) - __uint_as_float(high));
}

__device__ inline void split(const uint4& bits, uint4& high, uint4& low) {
  split(bits.x, high.x, low.x);
  split(bits.y, high.y, low.y);
  split(bits.z, high.z, low.z);
  split(bits.w, high.w, low.w);
}

/// Multiplies 16 terms of half types. x is read once for all outputs of the warp.
template <class Traits>
__device__ inline void multiply_chunk_half(const MmaArguments& p, const WarpPlace& at, std::uint32_t x,
                                           std::uint32_t weights, Accumulators<Traits>& sums) {
  std::uint32_t b[Traits::products][Traits::n_tiles][2];  // (j, 8 samples, pairs of terms)
  if constexpr (Traits::form == XForm::planes) {
    const std::uint32_t from = x + at.word * p.plane_bytes + (at.n * Traits::warp_n + at.g) * 64 + at.t * 16;
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      const uint4 words = ptx::load_shared_16(from + n * 512);  // 4 terms of 2 products
      b[0][n][0] = __byte_perm(words.x, words.y, 0x5410);
      b[1][n][0] = __byte_perm(words.x, words.y, 0x7632);
      b[0][n][1] = __byte_perm(words.z, words.w, 0x5410);
      b[1][n][1] = __byte_perm(words.z, words.w, 0x7632);
    }
  } else if constexpr (Traits::form == XForm::rows) {
    const std::uint32_t from = x + (at.n * Traits::warp_n + at.g) * 32 + at.t * 8;
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      const uint2 words = ptx::load_shared_8(from + n * 256);
      b[0][n][0] = words.x;
      b[0][n][1] = words.y;
    }
  } else {
    // Lanes 0-7 give the rows of b0, lanes 8-15 those of b1, for 8 samples; lanes 16-31 for the next 8.
    const int lane = 4 * at.g + at.t;
    const int r = lane % 8;
    const int l = r / 2 * 4 + r % 2 + lane / 8 % 2 * 2;
    const int unit = at.n * (Traits::warp_n / 8) + lane / 16;
    const std::uint32_t row = x + l * (p.tile_n * 2);
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; n += 2) {
      const uint4 words = ptx::load_matrices_transposed(row + ((unit + n) ^ swizzle(l)) * 16);
      b[0][n][0] = words.x;
      b[0][n][1] = words.y;
      b[0][n + 1][0] = words.z;
      b[0][n + 1][1] = words.w;
    }
  }
  const int block_k_tiles = p.order.tile_k / 16;
#pragma unroll
  for (int j = 0; j < Traits::products; ++j) {
    const std::uint32_t from =
        weights + ((at.word * Traits::products + j) * block_k_tiles + at.k * Traits::k_tiles) * 512 +
        (4 * at.g + at.t) * 16;
#pragma unroll
    for (int k = 0; k < Traits::k_tiles; ++k) {
      const uint4 a = ptx::load_shared_16(from + k * 512);
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        if constexpr (Traits::arithmetic == Arithmetic::bf16)
          ptx::mma_bf16(sums[j][k][n], a, b[j][n][0], b[j][n][1]);
        else
          ptx::mma_f16(sums[j][k][n], a, b[j][n][0], b[j][n][1]);
      }
    }
  }
}

/// Multiplies 16 terms of floats, in two steps of 8: by one TF32 product, or by three that together are as
/// good as a float's.
template <class Traits>
__device__ inline void multiply_chunk_float(const MmaArguments& p, const WarpPlace& at, std::uint32_t x,
                                            std::uint32_t weights, Accumulators<Traits>& sums) {
  std::uint32_t b[Traits::n_tiles][4];  // terms 4t to 4t + 3
  if constexpr (Traits::form == XForm::planes) {
    const std::uint32_t from = x + at.word * p.plane_bytes + (at.n * Traits::warp_n + at.g) * 64 + at.t * 16;
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      const uint4 words = ptx::load_shared_16(from + n * 512);
      b[n][0] = words.x;
      b[n][1] = words.y;
      b[n][2] = words.z;
      b[n][3] = words.w;
    }
  } else {
    const int row_bytes = p.tile_n * 4;
#pragma unroll
    for (int term = 0; term < 4; ++term) {
      const int l = 4 * at.t + term;
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        const int sample = at.n * Traits::warp_n + n * 8 + at.g;
        b[n][term] =
            ptx::load_shared_4(x + l * row_bytes + ((sample / 4) ^ swizzle(l)) * 16 + sample % 4 * 4);
      }
    }
  }
  const int block_k_tiles = p.order.tile_k / 16;
  const std::uint32_t from =
      weights + (at.word * block_k_tiles + at.k * Traits::k_tiles) * 1024 + (4 * at.g + at.t) * 16;
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    std::uint32_t high[Traits::n_tiles][2], low[Traits::n_tiles][2];
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n)
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        if constexpr (Traits::compensated)
          split(b[n][2 * step + part], high[n][part], low[n][part]);
        else
          high[n][part] = ptx::round_to_tf32(b[n][2 * step + part]);
      }
#pragma unroll
    for (int k = 0; k < Traits::k_tiles; ++k) {
      const uint4 a = ptx::load_shared_16(from + k * 1024 + step * 512);
      if constexpr (Traits::compensated) {
        uint4 a_high, a_low;
        split(a, a_high, a_low);
#pragma unroll
        for (int n = 0; n < Traits::n_tiles; ++n) ptx::mma_tf32(sums[0][k][n], a_low, high[n][0], high[n][1]);
#pragma unroll
        for (int n = 0; n < Traits::n_tiles; ++n) ptx::mma_tf32(sums[0][k][n], a_high, low[n][0], low[n][1]);
#pragma unroll
        for (int n = 0; n < Traits::n_tiles; ++n)
          ptx::mma_tf32(sums[0][k][n], a_high, high[n][0], high[n][1]);
      } else {
        const uint4 rounded{ptx::round_to_tf32(a.x), ptx::round_to_tf32(a.y), ptx::round_to_tf32(a.z),
                            ptx::round_to_tf32(a.w)};
#pragma unroll
        for (int n = 0; n < Traits::n_tiles; ++n)
          ptx::mma_tf32(sums[0][k][n], rounded, high[n][0], high[n][1]);
      }
    }
  }
}

template <class Traits>
__device__ inline void clear(Accumulators<Traits>& sums) {
#pragma unroll
  for (int at = 0; at < Traits::products * Traits::k_tiles * Traits::n_tiles * 4; ++at)
    (&sums[0][0][0][0])[at] = 0.0f;
}

/// The sum of one result by FMA alone, for results whose split gave no number.
template <class Traits>
__device__ __noinline__ float sum_again(const MmaArguments& p, const Tile& tile, std::int64_t k,
                                        std::int64_t j, std::int64_t n) {
  const auto* x =
      reinterpret_cast<const float*>(p.x) + n * p.x_sample + (tile.i * p.c * p.d + j) * p.x_feature;
  const auto* weights = reinterpret_cast<const float*>(p.weights);
  float sum = 0;
  for (std::int64_t l = 0; l < p.c; ++l)
    sum = fmaf(weights[p.order.place(tile.i, k, l, j)], x[l * p.d * p.x_feature], sum);
  return sum;
}

/// Bias, activation, and the sums whose split gave no number. Most launches have nothing to do here.
template <class Traits>
__device__ inline void finish_all(const MmaArguments& p, const WarpPlace& at, const Tile& tile,
                                  Accumulators<Traits>& sums) {
  bool needed = p.bias != nullptr || p.activation != Activation::none;
  if constexpr (Traits::compensated) {
    // Zero times a sum is not zero only for an infinity or a NaN.
    float zeros = 0.0f;
#pragma unroll
    for (int e = 0; e < Traits::k_tiles * Traits::n_tiles * 4; ++e)
      zeros = fmaf((&sums[0][0][0][0])[e], 0.0f, zeros);
    needed = needed || zeros != 0.0f;
  }
  if (!needed) return;
#pragma unroll
  for (int product = 0; product < Traits::products; ++product)
#pragma unroll
    for (int k_tile = 0; k_tile < Traits::k_tiles; ++k_tile)
#pragma unroll
      for (int n_tile = 0; n_tile < Traits::n_tiles; ++n_tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = Traits::form == XForm::rows ? 2 * at.g + e / 2 : at.g + 8 * (e / 2);
          const std::int64_t k = tile.k0 + (at.k * Traits::k_tiles + k_tile) * 16 + row;
          const std::int64_t j = tile.j0 + at.word * Traits::products + product;
          const std::int64_t n = tile.n0 + at.n * Traits::warp_n + n_tile * 8 + 2 * at.t + e % 2;
          float& sum = sums[product][k_tile][n_tile][e];
          if (k >= p.b || j >= p.d || n >= p.batch) continue;
          if constexpr (Traits::compensated)
            if (!isfinite(sum)) sum = sum_again<Traits>(p, tile, k, j, n);
          if (p.bias != nullptr) sum += load_element<Traits>(p.bias, (tile.i * p.b + k) * p.d + j);
          if (p.activation != Activation::none) sum = activated(sum, p.activation);
        }
}

/// batch_first: stores 8 samples of each warp at a time, so that rows leave whole.
template <class Traits>
__device__ inline void store_rows(const MmaArguments& p, const WarpPlace& at, const Tile& tile,
                                  Accumulators<Traits>& sums, std::uint32_t out, int& round) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = 8 * p.warps_n;
  // A word of the planes is one output of some j; a word of the rows is two outputs.
  constexpr bool rows_form = Traits::form == XForm::rows;
  const int row_words = rows_form ? p.order.tile_k / 2 : p.order.tile_k * p.words;
  const std::int64_t left_k = min(p.b - tile.k0, std::int64_t{p.order.tile_k});
  const std::int64_t d_words = (p.d + Traits::products - 1) / Traits::products;
  const bool all_j = p.words == d_words;

#pragma unroll
  for (int n_tile = 0; n_tile < Traits::n_tiles; ++n_tile) {
    const std::uint32_t buffer = out + (round++ & 1) * p.out_bytes;
#pragma unroll
    for (int k_tile = 0; k_tile < Traits::k_tiles; ++k_tile) {
      const int k16 = (at.k * Traits::k_tiles + k_tile) * 16;
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int row = at.n * 8 + 2 * at.t + odd;
        if constexpr (rows_form) {
          ptx::store_shared_4(
              buffer + (row * p.out_pitch + k16 / 2 + at.g) * 4,
              pack_pair<Traits>(sums[0][k_tile][n_tile][odd], sums[0][k_tile][n_tile][2 + odd]));
        } else {
#pragma unroll
          for (int upper = 0; upper < 2; ++upper) {
            const int k_in_tile = k16 + at.g + 8 * upper;
            std::uint32_t word = __float_as_uint(sums[0][k_tile][n_tile][2 * upper + odd]);
            if constexpr (Traits::products == 2)
              word = pack_pair<Traits>(sums[0][k_tile][n_tile][2 * upper + odd],
                                       sums[1][k_tile][n_tile][2 * upper + odd]);
            ptx::store_shared_4(buffer + (row * p.out_pitch + k_in_tile * p.words + at.word) * 4, word);
          }
        }
      }
    }
    __syncthreads();
    for (int row = warp; row < rows; row += warps) {
      const std::int64_t n = tile.n0 + row / 8 * Traits::warp_n + n_tile * 8 + row % 8;
      if (n >= p.batch) continue;
      const std::uint32_t from = buffer + row * p.out_pitch * 4;
      std::byte* to =
          p.y + (n * p.y_sample + (tile.i * p.b + tile.k0) * p.d + tile.j0) * Traits::element_bytes;
      if constexpr (rows_form) {
        const int words = static_cast<int>((left_k + 1) / 2);
        for (int word = lane; word < words; word += 32)
          store_word<Traits>(p.y_store, to + word * 4, ptx::load_shared_4(from + word * 4),
                             2 * word + 1 < left_k);
      } else if (all_j && p.d % Traits::products == 0) {
        const int words = static_cast<int>(left_k) * p.words;
#pragma unroll 4
        for (int word = lane; word < words; word += 32)
          store_word<Traits>(p.y_store, to + word * 4, ptx::load_shared_4(from + word * 4), true);
      } else {
        for (int word = lane; word < row_words; word += 32) {
          const int k = word / p.words;
          const std::int64_t first_j = tile.j0 + word % p.words * Traits::products;
          if (k < left_k && first_j < p.d)
            store_word<Traits>(p.y_store, to + (k * p.d + first_j - tile.j0) * Traits::element_bytes,
                               ptx::load_shared_4(from + word * 4), first_j + 1 < p.d);
        }
      }
    }
  }
}

/// batch_last: stores 16 outputs of each warp at a time, as rows of samples.
template <class Traits>
__device__ inline void store_columns(const MmaArguments& p, const WarpPlace& at, const Tile& tile,
                                     Accumulators<Traits>& sums, std::uint32_t out, int& round) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int per_word = 4 / Traits::element_bytes;
  const int samples = p.tile_n;
  const std::int64_t left = min(p.batch - tile.n0, std::int64_t{samples});

#pragma unroll
  for (int k_tile = 0; k_tile < Traits::k_tiles; ++k_tile) {
    const std::uint32_t buffer = out + (round++ & 1) * p.out_bytes;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int row = at.k * 16 + at.g + 8 * upper;
#pragma unroll
      for (int n_tile = 0; n_tile < Traits::n_tiles; ++n_tile) {
        const int sample = at.n * Traits::warp_n + n_tile * 8 + 2 * at.t;
        const float first = sums[0][k_tile][n_tile][2 * upper];
        const float second = sums[0][k_tile][n_tile][2 * upper + 1];
        const std::uint32_t to = buffer + row * p.out_pitch * 4 + sample * Traits::element_bytes;
        if constexpr (Traits::half) {
          ptx::store_shared_4(to, pack_pair<Traits>(first, second));
        } else {
          ptx::store_shared_4(to, __float_as_uint(first));
          ptx::store_shared_4(to + 4, __float_as_uint(second));
        }
      }
    }
    __syncthreads();
    for (int row = warp; row < 16 * p.warps_k; row += warps) {
      const std::int64_t k = tile.k0 + (row / 16 * Traits::k_tiles + k_tile) * 16 + row % 16;
      if (k >= p.b) continue;
      const std::uint32_t from = buffer + row * p.out_pitch * 4;
      std::byte* to =
          p.y + (((tile.i * p.b + k) * p.d + tile.j0) * p.y_feature + tile.n0) * Traits::element_bytes;
      if (p.y_store == 16 && left == samples) {
        for (int word = lane * 4; word < samples / per_word; word += 128)
          *reinterpret_cast<uint4*>(to + word * 4) = ptx::load_shared_16(from + word * 4);
      } else {
        for (int word = lane; word * per_word < left; word += 32)
          store_word<Traits>(p.y_store, to + word * 4, ptx::load_shared_4(from + word * 4),
                             word * per_word + 1 < left);
      }
    }
  }
}

}  // namespace mma

template <class Traits>
__global__ void __launch_bounds__(kMaxThreads, 1) multiply_mma(const __grid_constant__ MmaArguments p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800  // the host refuses earlier GPUs
  extern __shared__ __align__(128) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const mma::WarpPlace at = mma::warp_place(p);
  const bool resident = p.w_stage_bytes == 0;

  // Resident weights: a block takes neighbouring tiles, which mostly share their group. Streamed weights:
  // tiles are interleaved among the blocks.
  const std::uint32_t step = resident ? 1 : gridDim.x;
  const auto share = [&](std::uint32_t block) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(p.tiles) * block / gridDim.x);
  };
  std::uint32_t index = resident ? share(blockIdx.x) : blockIdx.x;
  const std::uint32_t end = resident ? share(blockIdx.x + 1) : static_cast<std::uint32_t>(p.tiles);
  int round = 0;

  while (index < end) {
    const auto n_tiles = static_cast<std::uint32_t>(p.n_tiles);
    const std::uint32_t group_end = resident ? min(end, (index / n_tiles + 1) * n_tiles) : end;
    mma::Loader<Traits> loader(p, shared, index, group_end, step);
    if (resident) loader.load_group();  // arrives with the first stage
    for (int stage = 0; stage < kStages - 1; ++stage) loader.issue(stage);

    int stage = 0;
    for (; index < group_end; index += step) {
      mma::Accumulators<Traits> sums;
      mma::clear<Traits>(sums);
      [[maybe_unused]] mma::Accumulators<Traits> short_sums;
      if constexpr (Traits::compensated) mma::clear<Traits>(short_sums);

      for (int chunk = 0; chunk < p.chunks; chunk += p.sub_chunks) {
        ptx::wait_copies<kStages - 2>();
        __syncthreads();
        loader.issue((stage + kStages - 1) % kStages);
        std::uint32_t x = shared + stage * p.x_stage_bytes;
        std::uint32_t weights =
            shared + p.w_region_offset + (resident ? chunk * p.w_chunk_bytes : stage * p.w_stage_bytes);
        const int subs = min(p.sub_chunks, p.chunks - chunk);
        for (int sub = 0; sub < subs; ++sub) {
          if constexpr (Traits::half) {
            mma::multiply_chunk_half<Traits>(p, at, x, weights, sums);
          } else if constexpr (!Traits::compensated) {
            mma::multiply_chunk_float<Traits>(p, at, x, weights, sums);
          } else {
            // Tensor cores truncate when they add. So their sums stay at 32 terms, and the FMA units add
            // these up.
            mma::multiply_chunk_float<Traits>(p, at, x, weights, short_sums);
            if ((chunk + sub) % 2 == 1 || chunk + sub + 1 == p.chunks) {
#pragma unroll
              for (int e = 0; e < Traits::k_tiles * Traits::n_tiles * 4; ++e) {
                (&sums[0][0][0][0])[e] += (&short_sums[0][0][0][0])[e];
                (&short_sums[0][0][0][0])[e] = 0.0f;
              }
            }
          }
          x += p.x_chunk_bytes;
          weights += p.w_chunk_bytes;
        }
        stage = (stage + 1) % kStages;
      }

      const mma::Tile tile = mma::tile_at(p, index);
      mma::finish_all<Traits>(p, at, tile, sums);
      if constexpr (Traits::form == XForm::columns)
        mma::store_columns<Traits>(p, at, tile, sums, shared + p.out_offset, round);
      else
        mma::store_rows<Traits>(p, at, tile, sums, shared + p.out_offset, round);
    }
    ptx::wait_copies<0>();
    __syncthreads();  // the next group's weights overwrite these
  }
#endif
}

}  // namespace kronsparse::cuda
