// The order in which the tensor-core kernels read weights, and the kernel that puts them into it.
//
// A block works on one group: J neighbouring j of one i, and one tile of `tile_k`
// outputs. What it reads for 16 terms l is contiguous ("a chunk"): for each of
// the J products, for each 16 outputs, the 16x16 weights in the order of the
// tensor core's A fragments, so that every lane takes 16 bytes at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kronsparse::cuda {

/// Which outputs the two halves of a fragment's 16 rows are. split: rows g and
/// g + 8 are outputs g and g + 8. paired: they are 2g and 2g + 1, so that one
/// lane ends up with two neighbouring outputs.
enum class RowOrder { split, paired };

struct WeightOrder {
  std::int64_t a, b, c, d;  ///< of the product: b outputs, c terms
  std::int64_t j_groups;    ///< groups of neighbouring j
  std::int64_t k_tiles;
  std::int64_t chunks;  ///< of 16 terms
  int j_count;          ///< products in a group
  int tile_k;           ///< outputs in a tile, a multiple of 16
  bool wide;            ///< 4-byte elements: two fragments of 8 terms instead of one of 16
  RowOrder rows;

  [[nodiscard]] __host__ __device__ std::int64_t chunk_elements() const {
    return std::int64_t{j_count} * tile_k * 16;
  }
  [[nodiscard]] __host__ __device__ std::int64_t group_elements() const { return chunks * chunk_elements(); }
  [[nodiscard]] __host__ __device__ std::int64_t groups() const { return a * j_groups * k_tiles; }
  [[nodiscard]] __host__ __device__ std::int64_t elements() const { return groups() * group_elements(); }

  /// Where in its 16x16 tile, as the fragments hold it, weight (k, l) lies.
  /// Lane 4g + t holds outputs g and g + 8 of terms 4t to 4t + 3: any order of
  /// the terms will do as long as x is read in the same, and this one lets a
  /// lane read its four terms of x at once.
  [[nodiscard]] __host__ __device__ int place_in_tile(int k, int l) const {
    const int g = rows == RowOrder::split ? k % 8 : k / 2;
    const int upper = rows == RowOrder::split ? k / 8 : k % 2;
    const int t = l / 4;
    const int lane = 4 * g + t;
    const int pair = l % 4 / 2;
    const int odd = l % 2;
    if (wide) return pair * 128 + lane * 4 + odd * 2 + upper;
    return lane * 8 + pair * 4 + upper * 2 + odd;
  }

  [[nodiscard]] __host__ __device__ std::int64_t place(std::int64_t i, std::int64_t k, std::int64_t l,
                                                       std::int64_t j) const {
    const std::int64_t group = (i * j_groups + j / j_count) * k_tiles + k / tile_k;
    const int k_in_tile = static_cast<int>(k % tile_k);
    const std::int64_t tile = (j % j_count) * (tile_k / 16) + k_in_tile / 16;
    return group * group_elements() + l / 16 * chunk_elements() + tile * 256 +
           place_in_tile(k_in_tile % 16, static_cast<int>(l % 16));
  }
};

/// Weight (i,k,l,j) of the product in the (a,b,c,d) array of values.
struct ValueOrder {
  std::int64_t k_step, l_step, i_step;  ///< j's is 1

  [[nodiscard]] static ValueOrder of(const WeightOrder& order, bool transposed) {
    const std::int64_t row = order.d;
    return transposed ? ValueOrder{row, order.b * row, order.b * order.c * row}
                      : ValueOrder{order.c * row, row, order.b * order.c * row};
  }
};

#if defined(__CUDACC__)  // tests read the orders without it

/// One thread a packed element; what lies outside the pattern is zero.
template <class Element>
__global__ void pack_weights(const Element* values, Element* packed, WeightOrder order, ValueOrder from) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < order.elements();
       at += threads) {
    // The inverse of place(): coalesced writes, and reads that L2 puts together.
    const std::int64_t group = at / order.group_elements();
    const std::int64_t in_group = at % order.group_elements();
    const std::int64_t chunk = in_group / order.chunk_elements();
    const auto in_chunk = static_cast<int>(in_group % order.chunk_elements());
    const int tiles_k = order.tile_k / 16;
    const int tile = in_chunk / 256;
    const int in_tile = in_chunk % 256;
    int g, t, upper, pair, odd;
    if (order.wide) {
      pair = in_tile / 128;
      g = in_tile % 128 / 16;
      t = in_tile % 16 / 4;
      odd = in_tile % 4 / 2;
      upper = in_tile % 2;
    } else {
      g = in_tile / 32;
      t = in_tile % 32 / 8;
      pair = in_tile % 8 / 4;
      upper = in_tile % 4 / 2;
      odd = in_tile % 2;
    }
    const int k_in_16 = order.rows == RowOrder::split ? g + 8 * upper : 2 * g + upper;
    const std::int64_t k = group % order.k_tiles * order.tile_k + tile % tiles_k * 16 + k_in_16;
    const std::int64_t j = group / order.k_tiles % order.j_groups * order.j_count + tile / tiles_k;
    const std::int64_t i = group / order.k_tiles / order.j_groups;
    const std::int64_t l = chunk * 16 + 4 * t + 2 * pair + odd;
    const bool inside = k < order.b && l < order.c && j < order.d;
    packed[at] = inside ? values[i * from.i_step + k * from.k_step + l * from.l_step + j] : Element(0);
  }
}

#endif

}  // namespace kronsparse::cuda
