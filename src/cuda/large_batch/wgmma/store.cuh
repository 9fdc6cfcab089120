// The end of the kernel `wgmma`: bias and activation, then results in whole rows through shared memory.
#pragma once

#include "cuda/large_batch/wgmma/loads.cuh"

namespace kronsparse::cuda {

/// Every constant of a kernel, from its arithmetic and shape.
template <Arithmetic A, WgmmaShape S>
struct WgmmaTraits {
  static constexpr Arithmetic arithmetic = A;
  static constexpr XForm form = S.form;
  static constexpr bool half = A == Arithmetic::f16 || A == Arithmetic::bf16;
  static constexpr bool compensated = A == Arithmetic::tf32x3;
  static constexpr int element_bytes = half ? 2 : 4;
  static constexpr int products = S.products;
  static constexpr bool split_words = S.split_words;
  static constexpr int n = S.n;
  static constexpr int sub_chunks = S.sub_chunks;
  static constexpr int word_products = half && S.form == XForm::planes ? 2 : 1;
  static constexpr int words = products / word_products;  ///< words of one warpgroup
  static constexpr XTile x = x_tile(S, element_bytes);
  static constexpr int tile_n = x.samples;

  static_assert(products % word_products == 0);
  static_assert(S.form == XForm::planes || !split_words);
  static_assert(S.form == XForm::planes || S.form == XForm::lines || products == 1);
  static_assert(S.form != XForm::rows || half, "a float with d = 1 is a plane of its own");
  static_assert(products * n / 2 * (compensated ? 2 : 1) <= 128, "accumulators in registers");
};

namespace wgmma {

template <class Traits>
using Sums = float[Traits::products][Traits::n / 2];  // (j, sums of a lane)

/// A lane's place in the block's tile. It holds results of samples `row` and `row` + 8, for outputs 8q + 2t
/// and 8q + 2t + 1 of every q.
struct LanePlace {
  int warpgroup;  ///< 0 or 1, among the consumers
  int warp;       ///< in the warpgroup
  int g, t;       ///< lane = 4g + t
  int warp_row;   ///< the warp's first sample in the tile
  int row;        ///< the lane's first sample
  int word;       ///< the warpgroup's first word of j
};

template <class Traits>
__device__ inline LanePlace lane_place() {
  const int thread = static_cast<int>(threadIdx.x) - kProducerThreads;
  LanePlace at{};
  at.warpgroup = thread / 128;
  at.warp = thread % 128 / 32;
  at.g = thread % 32 / 4;
  at.t = thread % 4;
  at.warp_row = at.warp * 16 + (Traits::split_words ? 0 : at.warpgroup * 64);
  at.row = at.warp_row + at.g;
  at.word = Traits::split_words ? at.warpgroup * Traits::words : 0;
  return at;
}

/// The sum of one result by FMA alone, for results whose split gave no number.
__device__ __noinline__ inline float sum_again(const WgmmaArguments& p, std::int64_t i, std::int64_t k,
                                               std::int64_t j, std::int64_t n) {
  const auto* x = reinterpret_cast<const float*>(p.x) + n * p.x_sample + (i * p.c * p.d + j) * p.x_feature;
  const auto* weights = reinterpret_cast<const float*>(p.weights);
  float sum = 0;
  for (std::int64_t l = 0; l < p.c; ++l) {
    const std::int64_t place = p.order.place(i, k, l, j);
    sum = fmaf(weights[place] + weights[place + p.order.tile_k * 16], x[l * p.d * p.x_feature], sum);
  }
  return sum;
}

/// Bias, activation, and the sums whose split gave no number. Most launches have nothing to do here.
template <class Traits>
__device__ inline void finish(const WgmmaArguments& p, const LanePlace& at, const Tile& tile,
                              Sums<Traits>& sums) {
  bool needed = p.bias != nullptr || p.activation != Activation::none;
  if constexpr (Traits::compensated) {
    // Zero times a sum is not zero only for an infinity or a NaN.
    float zeros = 0.0f;
#pragma unroll
    for (int j = 0; j < Traits::products; ++j)
#pragma unroll
      for (int e = 0; e < Traits::n / 2; ++e) zeros = fmaf(sums[j][e], 0.0f, zeros);
    needed = needed || zeros != 0.0f;
  }
  if (!needed) return;
#pragma unroll
  for (int product = 0; product < Traits::products; ++product)
#pragma unroll
    for (int e = 0; e < Traits::n / 2; ++e) {
      const std::int64_t k = tile.k0 + e / 4 * 8 + 2 * at.t + e % 2;
      const std::int64_t n = tile.n0 + at.row + e % 4 / 2 * 8;
      const std::int64_t j = tile.j0 + at.word * Traits::word_products + product;
      if (k >= p.b || j >= p.d || n >= p.batch) continue;
      float& sum = sums[product][e];
      if constexpr (Traits::compensated)
        if (!isfinite(sum)) sum = sum_again(p, tile.i, k, j, n);
      if (p.bias != nullptr) sum += mma::load_element<Traits>(p.bias, (tile.i * p.b + k) * p.d + j);
      if (p.activation != Activation::none) sum = mma::activated(sum, p.activation);
    }
}

/// Word `word` of one (sample, output), as it lies in y.
template <class Traits>
__device__ inline std::uint32_t word_of(const Sums<Traits>& sums, int word, int e) {
  if constexpr (Traits::word_products == 2)
    return mma::pack_pair<Traits>(sums[2 * word][e], sums[2 * word + 1][e]);
  else
    return __float_as_uint(sums[word][e]);
}

/// Puts a lane's results of one sample (its first or its second) at their places in the sample's row.
template <class Traits>
__device__ inline void stage_row(const LanePlace& at, const Sums<Traits>& sums, int lower,
                                 std::uint32_t row) {
#pragma unroll
  for (int q = 0; q < Traits::n / 8; ++q) {
    const int e = 4 * q + 2 * lower;
    if constexpr (Traits::form == XForm::rows) {
      ptx::store_shared_4(row + (4 * q + at.t) * 4, mma::pack_pair<Traits>(sums[0][e], sums[0][e + 1]));
      continue;
    }
    if constexpr (Traits::form == XForm::lines) {  // all j of two outputs
      constexpr int d = Traits::products;
      const auto element = [&](int index) { return sums[index % d][e + index / d]; };
#pragma unroll
      for (int word = 0; word < d; ++word)
        ptx::store_shared_4(row + (8 * q + 2 * at.t) * (2 * d) + word * 4,
                            mma::pack_pair<Traits>(element(2 * word), element(2 * word + 1)));
      continue;
    }
    const std::uint32_t to = row + ((8 * q + 2 * at.t) * Traits::x.words + at.word) * 4;
    if constexpr (Traits::x.words == 1) {  // two outputs are neighbours
      ptx::store_shared_8(to, word_of<Traits>(sums, 0, e), word_of<Traits>(sums, 0, e + 1));
    } else if constexpr (Traits::x.words == 2) {
      ptx::store_shared_16(to, word_of<Traits>(sums, 0, e), word_of<Traits>(sums, 1, e),
                           word_of<Traits>(sums, 0, e + 1), word_of<Traits>(sums, 1, e + 1));
    } else {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const std::uint32_t word_to = to + odd * Traits::x.words * 4;
        if constexpr (Traits::words == 4)
          ptx::store_shared_16(word_to, word_of<Traits>(sums, 0, e + odd), word_of<Traits>(sums, 1, e + odd),
                               word_of<Traits>(sums, 2, e + odd), word_of<Traits>(sums, 3, e + odd));
        else if constexpr (Traits::words == 2)
          ptx::store_shared_8(word_to, word_of<Traits>(sums, 0, e + odd), word_of<Traits>(sums, 1, e + odd));
        else
#pragma unroll
          for (int word = 0; word < Traits::words; ++word)
            ptx::store_shared_4(word_to + word * 4, word_of<Traits>(sums, word, e + odd));
      }
    }
  }
}

/// Stores vectors of some j of each output from a staged row; several loads are under way at a time.
template <class Traits>
__device__ inline void store_runs(const WgmmaArguments& p, std::byte* to, std::uint32_t from, int outputs,
                                  int lane) {
  constexpr int vectors = Traits::x.words % 4 == 0 ? Traits::x.words / 4 : 1;
  constexpr int together = (Traits::n * vectors + 31) / 32;
  uint4 loaded[together];
#pragma unroll
  for (int index = 0; index < together; ++index)
    if (index * 32 + lane < outputs * vectors)
      loaded[index] = ptx::load_shared_16(from + (index * 32 + lane) * 16);
#pragma unroll
  for (int index = 0; index < together; ++index) {
    const int vector = index * 32 + lane;
    if (vector < outputs * vectors)
      *reinterpret_cast<uint4*>(to + vector / vectors * (p.d * Traits::element_bytes) +
                                vector % vectors * 16) = loaded[index];
  }
}

/// batch_first: puts the 16 samples of a warp into shared memory as rows. (With split_words two warps hold
/// different j of the same samples and share the rows.) Rows that are contiguous in y leave by the copy
/// engine while the next tile is computed.
template <class Traits>
__device__ inline void store_rows(const WgmmaArguments& p, const LanePlace& at, const Tile& tile,
                                  const Sums<Traits>& sums, std::uint32_t out) {
  constexpr int rows = Traits::split_words ? 8 : 16;  // rows that this warp stores
  const int first_row = Traits::split_words ? at.warpgroup * 8 : 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int buffer_index = Traits::split_words ? at.warp : at.warpgroup * 4 + at.warp;
  const std::uint32_t buffer = out + buffer_index * 16 * p.out_pitch_bytes;
  const auto meet = [&] {
    if constexpr (Traits::split_words)
      ptx::barrier_of(1 + at.warp, 64);
    else
      __syncwarp();
  };
  const int left_k = static_cast<int>(min(p.b - tile.k0, std::int64_t{Traits::n}));
  // With all j in the block, a sample's results are contiguous.
  constexpr bool whole = Traits::form == XForm::rows || Traits::form == XForm::lines;
  const std::int64_t d_words = (p.d + Traits::word_products - 1) / Traits::word_products;
  const bool contiguous = whole || (Traits::x.words == d_words && p.d % Traits::word_products == 0);
  const int bytes = left_k * (whole ? Traits::products * 2 : Traits::x.words * 4);

  ptx::wait_bulk_stores();
  meet();  // the rows of the previous tile have left
  stage_row<Traits>(at, sums, 0, buffer + at.g * p.out_pitch_bytes);
  stage_row<Traits>(at, sums, 1, buffer + (at.g + 8) * p.out_pitch_bytes);
  ptx::fence_for_bulk();
  meet();

  std::byte* y =
      p.y + ((tile.n0 + at.warp_row + first_row) * p.y_sample + (tile.i * p.b + tile.k0) * p.d + tile.j0) *
                Traits::element_bytes;
  const std::int64_t y_step = p.y_sample * Traits::element_bytes;
  const int left_rows = static_cast<int>(
      min(max(p.batch - tile.n0 - at.warp_row - first_row, std::int64_t{0}), std::int64_t{rows}));
  const std::uint32_t from = buffer + first_row * p.out_pitch_bytes;
  if (contiguous && p.y_store == 16 && bytes % 16 == 0) {
    if (lane < left_rows) {
      ptx::store_bulk(y + lane * y_step, from + lane * p.out_pitch_bytes, bytes);
      ptx::commit_bulk_stores();
    }
  } else if (!contiguous && Traits::x.words % 4 == 0 && p.y_store == 16 &&
             tile.j0 + static_cast<std::int64_t>(p.order.j_count) <= p.d) {
#pragma unroll 2
    for (int row = 0; row < left_rows; ++row)
      store_runs<Traits>(p, y + row * y_step, from + row * p.out_pitch_bytes, left_k, lane);
  } else {
    for (int row = 0; row < left_rows; ++row) {
      const std::uint32_t row_from = from + row * p.out_pitch_bytes;
      std::byte* to = y + row * y_step;
      if (contiguous) {
        for (int byte = lane * 4; byte < bytes; byte += 128)
          mma::store_word<Traits>(p.y_store, to + byte, ptx::load_shared_4(row_from + byte),
                                  byte + 4 <= bytes);
      } else {
        for (int word = lane; word < left_k * Traits::x.words; word += 32) {
          const std::int64_t j = tile.j0 + word % Traits::x.words * Traits::word_products;
          if (j < p.d)
            mma::store_word<Traits>(p.y_store,
                                    to + (word / Traits::x.words * p.d + j - tile.j0) * Traits::element_bytes,
                                    ptx::load_shared_4(row_from + word * 4), j + 1 < p.d);
        }
      }
    }
  }
}

/// batch_last: stores 32 outputs of a warpgroup at a time, each as a row of its 64 samples.
template <class Traits>
__device__ inline void store_columns(const WgmmaArguments& p, const LanePlace& at, const Tile& tile,
                                     const Sums<Traits>& sums, std::uint32_t out) {
  constexpr int round_k = 32;
  constexpr int row_bytes = 64 * Traits::element_bytes;
  constexpr int pitch = row_bytes + 16;  // 16 extra bytes put the rows of one instruction into different
                                         // banks
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int thread = at.warp * 32 + lane;
  const std::uint32_t buffer = out + at.warpgroup * (round_k * pitch);
  const std::int64_t n0 = tile.n0 + at.warpgroup * 64;
  const int left = static_cast<int>(max(min(p.batch - n0, std::int64_t{64}), std::int64_t{0}));

#pragma unroll
  for (int k0 = 0; k0 < Traits::n; k0 += round_k) {
    if constexpr (Traits::half) {
#pragma unroll
      for (int q = 0; q < round_k / 8; q += 2) {
        const float* s = &sums[0][(k0 / 8 + q) * 4];
        const std::uint32_t to =
            buffer + ((q + lane / 16) * 8 + lane % 8) * pitch + (at.warp * 16 + lane / 8 % 2 * 8) * 2;
        ptx::store_matrices_transposed(to, mma::pack_pair<Traits>(s[0], s[1]),
                                       mma::pack_pair<Traits>(s[2], s[3]), mma::pack_pair<Traits>(s[4], s[5]),
                                       mma::pack_pair<Traits>(s[6], s[7]));
      }
    } else {
#pragma unroll
      for (int e = 0; e < round_k / 2; ++e) {
        const int k = e / 4 * 8 + 2 * at.t + e % 2;
        const int sample = at.warp * 16 + at.g + e % 4 / 2 * 8;
        ptx::store_shared_4(buffer + k * pitch + sample * 4, __float_as_uint(sums[0][k0 / 2 + e]));
      }
    }
    ptx::barrier_of(1 + at.warpgroup, 128);
    constexpr int vectors = row_bytes / 16;
    constexpr int per_vector = 16 / Traits::element_bytes;
#pragma unroll
    for (int index = 0; index < round_k * vectors / 128; ++index) {
      const int row = (index * 128 + thread) / vectors;
      const int vector = thread % vectors;
      const std::int64_t k = tile.k0 + k0 + row;
      const int samples = min(left - vector * per_vector, per_vector);
      if (k >= p.b || samples <= 0) continue;
      const std::uint32_t from = buffer + row * pitch + vector * 16;
      std::byte* to = p.y + (((tile.i * p.b + k) * p.d + tile.j0) * p.y_feature + n0 + vector * per_vector) *
                                Traits::element_bytes;
      if (p.y_store == 16 && samples == per_vector) {
        *reinterpret_cast<uint4*>(to) = ptx::load_shared_16(from);
      } else {
        constexpr int per_word = 4 / Traits::element_bytes;
        for (int word = 0; word * per_word < samples; ++word)
          mma::store_word<Traits>(p.y_store, to + word * 4, ptx::load_shared_4(from + word * 4),
                                  word * per_word + 1 < samples);
      }
    }
    ptx::barrier_of(1 + at.warpgroup, 128);
  }
}

template <class Traits>
__device__ inline void store(const WgmmaArguments& p, const LanePlace& at, const Tile& tile,
                             const Sums<Traits>& sums, std::uint32_t out) {
  if constexpr (Traits::form == XForm::columns)
    store_columns<Traits>(p, at, tile, sums, out);
  else
    store_rows<Traits>(p, at, tile, sums, out);
}

}  // namespace wgmma
}  // namespace kronsparse::cuda
