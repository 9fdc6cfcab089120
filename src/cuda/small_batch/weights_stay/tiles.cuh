// The small-batch kernel `weights-stay`: shapes, cuts and the order of weights.
//
// It is for small batches with d from 4 to 64 and rows of x of up to 4096 elements. A block has 16 outputs
// with all of their j. Its 8 warps keep all of their weights, 128 KB, in the registers of a multiprocessor,
// as left operands of the tensor cores. They request them before the earlier kernel has ended. x then comes
// in passes of 8 samples, in whole rows, by the copy engine. A lane loads 16 bytes as they lie: neighbouring
// j of one or two terms. Byte permutations pair the terms of one j, which makes the right operands. Samples
// and terms are arranged so that, with the copy engine's swizzle, the eight lanes of a load read all banks.
//
// Warps share out j, eight to each. Remaining warps split the terms; their sums meet in shared memory, and
// threads store from there what is contiguous in y.
//
// Only x is loaded more than once, because every block of outputs needs it: it comes from L2.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/host/divisor.hpp"
#include "cuda/packing/packed_place.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::weights_stay {

inline constexpr int warps = 8, threads = warps * 32;
inline constexpr int tile_outputs = 16, tile_samples = 8, step_terms = 16;
inline constexpr int row_bytes = 128, row_elements = row_bytes / 2;  ///< rows of x in shared memory, swizzled
inline constexpr int max_elements = 4096;                            ///< c·d at most, in elements of x
inline constexpr int max_samples = 64;

/// The work of a block, known to the compiler.
struct Shape {
  int d;          ///< 4, 8, 16, 32 or 64
  int fragments;  ///< operands of weights that a warp keeps: 16 or 32

  [[nodiscard]] __host__ __device__ constexpr int block_j() const { return d < 8 ? d : 8; }
  [[nodiscard]] __host__ __device__ constexpr int j_warps() const { return d / block_j(); }
  [[nodiscard]] __host__ __device__ constexpr int l_warps() const { return warps / j_warps(); }
  /// Blocks that a multiprocessor has registers for.
  [[nodiscard]] __host__ __device__ constexpr int blocks_at_once() const { return fragments > 16 ? 1 : 2; }
  /// Steps of a warp.
  [[nodiscard]] __host__ __device__ constexpr int steps() const { return fragments / block_j(); }
  /// Terms of a sum. Those that do not exist are zeros.
  [[nodiscard]] __host__ __device__ constexpr int terms() const { return l_warps() * steps() * step_terms; }

  /// Whether x is read by rows of all samples (d <= 16): each warp, or each pair of warps, then needs rows of
  /// its own. For larger d it is read by samples, and all warps need all of it.
  [[nodiscard]] __host__ __device__ constexpr bool by_rows() const { return d <= 16; }
  [[nodiscard]] __host__ __device__ constexpr int sharing_warps() const {
    return by_rows() ? j_warps() : warps;
  }
  [[nodiscard]] __host__ __device__ constexpr int groups() const { return warps / sharing_warps(); }
  /// Rows of each sample, and those that a warp requests.
  [[nodiscard]] __host__ __device__ constexpr int rows() const { return terms() * d * 2 / row_bytes; }
  [[nodiscard]] __host__ __device__ constexpr int box_rows() const {
    return by_rows() ? rows() / warps : rows();
  }
  [[nodiscard]] __host__ __device__ constexpr int box_bytes() const {
    return rows() * row_bytes * tile_samples / warps;
  }
  /// For x read by samples: shifts the swizzle of each sample's rows against the next.
  [[nodiscard]] __host__ __device__ constexpr int shift() const { return d == 32 ? 2 : 4; }
  [[nodiscard]] __host__ __device__ constexpr int sample_pitch() const {
    return (rows() + shift()) * row_bytes;
  }
  [[nodiscard]] __host__ __device__ constexpr int buffer_bytes() const {
    return by_rows() ? tile_samples * rows() * row_bytes : (tile_samples * sample_pitch() + 1023) & ~1023;
  }
  /// The offset in a buffer at which a warp's copy begins.
  [[nodiscard]] __host__ __device__ constexpr int box_place(int warp) const {
    return warp * (by_rows() ? box_bytes() : sample_pitch());
  }
  /// The offset in a buffer of the 16 bytes that lie `bytes` bytes from the start of a sample.
  [[nodiscard]] __host__ __device__ constexpr int place(int sample, int bytes) const {
    const int row = bytes / row_bytes, unit = bytes / 16 % 8;
    if (by_rows()) return (row * tile_samples + sample) * row_bytes + ((unit ^ sample) << 4);
    return sample * sample_pitch() + row * row_bytes + ((unit ^ ((row + sample * shift()) & 7)) << 4);
  }
  /// From one step to the next.
  [[nodiscard]] __host__ __device__ constexpr int step_bytes() const {
    return step_terms * d * 2 * (by_rows() ? tile_samples : 1);
  }
  /// The sample of a column of the right operand.
  [[nodiscard]] __host__ __device__ constexpr int sample_of(int column) const {
    return d <= 8 ? column / 2 + column % 2 * 4 : column;
  }

  /// Results that a thread stores together (a unit), and the number of units.
  [[nodiscard]] __host__ __device__ constexpr int unit() const { return d < 16 ? 4 : 8; }
  [[nodiscard]] __host__ __device__ constexpr int output_units() const { return d / unit(); }
  [[nodiscard]] __host__ __device__ constexpr int units() const {
    return tile_samples * tile_outputs * output_units();
  }
  [[nodiscard]] __host__ __device__ constexpr int thread_units() const {
    return units() > threads ? units() / threads : 1;
  }
  /// Sums lie as [part of l][four of a unit][unit], the units in an order that spreads them over the banks.
  /// If there is only one part, rounded results lie there instead.
  [[nodiscard]] __host__ __device__ constexpr int sum_bytes() const {
    return l_warps() == 1 ? units() * unit() * 2 : l_warps() * units() * unit() * 4;
  }
  [[nodiscard]] __host__ __device__ constexpr int sum_place(int part, int four, int sample, int output,
                                                            int unit_of_output) const {
    const int lane_in_four = d <= 8 ? sample & 3 : sample >> 1;
    const int low = lane_in_four & 1, high = lane_in_four & 2;
    const int spread = output_units() == 1   ? lane_in_four << 1
                       : output_units() == 2 ? low | high << 1
                       : output_units() == 4 ? lane_in_four
                                             : lane_in_four | (output & 1) << 2;
    const int at = (sample * tile_outputs + output) * output_units() + unit_of_output;
    return ((part * (unit() / 4) + four) * units() + (at ^ spread)) * 16;
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

inline constexpr std::array shapes{Shape{4, 32}, Shape{8, 32}, Shape{16, 32}, Shape{32, 32}, Shape{64, 32},
                                   Shape{4, 16}, Shape{8, 16}, Shape{16, 16}, Shape{32, 16}, Shape{64, 16}};
static_assert(shapes[0].terms() * shapes[0].d == max_elements);

/// How a problem is cut into blocks; fixed when the plan is made. Blocks with the same outputs share out the
/// samples.
struct Cut {
  Shape shape{4, 32};
  int passes = 1;
  int k_tiles = 1;
  int sample_blocks = 1;

  [[nodiscard]] __host__ __device__ int buffers() const { return passes > 1 ? 2 : 1; }
};

/// Offsets in a block's shared memory, in bytes. x comes first.
struct SharedLayout {
  int sums;
  int barriers;  ///< [buffer][group of warps that share x]
  int unused;    ///< 4 bytes that nobody reads
  int total;
};
[[nodiscard]] __host__ __device__ constexpr SharedLayout shared_layout(const Shape& shape, int buffers) {
  SharedLayout s{};
  s.sums = buffers * shape.buffer_bytes();
  s.barriers = s.sums + shape.sum_bytes();
  s.unused = s.barriers + buffers * shape.groups() * 8;
  s.total = s.unused + 8;
  return s;
}
[[nodiscard]] __host__ __device__ inline SharedLayout shared_layout(const Cut& cut) {
  return shared_layout(cut.shape, cut.buffers());
}

[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t index) {
  Digits digits(index);
  const Shape& shape = cut.shape;
  // The left operand of m16n8k16: the first pair of terms for outputs g and g + 8, then the second pair.
  const auto in_pair = static_cast<int>(digits.take(2)), second_output = static_cast<int>(digits.take(2)),
             pair = static_cast<int>(digits.take(2)), lane = static_cast<int>(digits.take(32));
  const std::int64_t j = digits.take(shape.block_j()), step = digits.take(shape.steps()),
                     j_warp = digits.take(shape.j_warps()), l_warp = digits.take(shape.l_warps()),
                     k_tile = digits.take(cut.k_tiles);
  return {.i = digits.rest(),
          .k = k_tile * tile_outputs + second_output * 8 + lane / 4,
          .l = (l_warp * shape.steps() + step) * step_terms +
               term_of(8 / shape.block_j(), lane % 4, pair * 2 + in_pair),
          .j = j_warp * shape.block_j() + j};
}

/// The same order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const Shape& shape = cut.shape;
  const int load_terms = 8 / shape.block_j();
  layout.bit({.l = term_of(load_terms, 0, 1)});
  layout.bit({.k = 8});
  layout.bit({.l = term_of(load_terms, 0, 2)});
  layout.lanes({.l = load_terms}, {.k = 1});
  layout.digit(shape.block_j(), {.j = 1});
  layout.digit(shape.steps(), {.l = step_terms});
  layout.digit(shape.j_warps(), {.j = shape.block_j()});
  layout.digit(shape.l_warps(), {.l = std::int64_t{shape.steps()} * step_terms});
  layout.digit(cut.k_tiles, {.k = tile_outputs});
  return layout;
}

/// The numbers that packed_place() depends on.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  return {.family = "weights-stay", .numbers = {cut.shape.d, cut.shape.fragments, cut.k_tiles}};
}
/// Gives the cut this order. Its other numbers do not count.
inline void take_order(Cut& cut, const PackedOrder& order) {
  const auto number = [&](std::size_t at) { return static_cast<int>(order.numbers[at]); };
  cut.shape = {number(0), number(1)};
  cut.k_tiles = number(2);
}

/// The arguments of a launch.
struct Arguments {
  CUtensorMap x_map;  ///< used if `boxes`
  const uint4* weights;
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  bool boxes;      ///< whether the copy engine brings x; else threads copy it
  bool y_vectors;  ///< whether y is aligned; else elements are stored
  int batch;
  Activation activation;
  int b, x_rows;  ///< rows of x that exist for each sample
  std::int64_t x_sample, y_sample;
  Divisor k_tiles, blocks_of_samples;
  bool just_packed = false;  ///< the earlier kernel may write the weights: wait for it first
};

}  // namespace kronsparse::cuda::weights_stay
