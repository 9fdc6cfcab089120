// The cuts of `x-stays-mma` into blocks, warps and tiles, and the order of weights that follows.
#pragma once

#include <cstdint>

#include "cuda/packing/packed_place.cuh"
#include "cuda/small_batch/x_stays/x_in_shared.cuh"

namespace kronsparse::cuda::x_stays_mma {

inline constexpr int max_warps = 8;         ///< warps of a block
inline constexpr int tile_bytes = 32 * 16;  ///< one load of 16 bytes for each lane

/// A tile of weights, (tile_k outputs, tile_l terms), and which of them a lane's 16 bytes hold.
template <class T>
struct Tile {
  static constexpr bool tensor_core = sizeof(T) == 2;
  static constexpr int vector = 16 / sizeof(T);  ///< elements of a 16-byte access
  static constexpr int tile_k = tensor_core ? 16 : 32;
  static constexpr int tile_l = tensor_core ? 16 : 4;
  /// Floats from one sample's sums to the next in shared memory. The 4 extra ones let the lanes of an
  /// accumulator fragment write to 32 different banks.
  static constexpr int sample_stride = tile_k + 4;
  static_assert(tile_k * tile_l * sizeof(T) == tile_bytes);
  static_assert(tile_l % vector == 0);

  struct Place {
    int k, l;
  };
  /// The place in the tile of element `e` of `lane`. Half types: the A fragment of m16n8k16.
  __host__ __device__ static constexpr Place place(int lane, int e) {
    if constexpr (tensor_core)
      return {lane / 4 + 8 * (e / 2 % 2), lane % 4 * 2 + 8 * (e / 4) + e % 2};
    else
      return {lane, e};
  }
};

/// How a problem is cut into blocks, warps and tiles; fixed when the plan is made.
///
/// A panel shares x: one i and `j_group` neighbouring j. Its rows of tiles are numbered with j fastest, row =
/// (k tile)·j_group + j. A block takes `groups` times `rows_per_group` of them; `warps_per_row` warps split
/// the l of each.
struct Cut {
  int n_tiles = 1;  ///< tiles of 8 samples that a block multiplies: 1, 2, 4 or 8
  int j_group = 1;
  int cluster = 1;         ///< blocks that split l and add up through distributed shared memory
  int warps_per_row = 1;   ///< warps of a block that split l
  int rows_per_group = 1;  ///< a power of two
  int groups = 1;          ///< groups that a block works through; x is staged once
  int segments = 1;        ///< parts of a block's l that are staged one after the other
  int tiles_per_warp = 1;  ///< tiles of one row and segment
  int k_blocks = 1;        ///< blocks that share a panel's rows
  int j_groups = 1;
  int run = 1;          ///< neighbouring l in the 16 bytes of x that a thread takes at once
  bool vector = false;  ///< whether x can be read 16 bytes at a time, if it is aligned

  [[nodiscard]] __host__ __device__ int warps() const { return warps_per_row * rows_per_group; }
  /// Partial sums of an output.
  [[nodiscard]] __host__ __device__ int parts() const { return warps_per_row * cluster; }
  /// Samples whose outputs one block of a cluster adds up and stores.
  [[nodiscard]] __host__ __device__ int share() const { return n_tiles * 8 / cluster; }
  /// Terms of a segment, a multiple of the 8 or 4 of a 16-byte vector.
  template <class T>
  [[nodiscard]] __host__ __device__ int positions() const {
    return warps_per_row * tiles_per_warp * Tile<T>::tile_l;
  }
  template <class T>
  [[nodiscard]] __host__ __device__ TermOrder<T> order() const {
    return {.positions = positions<T>(), .run = run};
  }
};

/// The weight that is element `e` of a 16-byte vector of the packed ones. Their order is that in which
/// blocks, groups, warps and lanes read them.
template <class T>
[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t vector,
                                                                  int e) {
  Digits digits(vector);
  const auto lane = static_cast<int>(digits.take(32));
  const std::int64_t tile = digits.take(cut.tiles_per_warp), segment = digits.take(cut.segments),
                     warp = digits.take(cut.warps()), group = digits.take(cut.groups),
                     rank = digits.take(cut.cluster), k_block = digits.take(cut.k_blocks),
                     j_block = digits.take(cut.j_groups);
  const std::int64_t row = (k_block * cut.groups + group) * cut.rows_per_group + warp / cut.warps_per_row;
  const int first_position =
      static_cast<int>((warp % cut.warps_per_row) * cut.tiles_per_warp + tile) * Tile<T>::tile_l;
  const auto place = Tile<T>::place(lane, e);
  return {.i = digits.rest(),
          .k = row / cut.j_group * Tile<T>::tile_k + place.k,
          .l = (rank * cut.segments + segment) * cut.positions<T>() +
               cut.order<T>().l_at(first_position + place.l),
          .j = j_block * cut.j_group + row % cut.j_group};
}

/// The same order as digits.
template <class T>
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const TermOrder<T> order = cut.order<T>();
  const std::int64_t warp_terms = order.l_at(cut.tiles_per_warp * Tile<T>::tile_l),
                     positions = order.positions, block_terms = cut.segments * positions,
                     block_rows = static_cast<std::int64_t>(cut.groups) * cut.rows_per_group;
  if constexpr (Tile<T>::tensor_core) {
    layout.bit({.l = order.l_at(1)});
    layout.bit({.k = 8});
    layout.bit({.l = order.l_at(8)});
    layout.digit(2, {.l = order.l_at(2)});
    layout.digit(2, {.l = order.l_at(4)});
    layout.digit(8, {.k = 1});
  } else {
    layout.bit({.l = order.l_at(1)});
    layout.bit({.l = order.l_at(2)});
    layout.digit(Tile<T>::tile_k, {.k = 1});
  }
  layout.digit(cut.tiles_per_warp, {.l = order.l_at(Tile<T>::tile_l)});
  layout.digit(cut.segments, {.l = positions});
  layout.digit(cut.warps_per_row, {.l = warp_terms});
  layout.digit(cut.rows_per_group, {.row = 1});
  layout.digit(cut.groups, {.row = cut.rows_per_group});
  layout.digit(cut.cluster, {.l = block_terms});
  layout.digit(cut.k_blocks, {.row = block_rows});
  layout.digit(cut.j_groups, {.j = cut.j_group});
  layout.rows_of_k = cut.j_group;
  layout.of_quotient = {.k = Tile<T>::tile_k};
  layout.of_rest = {.j = 1};
  return layout;
}

/// The numbers that packed_place() depends on. Tiles are numbered through all warps that split l, unless they
/// are staged in segments. Rows are numbered through a block, and through all blocks unless these split l.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  const bool through_warps = cut.segments == 1, through_all = cut.cluster == 1;
  const std::int64_t block_rows = static_cast<std::int64_t>(cut.rows_per_group) * cut.groups;
  return {.family = "x-stays-mma",
          .numbers = {through_warps ? cut.tiles_per_warp * cut.warps_per_row : cut.tiles_per_warp,
                      cut.segments, through_warps ? 1 : cut.warps_per_row, through_all ? 1 : block_rows,
                      cut.cluster, through_all ? block_rows * cut.k_blocks : cut.k_blocks, cut.j_groups,
                      cut.j_group, cut.run}};
}
/// Gives the cut this order. Its other numbers do not count.
inline void take_order(Cut& cut, const PackedOrder& order) {
  take_numbers(order, {&cut.tiles_per_warp, &cut.segments, &cut.warps_per_row, &cut.rows_per_group,
                       &cut.cluster, &cut.k_blocks, &cut.j_groups, &cut.j_group, &cut.run});
}

}  // namespace kronsparse::cuda::x_stays_mma
