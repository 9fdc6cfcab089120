// The small-batch kernel `direct`: shapes, cuts and the order of weights.
//
// It is for batches up to 64 of half types in batch_first, with even d or d = 1. x needs no shared memory: it
// goes straight from memory to the registers that tensor cores read. A lane of the right operand (16 terms x
// 8 samples) holds four terms of one sample. It loads each of them with up to 8 neighbouring j, as they lie.
// Byte permutations then pair the terms of one j: one load makes the operands of up to 8 products. Which four
// terms a lane holds is free: it takes those that make a warp's loads contiguous, and the weights are packed
// in the same order. The packed weights are the left operand. The copy engine brings them to shared memory
// before the earlier kernel has ended. A lane ends up with all of these j of an output and stores them
// together.
//
// For d = 1, pairs of terms are neighbours in memory. Then x is the left operand and 8 outputs are the right
// one: blocks can be small, and a multiprocessor takes in the next kernel's weights beside them.
//
// A block loops over its part of l only. A problem whose part does not fit into shared memory needs more
// blocks or another kernel.
//
// Weights that may change are not packed for a single product. Shapes that are `as_given` load them like x,
// as they lie in the caller's array, and make operands of them in registers (weights.cuh).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/host/divisor.hpp"
#include "cuda/packing/packed_place.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::direct {

inline constexpr int tile_samples = 8;
inline constexpr int operand_bytes = 32 * 16;  ///< weights of one j and one step: 16 bytes for each lane
inline constexpr int max_samples = 64;

/// The work of a warp in one step, known to the compiler.
struct Shape {
  int block_j;  ///< neighbouring j: 1, 2, 4 or 8
  int load;     ///< elements of x in one load: 8, of several terms if these have all of d; or those of one
                ///< term; 4 if d = 1
  int tiles;    ///< tiles of 8 samples each
  int outputs = 1;        ///< tiles of outputs that share x
  int at_once = 2;        ///< steps whose x is in registers or on its way there
  bool as_given = false;  ///< weights are not packed and are loaded like x

  /// Whether x is the left operand, of two tiles of samples. A step then has two products.
  [[nodiscard]] __host__ __device__ constexpr bool x_is_left() const { return block_j == 1; }
  /// Outputs of a row, and terms of a step.
  [[nodiscard]] __host__ __device__ constexpr int tile_k() const { return outputs * (x_is_left() ? 8 : 16); }
  [[nodiscard]] __host__ __device__ constexpr int step_l() const { return x_is_left() ? 32 : 16; }

  /// Terms of one load, and loads for the terms of a step that a lane holds.
  [[nodiscard]] __host__ __device__ constexpr int terms() const { return load / block_j; }
  [[nodiscard]] __host__ __device__ constexpr int loads() const { return step_l() / 4 / terms(); }
  /// The term of a step at place `at` (0 to 3, or 7) of a lane.
  [[nodiscard]] __host__ __device__ constexpr int term_of(int lane_in_four, int at) const {
    return cuda::term_of(terms(), lane_in_four, at);
  }
  /// Outputs of a tile whose weights a lane loads: g, or g and g + 8.
  [[nodiscard]] __host__ __device__ constexpr int lane_rows() const { return x_is_left() ? 1 : 2; }
  /// Registers for x, sums and weights as given; some 40 others come on top.
  [[nodiscard]] __host__ __device__ constexpr int registers() const {
    const int weights = as_given ? at_once * outputs * lane_rows() * loads() * load / 2 : 0;
    return weights + (x_is_left() ? 4 * at_once * tiles + 4 * outputs * result_tiles()
                                  : (2 * at_once + 1 + 4 * outputs) * block_j * tiles);
  }
  [[nodiscard]] __host__ __device__ constexpr int max_warps() const { return registers() <= 80 ? 16 : 8; }

  /// Operands of weights in a step, and tiles of samples that each is multiplied by.
  [[nodiscard]] __host__ __device__ constexpr int operands() const { return block_j * outputs; }
  [[nodiscard]] __host__ __device__ constexpr int result_tiles() const {
    return x_is_left() ? (tiles + 1) / 2 : tiles;
  }
  /// Warps exchange partial sums by items: the sums of a lane that are stored together, at least four.
  [[nodiscard]] __host__ __device__ constexpr int item_floats() const { return block_j < 4 ? 4 : block_j; }
  [[nodiscard]] __host__ __device__ constexpr int items() const {
    return operands() * result_tiles() * 4 / item_floats();
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// The shapes that no others can replace: without any of some twenty more, no problem of 83 takes 1.07 times
/// as long.
inline constexpr std::array shapes{
    Shape{8, 8, 1, 1},
    Shape{8, 8, 1, 1, 4},
    Shape{4, 8, 1, 1, 4},
    Shape{4, 8, 2, 1, 4},
    Shape{4, 4, 1, 2},
    Shape{2, 8, 1, 1},
    Shape{2, 8, 2, 2},
    Shape{2, 8, 4, 1},
    Shape{2, 2, 1, 2},
    Shape{1, 8, 1, 2, 4},
    Shape{1, 8, 1, 4, 4},
    Shape{1, 8, 2, 4, 4},
    Shape{1, 8, 4, 2},
    Shape{1, 8, 4, 4},
    Shape{1, 4, 1, 2, 4},
    Shape{1, 4, 1, 4, 4},
    // Weights as given: enough loads under way, and as many samples as registers allow.
    Shape{8, 8, 1, 1, 2, true},
    Shape{8, 8, 2, 1, 1, true},
    Shape{4, 8, 1, 1, 4, true},
    Shape{4, 8, 4, 1, 1, true},
    Shape{4, 4, 1, 1, 4, true},
    Shape{4, 4, 4, 1, 1, true},
    Shape{2, 8, 1, 2, 4, true},
    Shape{2, 8, 4, 1, 2, true},
    Shape{2, 2, 1, 2, 4, true},
    Shape{2, 2, 4, 1, 2, true},
    Shape{1, 8, 1, 2, 4, true},
    Shape{1, 8, 1, 4, 4, true},
    Shape{1, 8, 4, 4, 2, true},
    Shape{1, 4, 1, 2, 4, true},
    Shape{1, 4, 4, 4, 2, true},
};

/// How a problem is cut into blocks and warps; fixed when the plan is made.
///
/// A row is the outputs of a warp: tile_k() outputs of `block_j` neighbouring j. Rows are numbered with j
/// fastest. A block has warps for `rows` rows; for `l_warps` parts of l of each, `steps` steps long; and for
/// `sample_warps` parts of the samples of each of these.
struct Cut {
  Shape shape{8, 8, 1};
  int steps = 1;
  int rows = 1, l_warps = 1, sample_warps = 1;
  int row_blocks = 1;  ///< row blocks of one i
  int j_groups = 1;    ///< d / block_j
  int sample_blocks = 1;

  [[nodiscard]] __host__ __device__ int warps() const { return rows * l_warps * sample_warps; }
  /// Chunks of packed weights. Warps for different samples share them.
  [[nodiscard]] __host__ __device__ int chunks() const { return rows * l_warps; }
  [[nodiscard]] __host__ __device__ int chunk_bytes() const {
    return steps * shape.operands() * operand_bytes;
  }
};

/// Offsets in a block's shared memory, in bytes. Packed weights come first. Sums that are exchanged take
/// their place: [row][part of the samples][item][part of l][4 floats][lane].
struct SharedLayout {
  int barriers;  ///< one for each chunk
  int unused;    ///< 4 bytes that nobody reads
  int total;
};
[[nodiscard]] __host__ __device__ inline SharedLayout shared_layout(const Cut& cut) {
  const int weights = cut.shape.as_given ? 0 : cut.chunks() * cut.chunk_bytes();
  const int sums = cut.l_warps == 1 ? 0 : cut.warps() * cut.shape.items() * cut.shape.item_floats() * 4 * 32;
  SharedLayout s{};
  s.barriers = weights > sums ? weights : sums;
  s.unused = s.barriers + cut.chunks() * 8;
  s.total = s.unused + 8;
  return s;
}

[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t index) {
  Digits digits(index);
  const Shape& shape = cut.shape;
  // Operands of m16n8k16. The left one: the first pair of terms for outputs g and g + 8, then the second
  // pair. The right one: both pairs of output g for one product, then for the next; see kernel.cuh.
  const auto in_pair = static_cast<int>(digits.take(2)), second = static_cast<int>(digits.take(2)),
             third = static_cast<int>(digits.take(2)), lane = static_cast<int>(digits.take(32));
  const std::int64_t operand = digits.take(shape.operands()), step = digits.take(cut.steps),
                     part = digits.take(cut.l_warps),
                     row = digits.take(std::int64_t{cut.rows} * cut.row_blocks);
  const std::int64_t k_tile =
      operand / shape.block_j * (shape.x_is_left() ? 1 : 2) + (shape.x_is_left() ? 0 : second);
  const int pair = !shape.x_is_left() ? third : shape.tiles == 1 ? second * 2 + third : third * 2 + second;
  return {.i = digits.rest(),
          .k = row / cut.j_groups * shape.tile_k() + k_tile * 8 + lane / 4,
          .l = (part * cut.steps + step) * shape.step_l() + shape.term_of(lane % 4, pair * 2 + in_pair),
          .j = row % cut.j_groups * shape.block_j + operand % shape.block_j};
}

/// The same order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const Shape& shape = cut.shape;
  const auto term = [&](int at) { return PackStep{.l = shape.term_of(0, at)}; };
  layout.bit(term(1));
  layout.bit(!shape.x_is_left() ? PackStep{.k = 8} : shape.tiles == 1 ? term(4) : term(2));
  layout.bit(!shape.x_is_left() || shape.tiles == 1 ? term(2) : term(4));
  layout.lanes({.l = shape.terms()}, {.k = 1});
  layout.digit(shape.block_j, {.j = 1});
  layout.digit(shape.outputs, {.k = shape.x_is_left() ? 8 : 16});
  layout.digit(std::int64_t{cut.steps} * cut.l_warps, {.l = shape.step_l()});
  layout.digit(std::int64_t{cut.rows} * cut.row_blocks, {.row = 1});
  layout.rows_of_k = cut.j_groups;
  layout.of_quotient = {.k = shape.tile_k()};
  layout.of_rest = {.j = shape.block_j};
  return layout;
}

/// The numbers that packed_place() depends on. Rows are numbered through all blocks, steps through all warps.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  const Shape& shape = cut.shape;
  if (shape.as_given) return {};
  return {.family = "direct",
          .numbers = {shape.block_j, shape.load, shape.outputs, shape.x_is_left() && shape.tiles == 1,
                      std::int64_t{cut.steps} * cut.l_warps, std::int64_t{cut.rows} * cut.row_blocks,
                      cut.j_groups}};
}
/// Gives the cut this order. Its other numbers do not count.
inline void take_order(Cut& cut, const PackedOrder& order) {
  const auto number = [&](std::size_t at) { return static_cast<int>(order.numbers[at]); };
  cut.shape = {number(0), number(1), number(3) != 0 ? 1 : 2, number(2)};
  cut.steps = number(4);
  cut.row_blocks = number(5);
  cut.j_groups = number(6);
}

/// The arguments of a launch.
struct Arguments {
  const std::byte* weights;
  int weights_of_i;        ///< in elements; this and the next line are for weights as given
  int k_stride, l_stride;  ///< from the weight of an output, or of a term, to the next one
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  int batch;
  Activation activation;
  bool x_vectors, y_vectors;  ///< whether x (and weights as given) and y are aligned; else elements are
                              ///< loaded and stored
  int b, c, d;
  int x_sample;
  std::int64_t y_sample;
  std::uint32_t blocks;  ///< blocks that have work
  Divisor row_blocks, blocks_of_samples, j_groups, sample_warps, l_warps;
  bool just_packed = false;  ///< earlier kernels may write the weights: wait for them first
};

}  // namespace kronsparse::cuda::direct
