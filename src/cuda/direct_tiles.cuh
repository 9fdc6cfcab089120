// The product for small batches without shared memory for x: how it is cut up, and how it works.
//
// x goes straight from memory to the registers that tensor cores read. Of the right operand, 16 terms by 8
// samples, a lane holds four terms of one sample: it loads them with up to 8 neighbouring j of each, as they
// lie, and byte permutations make pairs of terms of one j, which are the operands of as many products. Which
// four terms they are is free: those that make a warp's loads contiguous; weights are packed in the order
// that follows. Weights, the left operand, come by the copy engine before the kernel ahead has ended. Of a
// result a lane holds all of these j of an output, and stores them together.
//
// Where d = 1 pairs of terms lie together. x is the left operand then, and 8 outputs are the other: blocks
// can be small, and a multiprocessor takes in the next kernel's weights beside them.
//
// A block loops over its share of l alone. What does not fit into its shared memory is more blocks, or
// another kernel's problem.
//
// Weights that may change are not packed for one product: shapes that are `as_given` load them like x, as
// they lie in the caller's array, and make operands of them in registers (direct_weights.cuh).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/divisor.hpp"
#include "cuda/packed_weights.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::direct {

inline constexpr int tile_samples = 8;
inline constexpr int operand_bytes = 32 * 16;  ///< weights of one j for one step: 16 bytes of each lane
inline constexpr int max_samples = 64;

/// What a warp computes at once; the compiler knows it.
struct Shape {
  int block_j;  ///< neighbouring j: 1, 2, 4 or 8
  int load;     ///< elements of x that are loaded together: 8, of all of d, or those of one term; 4 if d = 1
  int tiles;    ///< of 8 samples each
  int outputs = 1;        ///< tiles of them that share x
  int at_once = 2;        ///< steps whose x is in registers or on its way there
  bool as_given = false;  ///< weights are not packed, and take the same way as x

  /// Whether x is the left operand, of two tiles of samples, and a step has two products.
  [[nodiscard]] __host__ __device__ constexpr bool x_is_left() const { return block_j == 1; }
  /// Outputs of a row, and terms of a step.
  [[nodiscard]] __host__ __device__ constexpr int tile_k() const { return outputs * (x_is_left() ? 8 : 16); }
  [[nodiscard]] __host__ __device__ constexpr int step_l() const { return x_is_left() ? 32 : 16; }

  /// Of one load, and loads of the terms that a lane has of a step.
  [[nodiscard]] __host__ __device__ constexpr int terms() const { return load / block_j; }
  [[nodiscard]] __host__ __device__ constexpr int loads() const { return step_l() / 4 / terms(); }
  /// The term of a step that a lane of four holds at place `at`, 0 to 3 or 7.
  [[nodiscard]] __host__ __device__ constexpr int term_of(int lane_in_four, int at) const {
    return cuda::term_of(terms(), lane_in_four, at);
  }
  /// Outputs of a tile whose weights a lane loads: g, or g and g + 8.
  [[nodiscard]] __host__ __device__ constexpr int lane_rows() const { return x_is_left() ? 1 : 2; }
  /// What x, sums and weights as given take beside some 40 others.
  [[nodiscard]] __host__ __device__ constexpr int registers() const {
    const int weights = as_given ? at_once * outputs * lane_rows() * loads() * load / 2 : 0;
    return weights + (x_is_left() ? 4 * at_once * tiles + 4 * outputs * result_tiles()
                                  : (2 * at_once + 1 + 4 * outputs) * block_j * tiles);
  }
  [[nodiscard]] __host__ __device__ constexpr int max_warps() const { return registers() <= 80 ? 16 : 8; }

  /// Operands of weights that a step has, and tiles of samples that each is multiplied by.
  [[nodiscard]] __host__ __device__ constexpr int operands() const { return block_j * outputs; }
  [[nodiscard]] __host__ __device__ constexpr int result_tiles() const {
    return x_is_left() ? (tiles + 1) / 2 : tiles;
  }
  /// Sums that meet are exchanged by items: those of a lane that are stored together, at least four.
  [[nodiscard]] __host__ __device__ constexpr int item_floats() const { return block_j < 4 ? 4 : block_j; }
  [[nodiscard]] __host__ __device__ constexpr int items() const {
    return operands() * result_tiles() * 4 / item_floats();
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// Those that others do not make up for: without any of some twenty more, no problem of 83 takes 1.07 times
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
/// A row is the outputs of a warp, of `block_j` neighbouring j; rows are numbered with j fastest. A block has
/// warps for `rows` of them, each for `l_warps` parts of l, `steps` steps long, and these for `sample_warps`
/// parts of the samples.
struct Cut {
  Shape shape{8, 8, 1};
  int steps = 1;
  int rows = 1, l_warps = 1, sample_warps = 1;
  int row_blocks = 1;  ///< of one i
  int j_groups = 1;    ///< d / block_j
  int sample_blocks = 1;

  [[nodiscard]] __host__ __device__ int warps() const { return rows * l_warps * sample_warps; }
  /// Of packed weights, which warps of different samples share.
  [[nodiscard]] __host__ __device__ int chunks() const { return rows * l_warps; }
  [[nodiscard]] __host__ __device__ int chunk_bytes() const {
    return steps * shape.operands() * operand_bytes;
  }
};

/// Where things lie in a block's shared memory, in bytes. Packed weights are first; sums that meet take their
/// place: [row][part of the samples][item][part of l][4 floats][lane].
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
  // Of m16n8k16. The left operand: the first pair of terms for outputs g and g + 8, then the second pair. The
  // right operand: both pairs of output g for one product, then for the next; see multiply_direct.cuh.
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

/// The same as digits.
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

/// The numbers of a cut that packed_place() depends on: rows are numbered through all blocks, steps through
/// all warps.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  const Shape& shape = cut.shape;
  if (shape.as_given) return {};
  return {.family = "direct",
          .numbers = {shape.block_j, shape.load, shape.outputs, shape.x_is_left() && shape.tiles == 1,
                      std::int64_t{cut.steps} * cut.l_warps, std::int64_t{cut.rows} * cut.row_blocks,
                      cut.j_groups}};
}
/// Makes it a cut of this order; nothing else of it counts.
inline void take_order(Cut& cut, const PackedOrder& order) {
  const auto number = [&](std::size_t at) { return static_cast<int>(order.numbers[at]); };
  cut.shape = {number(0), number(1), number(3) != 0 ? 1 : 2, number(2)};
  cut.steps = number(4);
  cut.row_blocks = number(5);
  cut.j_groups = number(6);
}

/// Everything one launch needs.
struct Arguments {
  const std::byte* weights;
  int weights_of_i;        ///< elements; this and the next for weights as given
  int k_stride, l_stride;  ///< from the weight of an output, or of a term, to the next one's
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  int batch;
  Activation activation;
  bool x_vectors, y_vectors;  ///< whether they are aligned, weights as given like x: else elements are
                              ///< loaded and stored
  int b, c, d;
  int x_sample;
  std::int64_t y_sample;
  std::uint32_t blocks;  ///< that have something to do
  Divisor row_blocks, blocks_of_samples, j_groups, sample_warps, l_warps;
  bool just_packed = false;  ///< kernels ahead may write the weights: wait for them first
};

}  // namespace kronsparse::cuda::direct
