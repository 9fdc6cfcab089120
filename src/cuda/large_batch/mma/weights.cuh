// The order in which the kernel `mma` reads weights.
//
// A block works on one group: J neighbouring j of one i, and one tile of `tile_k` outputs. A chunk is the
// weights of a group for 16 terms l, and is contiguous: for each of the J products, for each 16 outputs,
// 16x16 weights in the order of the tensor core's A fragments. So every lane loads 16 bytes at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/implementation.hpp"
#include "cuda/packing/layout.hpp"

namespace kronsparse::cuda {

/// Which outputs are the two halves of a fragment's 16 rows. split: rows g and g + 8 are outputs g and g + 8.
/// paired: they are outputs 2g and 2g + 1, so that one lane ends up with two neighbouring outputs.
enum class RowOrder { split, paired };

struct WeightOrder {
  std::int64_t a, b, c, d;  ///< sizes of the product: b outputs, c terms
  std::int64_t j_groups;    ///< groups of neighbouring j
  std::int64_t k_tiles;
  std::int64_t chunks;  ///< chunks of 16 terms
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

  /// The place of weight (k, l) in its 16x16 tile, in fragment order. Lane 4g + t holds outputs g and g + 8
  /// of terms 4t to 4t + 3. Any order of the terms will do as long as x is read in the same order; this one
  /// lets a lane read its four terms of x at once.
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

/// The order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const WeightOrder& order) {
  PackLayout layout = PackLayout::of(problem);
  const PackStep upper{.k = order.rows == RowOrder::split ? 8 : 1};
  if (order.wide) {
    layout.bit(upper);
    layout.bit({.l = 1});
  } else {
    layout.bit({.l = 1});
    layout.bit(upper);
    layout.bit({.l = 2});
  }
  layout.lanes({.l = 4}, {.k = order.rows == RowOrder::split ? 1 : 2});
  if (order.wide) layout.digit(2, {.l = 2});
  layout.digit(order.tile_k / 16, {.k = 16});
  layout.digit(order.j_count, {.j = 1});
  layout.digit(order.chunks, {.l = 16});
  layout.digit(order.k_tiles, {.k = order.tile_k});
  layout.digit(order.j_groups, {.j = order.j_count});
  return layout;
}

/// The numbers that place() depends on.
[[nodiscard]] inline PackedOrder packed_order(const WeightOrder& order, bool transposed) {
  return {.family = "mma",
          .numbers = {transposed, order.j_groups, order.k_tiles, order.chunks, order.j_count, order.tile_k,
                      order.wide, static_cast<std::int64_t>(order.rows)},
          .bytes = static_cast<std::size_t>(order.elements()) * (order.wide ? 4 : 2)};
}

}  // namespace kronsparse::cuda
