// The product for small batches with x that stays in registers: how it is cut up, and how it works.
//
// A block has 16 samples, and some tiles of 8 outputs with all of their j. Its 8 warps hold all of the
// samples' x, 128 KB in the registers of a multiprocessor, as the left operands of tensor cores; weights pass
// by, a tile of 64 KB after the other, as right operands. x comes once, whole rows, by the copy engine, and
// byte permutations make pairs of terms of one j of it, while the first tile is multiplied with what is
// there. Where it was in shared memory weights come next.
//
// Warps share out j, eight of them each, and what warps are left share out the terms: their sums meet in
// shared memory, where the tile's weights were, and threads store what is contiguous in y.
//
// Of a kernel that leaves multiprocessors free, the first blocks begin there long before the kernel ahead has
// ended: they ask for the weights of all blocks, so that these find them in L2.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/divisor.hpp"
#include "cuda/packed_weights.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::held {

inline constexpr int warps = 8, threads = warps * 32;
inline constexpr int tile_outputs = 8, tile_samples = 16, step_terms = 16;
inline constexpr int row_bytes = 128, row_elements = row_bytes / 2;  ///< of x in shared memory, swizzled
inline constexpr int max_elements = 4096;  ///< of x, that a sum's terms and all j are
inline constexpr int max_samples = 64;
/// Of x a warp asks for two boxes; those of the warps that share its x make all they need.
inline constexpr int warp_boxes = 2;
inline constexpr int box_rows = max_elements * 2 / row_bytes / warps / warp_boxes;
inline constexpr int box_bytes = box_rows * tile_samples * row_bytes;
/// Of a tile, and where they go: to a place of their own, or to that of a box.
inline constexpr int warp_weight_bytes = max_elements * tile_outputs * 2 / warps,
                     tile_weight_bytes = warps * warp_weight_bytes;
inline constexpr int slots = 1 + warp_boxes;
static_assert(box_bytes == warp_weight_bytes);

/// What a block computes; the compiler knows it.
struct Shape {
  int d;  ///< 4, 8 or 16

  [[nodiscard]] __host__ __device__ constexpr int block_j() const { return d < 8 ? d : 8; }
  [[nodiscard]] __host__ __device__ constexpr int j_warps() const { return d / block_j(); }
  [[nodiscard]] __host__ __device__ constexpr int l_warps() const { return warps / j_warps(); }
  /// Of a sum; what of them does not exist is zeros.
  [[nodiscard]] __host__ __device__ constexpr int terms() const { return max_elements / d; }
  /// Of a warp.
  [[nodiscard]] __host__ __device__ constexpr int steps() const { return terms() / l_warps() / step_terms; }

  /// Of the x that `j_warps` warps share.
  [[nodiscard]] __host__ __device__ constexpr int boxes() const { return warp_boxes * j_warps(); }
  [[nodiscard]] __host__ __device__ constexpr int box_steps() const { return steps() / boxes(); }
  /// Of a box: from one step to the next, from a sample to the eighth after it, and where the 16 bytes lie
  /// that are so many bytes from the beginning of a sample's rows.
  [[nodiscard]] __host__ __device__ constexpr int step_bytes() const {
    return step_terms * d * 2 * tile_samples;
  }
  static constexpr int eight_samples_bytes = 8 * row_bytes;
  [[nodiscard]] __host__ __device__ constexpr int place(int sample, int bytes) const {
    const int row = bytes / row_bytes, unit = bytes / 16 % 8;
    return (row * tile_samples + sample) * row_bytes + ((unit ^ (sample & 7)) << 4);
  }
  /// The sample of a row of the left operand, and of the eighth after it 8 more: the eight lanes of a load,
  /// which have two samples, read all banks.
  [[nodiscard]] __host__ __device__ constexpr int sample_of(int row) const {
    return d <= 8 ? row / 2 + row % 2 * 4 : row;
  }

  /// Results that a thread stores together, and how many of these units there are.
  [[nodiscard]] __host__ __device__ constexpr int unit() const { return d < 16 ? 4 : 8; }
  [[nodiscard]] __host__ __device__ constexpr int output_units() const { return d / unit(); }
  [[nodiscard]] __host__ __device__ constexpr int units() const {
    return tile_samples * tile_outputs * output_units();
  }
  /// Where four sums of a warp lie, neighbouring j of one output, in the place of its weights; in an order
  /// that spreads those which are written or read together over the banks. 8 samples further, and for d = 16
  /// some fours further, is as far from everywhere: held_store.cuh adds it to addresses.
  [[nodiscard]] __host__ __device__ constexpr int sum_place(int j_warp, int four, int sample,
                                                            int output) const {
    const int other_sample = d <= 8 ? sample / 4 % 2 : sample % 2;
    if (d == 4) return (sample * tile_outputs + (output ^ other_sample)) * 16;
    if (d == 16)
      return ((four * tile_samples + sample) * tile_outputs + (output ^ (4 * j_warp) ^ other_sample)) * 16;
    const int at = output * 2 + four;
    return (sample * tile_outputs * 2 + (at ^ (at / 8) ^ (2 * other_sample))) * 16;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

inline constexpr std::array shapes{Shape{4}, Shape{8}, Shape{16}};

/// How a problem is cut into blocks; fixed when the plan is made.
struct Cut {
  Shape shape{4};
  int tiles = 1;  ///< of a block
  int k_blocks = 1;
  int sample_blocks = 1;
  /// The first so many blocks ask for all blocks' weights of so many tiles.
  int early_blocks = 0, early_tiles = 0;
};

/// Where things lie in a block's shared memory, in bytes. Slots are first, [slot][warp].
struct SharedLayout {
  int barriers;  ///< of the first tile's weights; [warp]: of each slot of later ones, of each box
  int total;
};
[[nodiscard]] __host__ __device__ constexpr SharedLayout shared_layout() {
  SharedLayout s{};
  s.barriers = slots * tile_weight_bytes;
  s.total = s.barriers + 8 + warps * (slots + warp_boxes) * 8;
  return s;
}
[[nodiscard]] __host__ __device__ inline SharedLayout shared_layout(const Cut& /*cut*/) {
  return shared_layout();
}
[[nodiscard]] __host__ __device__ constexpr int barrier_place(int warp, int number) {
  return shared_layout().barriers + 8 + (warp * (slots + warp_boxes) + number) * 8;
}
[[nodiscard]] __host__ __device__ constexpr int slot_place(int warp, int slot) {
  return slot * tile_weight_bytes + warp * warp_weight_bytes;
}
[[nodiscard]] __host__ __device__ constexpr int box_place(int warp, int box) {
  return slot_place(warp, 1 + box);
}

[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t index) {
  Digits digits(index);
  const Shape& shape = cut.shape;
  // The right operands of m16n8k16 for two j: two pairs of terms each.
  const auto in_pair = static_cast<int>(digits.take(2)), pair = static_cast<int>(digits.take(2));
  const std::int64_t odd_j = digits.take(2);
  const auto lane = static_cast<int>(digits.take(32));
  const std::int64_t two_j = digits.take(shape.block_j() / 2), step = digits.take(shape.steps()),
                     j_warp = digits.take(shape.j_warps()), l_warp = digits.take(shape.l_warps()),
                     tile = digits.take(cut.tiles), k_block = digits.take(cut.k_blocks);
  return {.i = digits.rest(),
          .k = (k_block * cut.tiles + tile) * tile_outputs + lane / 4,
          .l = (l_warp * shape.steps() + step) * step_terms +
               term_of(8 / shape.block_j(), lane % 4, pair * 2 + in_pair),
          .j = j_warp * shape.block_j() + two_j * 2 + odd_j};
}

/// The same as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const Shape& shape = cut.shape;
  const int load_terms = 8 / shape.block_j();
  layout.bit({.l = term_of(load_terms, 0, 1)});
  layout.bit({.l = term_of(load_terms, 0, 2)});
  layout.bit({.j = 1});
  layout.lanes({.l = load_terms}, {.k = 1});
  layout.digit(shape.block_j() / 2, {.j = 2});
  layout.digit(shape.steps(), {.l = step_terms});
  layout.digit(shape.j_warps(), {.j = shape.block_j()});
  layout.digit(shape.l_warps(), {.l = std::int64_t{shape.steps()} * step_terms});
  layout.digit(std::int64_t{cut.tiles} * cut.k_blocks, {.k = tile_outputs});
  return layout;
}

/// The numbers of a cut that packed_place() depends on: tiles are numbered through all blocks.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  return {.family = "held", .numbers = {cut.shape.d, std::int64_t{cut.tiles} * cut.k_blocks}};
}
/// Makes it a cut of this order; nothing else of it counts.
inline void take_order(Cut& cut, const PackedOrder& order) {
  cut.shape = {static_cast<int>(order.numbers[0])};
  cut.k_blocks = static_cast<int>(order.numbers[1]);
}

/// Everything one launch needs. What a block must know before it asks for its first weights lies together:
/// every line of arguments takes time to come.
struct Arguments {
  CUtensorMap x_map;  ///< of x, where `boxes` says so
  const std::byte* weights;
  Divisor blocks_of_samples, k_blocks;
  Cut cut;
  bool just_packed = false;  ///< the kernel ahead may write the weights: wait for it first
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  bool boxes;        ///< the copy engine takes x; else threads copy it
  bool y_vectors;    ///< whether y is aligned: else elements are stored
  int batch;
  Activation activation;
  int b, x_rows;    ///< rows of x that exist, of each sample
  int warp_pieces;  ///< of one tile's weights of all blocks, those of a warp
  std::int64_t x_sample, y_sample;
};
static_assert(sizeof(Cut) + 2 * sizeof(Divisor) + sizeof(void*) + sizeof(bool) <= 64);

}  // namespace kronsparse::cuda::held
