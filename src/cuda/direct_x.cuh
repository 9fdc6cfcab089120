// The way of x to the tensor cores' registers, and of results to y. direct_tiles.cuh says how they lie.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/direct_tiles.cuh"
#include "cuda/epilogue.cuh"
#include "cuda/ptx.cuh"

namespace kronsparse::cuda::direct {

/// `count` elements at an address that allows nothing wider.
template <int count>
__device__ __noinline__ uint4 load_elements(const std::uint16_t* from) {
  std::uint32_t words[4] = {};
#pragma unroll
  for (int e = 0; e < count; ++e) words[e / 2] |= std::uint32_t{from[e]} << 16 * (e % 2);
  return {words[0], words[1], words[2], words[3]};
}

/// What is loaded in place of terms that do not exist: an address takes two instructions to choose, and a
/// branch around a load ten.
static __device__ uint4 no_terms;

/// `count` elements, 2, 4 or 8, into as many half-words.
template <int count, bool vectors>
__device__ inline void load_vector(std::uint32_t (&words)[count / 2], const std::uint16_t* from) {
  if constexpr (count == 8) {
    const uint4 v = vectors ? *reinterpret_cast<const uint4*>(from) : load_elements<count>(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if constexpr (count == 4) {
    if constexpr (vectors) {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
    } else {
      const uint4 v = load_elements<count>(from);
      words[0] = v.x, words[1] = v.y;
    }
  } else {
    words[0] = vectors ? *reinterpret_cast<const std::uint32_t*>(from) : load_elements<count>(from).x;
  }
}

/// x of one step: for each tile of samples four terms of the lane's sample, or eight.
template <int block_j, int load_elements_at_once, int tiles>
class StepOfX {
  static constexpr int loads = Shape{block_j, load_elements_at_once, tiles}.loads();
  static constexpr int load_words = load_elements_at_once / 2;

 public:
  /// Where the lane's loads are.
  struct Places {
    const std::uint16_t* of[loads][tiles];

    /// `rows` is where the lane's samples begin. Terms that do not exist are zeros: what is there in memory
    /// might be no number.
    __device__ void find(const Arguments& args, const std::uint16_t* x, const int (&rows)[tiles],
                         int first_l) {
      constexpr Shape shape{block_j, load_elements_at_once, tiles};
      const int lane_in_four = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
      for (int v = 0; v < loads; ++v) {
        const int l = first_l + shape.term_of(lane_in_four, v * shape.terms());
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile)
          of[v][tile] = l < args.c ? x + rows[tile] + l * (block_j == 1 ? 1 : args.d)
                                   : reinterpret_cast<const std::uint16_t*>(&no_terms);
      }
    }
    __device__ void settle() {
#pragma unroll
      for (int v = 0; v < loads; ++v)
#pragma unroll
        for (int tile = 0; tile < tiles; ++tile) ptx::settle(of[v][tile]);
    }
  };

  template <bool vectors>
  __device__ void load(const Places& places) {
#pragma unroll
    for (int v = 0; v < loads; ++v)
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t loaded[load_words];
        load_vector<load_elements_at_once, vectors>(loaded, places.of[v][tile]);
#pragma unroll
        for (int word = 0; word < load_words; ++word) words_[tile][v * load_words + word] = loaded[word];
      }
  }

  /// The lane's pair of terms, 0 or 1, or up to 3, of one j.
  [[nodiscard]] __device__ std::uint32_t pair(int tile, int j, int number) const {
    if constexpr (block_j == 1) return words_[tile][number];
    constexpr int term_words = block_j / 2;
    const std::uint32_t first = words_[tile][2 * number * term_words + j / 2],
                        second = words_[tile][(2 * number + 1) * term_words + j / 2];
    return __byte_perm(first, second, j % 2 == 0 ? 0x5410 : 0x7632);
  }

 private:
  std::uint32_t words_[tiles][loads * load_words];
};

/// The outputs and samples of a row's warp.
struct RowPlace {
  int i, first_k, first_j, first_sample;
};

/// Bias, activation, rounding and the way to y.
template <class T, int block_j, int tiles, int outputs>
class Store {
  static constexpr bool x_is_left = Shape{block_j, block_j, tiles, outputs}.x_is_left();
  static constexpr int floats = Shape{block_j, block_j, tiles, outputs}.item_floats();

 public:
  __device__ Store(const Arguments& args, const RowPlace& place) : args_(args), place_(place) {}

  /// An item: the sums of all j of one output of one sample, or of as many samples as make four of them; or
  /// of two outputs of two samples, where x is the left operand.
  __device__ void item(const float (&sums)[floats], int number) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int together = x_is_left ? 2 : block_j;
#pragma unroll
    for (int o = 0; o < floats / together; ++o) {
      float of_output[together];
#pragma unroll
      for (int e = 0; e < together; ++e) of_output[e] = sums[o * together + e];
      if constexpr (x_is_left) {
        if (o < tiles)
          store(of_output, place_.first_k + number % outputs * 8 + lane % 4 * 2,
                place_.first_sample + (number / outputs * 2 + o) * tile_samples + lane / 4);
      } else {
        // A lane has four sums of each j of a tile: of two samples for each of outputs g and g + 8.
        constexpr int items_of_outputs = Shape{block_j, block_j, tiles, outputs}.items() / outputs;
        const int at = number % items_of_outputs * (floats / block_j) + o;
        store(of_output, place_.first_k + number / items_of_outputs * 16 + at / 2 % 2 * 8 + lane / 4,
              place_.first_sample + at / 4 * tile_samples + lane % 4 * 2 + at % 2);
      }
    }
  }

 private:
  /// Neighbouring j of output k, or outputs from k on.
  template <int count>
  __device__ void store(float (&sums)[count], int k, int sample) const {
    const bool exists = k < args_.b && sample < args_.batch;
    const int existing = !exists ? 0 : x_is_left ? min(count, args_.b - k) : count;
    const std::int64_t feature = (std::int64_t{place_.i} * args_.b + k) * args_.d + place_.first_j;
    if (args_.bias != nullptr) {
#pragma unroll
      for (int e = 0; e < count; ++e)
        if (e < existing)
          sums[e] += static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature + e));
    }
    activate_all(sums, args_.activation);
    struct alignas(2 * count) Vector {
      T e[count];
    } vector;
#pragma unroll
    for (int e = 0; e < count; ++e) vector.e[e] = static_cast<T>(sums[e]);
    T* y = static_cast<T*>(args_.y) + sample * args_.y_sample + feature;
    if (args_.y_vectors) {
      if (exists) *reinterpret_cast<Vector*>(y) = vector;
    } else {
#pragma unroll
      for (int e = 0; e < count; ++e)
        if (e < existing) y[e] = vector.e[e];
    }
  }

  const Arguments& args_;
  const RowPlace& place_;
};

}  // namespace kronsparse::cuda::direct
