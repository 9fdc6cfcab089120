// The path of x to the tensor cores' registers, and of results to y. tiles.cuh says how they lie.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/device/epilogue.cuh"
#include "cuda/device/ptx.cuh"
#include "cuda/small_batch/direct/tiles.cuh"
#include "cuda/small_batch/mma.cuh"

namespace kronsparse::cuda::direct {

/// Loads `count` elements one by one, for an address that allows no wider load.
template <int count>
__device__ __noinline__ uint4 load_elements(const std::uint16_t* from) {
  std::uint32_t words[4] = {};
#pragma unroll
  for (int e = 0; e < count; ++e) words[e / 2] |= std::uint32_t{from[e]} << 16 * (e % 2);
  return {words[0], words[1], words[2], words[3]};
}

/// Zeros that are loaded in place of terms that do not exist. To choose an address takes two instructions; a
/// branch around a load takes ten.
static __device__ uint4 no_terms;

/// Loads `count` elements (2, 4 or 8) into half as many words.
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

/// The x of one step: for each tile of samples, four (x as left operand: eight) terms of the lane's sample,
/// with block_j neighbouring j each.
template <Shape shape>
class StepOfX {
  static constexpr int block_j = shape.block_j, tiles = shape.tiles, loads = shape.loads();
  static constexpr int load_words = shape.load / 2;

 public:
  /// The addresses of the lane's loads.
  struct Places {
    const std::uint16_t* of[loads][tiles];

    /// `rows` are the offsets of the lane's samples. Terms that do not exist are loaded as zeros, because the
    /// memory there might hold NaN.
    __device__ void find(const Arguments& args, const std::uint16_t* x, const int (&rows)[tiles],
                         int first_l) {
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
        load_vector<shape.load, vectors>(loaded, places.of[v][tile]);
#pragma unroll
        for (int word = 0; word < load_words; ++word) words_[tile][v * load_words + word] = loaded[word];
      }
  }

  /// The pair of terms `number` (0 or 1; up to 3 if x is the left operand) of one j.
  [[nodiscard]] __device__ std::uint32_t pair(int tile, int j, int number) const {
    if constexpr (block_j == 1) return words_[tile][number];
    return pair_of_terms<block_j>(words_[tile], j, number);
  }

 private:
  std::uint32_t words_[tiles][loads * load_words];  // (tiles of samples, words of the lane)
};

/// The first output, j and sample of a warp.
struct RowPlace {
  int i, first_k, first_j, first_sample;
};

/// Bias, activation, rounding and the store to y.
template <class T, Shape shape>
class Store {
  static constexpr int block_j = shape.block_j, tiles = shape.tiles, outputs = shape.outputs;
  static constexpr bool x_is_left = shape.x_is_left();
  static constexpr int floats = shape.item_floats();

 public:
  __device__ Store(const Arguments& args, const RowPlace& place)
      : args_(args),
        k_(place.first_k + (x_is_left ? lane() % 4 * 2 : lane() / 4)),
        sample_(place.first_sample + (x_is_left ? lane() / 4 : lane() % 4 * 2)),
        feature_((std::int64_t{place.i} * args.b + k_) * args.d + place.first_j),
        y_(static_cast<T*>(args.y) + sample_ * args.y_sample + feature_) {}

  /// Stores an item. If x is the right operand, an item has the sums of all j of one output and one sample,
  /// or of as many samples as make up four sums. If x is the left operand, it has two outputs of two samples.
  template <bool plain>
  __device__ void item(const float (&sums)[floats], int number) const {
    constexpr int together = x_is_left ? 2 : block_j;
#pragma unroll
    for (int o = 0; o < floats / together; ++o) {
      float of_output[together];
#pragma unroll
      for (int e = 0; e < together; ++e) of_output[e] = sums[o * together + e];
      if constexpr (x_is_left) {
        if (o < tiles)
          store<plain>(of_output, number % outputs * 8, (number / outputs * 2 + o) * tile_samples);
      } else {
        // A lane has four sums of each j of a tile: of two samples, for outputs g and g + 8.
        constexpr int items_of_outputs = shape.items() / outputs;
        const int at = number % items_of_outputs * (floats / block_j) + o;
        store<plain>(of_output, number / items_of_outputs * 16 + at / 2 % 2 * 8,
                     at / 4 * tile_samples + at % 2);
      }
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Stores sums that are neighbours in y: neighbouring j of an output, or neighbouring outputs. `outputs_on`
  /// and `samples_on` count from the lane's first.
  template <bool plain, int count>
  __device__ void store(float (&sums)[count], int outputs_on, int samples_on) const {
    const int left = args_.b - k_ - outputs_on;
    const bool exists = left > 0 && sample_ + samples_on < args_.batch;
    const std::int64_t features_on = std::int64_t{outputs_on} * args_.d;
    if constexpr (!plain) {
      if (args_.bias != nullptr) {
#pragma unroll
        for (int e = 0; e < count; ++e)
          if (exists && (!x_is_left || e < left))
            sums[e] +=
                static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature_ + features_on + e));
      }
      activate_all(sums, args_.activation);
    }
    T rounded[count];
#pragma unroll
    for (int e = 0; e < count; ++e) rounded[e] = static_cast<T>(sums[e]);
    std::uint32_t words[count / 2];
    memcpy(words, rounded, sizeof(words));
    T* to = y_ + samples_on * args_.y_sample + features_on;
    if (plain || args_.y_vectors) {
      if (exists) ptx::store_words(to, words);
    } else {
#pragma unroll
      for (int e = 0; e < count; ++e)
        if (exists && (!x_is_left || e < left)) to[e] = rounded[e];
    }
  }

  const Arguments& args_;
  int k_, sample_;  ///< the lane's first
  std::int64_t feature_;
  T* y_;
};

}  // namespace kronsparse::cuda::direct
