// The way of x to the tensor cores' registers, and of results to y. direct_tiles.cuh says how they lie.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/direct_tiles.cuh"
#include "cuda/epilogue.cuh"

namespace kronsparse::cuda::direct {

/// `count` elements at an address that allows nothing wider.
template <int count>
__device__ __noinline__ uint4 load_elements(const std::uint16_t* from) {
  std::uint32_t words[4] = {};
#pragma unroll
  for (int e = 0; e < count; ++e) words[e / 2] |= std::uint32_t{from[e]} << 16 * (e % 2);
  return {words[0], words[1], words[2], words[3]};
}

/// `count` elements, 2, 4 or 8, into as many half-words.
template <int count>
__device__ inline void load_vector(std::uint32_t (&words)[count / 2], const std::uint16_t* from) {
  if constexpr (count == 8) {
    const uint4 v = *reinterpret_cast<const uint4*>(from);
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  } else if constexpr (count == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    words[0] = v.x, words[1] = v.y;
  } else {
    words[0] = *reinterpret_cast<const std::uint32_t*>(from);
  }
}

/// x of one step: for each tile of samples four terms of the lane's sample.
template <int block_j, int load_elements_at_once, int tiles>
class StepOfX {
 public:
  /// `rows` is where the lane's samples begin. Terms that do not exist are zeros: what is there in memory
  /// might be no number.
  __device__ void load(const Arguments& args, const std::uint16_t* x, const int (&rows)[tiles], int first_l) {
    constexpr Shape shape{block_j, load_elements_at_once, tiles};
    const int lane_in_four = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int v = 0; v < shape.loads(); ++v) {
      const int l = first_l + shape.term_of(lane_in_four, v * shape.terms());
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        std::uint32_t loaded[load_words] = {};
        if (l < args.c) {
          const std::uint16_t* from = x + rows[tile] + l * args.d;
          if (args.x_vectors) {
            load_vector<load_elements_at_once>(loaded, from);
          } else {
            const uint4 words = load_elements<load_elements_at_once>(from);
            loaded[0] = words.x;
            if constexpr (load_words > 1) loaded[1] = words.y;
            if constexpr (load_words > 2) loaded[2] = words.z, loaded[3] = words.w;
          }
        }
#pragma unroll
        for (int word = 0; word < load_words; ++word) words_[tile][v * load_words + word] = loaded[word];
      }
    }
  }

  /// The lane's pair of terms, 0 or 1, of one j.
  [[nodiscard]] __device__ std::uint32_t pair(int tile, int j, int number) const {
    constexpr int term_words = block_j / 2;
    const std::uint32_t first = words_[tile][2 * number * term_words + j / 2],
                        second = words_[tile][(2 * number + 1) * term_words + j / 2];
    return __byte_perm(first, second, j % 2 == 0 ? 0x5410 : 0x7632);
  }

 private:
  static constexpr int load_words = load_elements_at_once / 2;
  std::uint32_t words_[tiles][2 * block_j];
};

/// The outputs and samples of a row's warp.
struct RowPlace {
  int i, first_k, first_j, first_sample;
};

/// Bias, activation, rounding and the way to y.
template <class T, int block_j, int tiles>
class Store {
 public:
  __device__ Store(const Arguments& args, const RowPlace& place) : args_(args), place_(place) {}

  /// An item: the sums of all j of one output of one sample, or of as many samples as make four of them.
  __device__ void item(const float (&sums)[Shape{block_j, block_j, tiles}.item_floats()], int number) const {
    constexpr int outputs = Shape{block_j, block_j, tiles}.item_floats() / block_j;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      // A lane has four sums of each j of a tile: of two samples for each of outputs g and g + 8.
      const int at = number * outputs + o;
      float of_output[block_j];
#pragma unroll
      for (int j = 0; j < block_j; ++j) of_output[j] = sums[o * block_j + j];
      output(of_output, place_.first_k + at / 2 % 2 * 8 + lane / 4,
             place_.first_sample + at / 4 * tile_samples + lane % 4 * 2 + at % 2);
    }
  }

 private:
  __device__ void output(float (&sums)[block_j], int k, int sample) const {
    if (k >= args_.b || sample >= args_.batch) return;
    const std::int64_t feature = (std::int64_t{place_.i} * args_.b + k) * args_.d + place_.first_j;
    if (args_.bias != nullptr) {
#pragma unroll
      for (int j = 0; j < block_j; ++j)
        sums[j] += static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature + j));
    }
    activate_all(sums, args_.activation);
    struct alignas(2 * block_j) Vector {
      T e[block_j];
    } vector;
#pragma unroll
    for (int j = 0; j < block_j; ++j) vector.e[j] = static_cast<T>(sums[j]);
    T* y = static_cast<T*>(args_.y) + sample * args_.y_sample + feature;
    if (args_.y_vectors) {
      *reinterpret_cast<Vector*>(y) = vector;
    } else {
#pragma unroll
      for (int j = 0; j < block_j; ++j) y[j] = vector.e[j];
    }
  }

  const Arguments& args_;
  const RowPlace& place_;
};

}  // namespace kronsparse::cuda::direct
