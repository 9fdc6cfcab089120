// The data of the kernel `fused_wgmma` in shared memory, and the arguments of a launch.
//
// A block computes tiles: 64 or 128 samples through all products of a chain. The first product reads x as
// rows of features; between two products the features lie in shared memory as lines. A line is one feature of
// 64 samples, 128 bytes, which is what wgmma reads as the left operand with a row of samples for each term.
// So the permutation between two factors is the choice of the line that a result goes to.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/chain/limits.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/packing/mixed_terms.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::fused_wgmma {

/// The samples of a tile, 64 for each row group, and the warpgroups that multiply. Each shape has a kernel.
struct Shape {
  int row_groups;
  int warpgroups;
  int blocks_at_once;  ///< on a multiprocessor
  int registers;       ///< of a thread that multiplies
};
/// The outputs of an item that a warpgroup keeps sums of, at most, for each row group.
inline constexpr int most_columns = 128;
/// Terms are multiplied in slices; a slab, the unit of copies, has four of them or fewer.
inline constexpr int slice_terms = 16, slab_slices = 4, slab_terms = slice_terms * slab_slices;
inline constexpr int line_bytes = 128, row_group_samples = 64;
/// A box of x: 64 features of the tile's samples.
inline constexpr int box_features = 64, box_group_bytes = row_group_samples * box_features * 2;
inline constexpr int warpgroup_threads = 128, producer_threads = 128;
inline constexpr int most_stages = 16;
/// Beside the sums of row groups, a warpgroup's warps have 16 samples each.
inline constexpr int consumer_warps_in_group = 4;

/// The outputs (columns) that one wgmma computes, and the (i, j) of an item: small ones are taken together.
struct ItemShape {
  int columns, blocks;
};

/// One product of the chain.
struct Step {
  int b = 1, d = 1;
  int blocks = 1;          ///< (i, j)
  int terms = 1;           ///< that exist, of one (i, j)
  int slices = 1;          ///< slices of weights of one (i, j)
  int repeat_shift = 0;    ///< 1: two slices of weights for each slice of x, which are added up
  int block_lines = 16;    ///< lines that it reads of one (i, j), padded to whole slices
  int x_features = 1;      ///< in a stage, from the terms of one block to those of the next
  int item_number = 0;     ///< the shape of its items
  ItemShape item{128, 1};  ///< the same; it may have fewer blocks here
  int chunks = 1;          ///< items that share the outputs of one (i, j)
  int chunks_of_part = 1;  ///< of those, in a part of the step
  int padded = 1;          ///< outputs of one (i, j), padded to whole chunks
  int slabs = 1;           ///< of an item
  int items_of_part = 1;
  int in = 0, in_group = 0;    ///< the lines it reads: place, and bytes from one row group to the next
  int out = 0, out_group = 0;  ///< those it writes
  int lines = 0;               ///< place of the numbers of the lines that its outputs go to, two bytes each
  int factors = -1;            ///< place of floats that sums are multiplied by; -1: none
  int mixing = 0;              ///< the terms of a block are mixed (see mixed_term)
  bool in_place = false;       ///< results take the place of the block's own terms
  Divisor by_padded, by_d, by_block;  ///< by_block: c·d, the features of one i that it reads
  std::int64_t weights = 0;           ///< bytes from the first packed weight
  std::int64_t exponents = 0;         ///< the same for the exponents of outputs (MergeTask)
};

struct Arguments {
  CUtensorMap x_map;
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  const void* bias = nullptr;
  const std::byte* weights = nullptr;
  std::int64_t batch = 0;
  std::int64_t x_stride = 0, y_stride = 0;  ///< elements from sample to sample
  std::int64_t tiles = 1;
  int steps = 1;
  int parts = 1;  ///< of the last step: y leaves part by part
  int x_features = 1;
  int y_run = 1;          ///< neighbouring features of y in a part
  int y_run_step = 1;     ///< features from one run to the next
  int y_features = 1;     ///< in a part
  int y_outputs = 1;      ///< outputs of one (i, j) in a part
  int y_block_lines = 8;  ///< lines of y from one (i, j) to the next
  Divisor y_runs;         ///< by y_run
  int y_lines = 0;        ///< place of the numbers of the lines of y's features
  int biases = -1;        ///< place of the bias as floats; -1: none
  int stages = 2, stage_bytes = 0, stages_at = 0;
  int weights_in_stage = 0;  ///< bytes from a stage to its weights, behind x
  bool x_boxes = false;      ///< whether the copy engine takes x
  bool y_vectors = false;    ///< whether y is stored as vectors of 16 bytes
  bool y_waits = false;      ///< y lies where the next tile, or part, is written
  Activation activation = Activation::none;
  Step step[most_links];
};

/// The shapes of items: a kernel has code for each. An item of fewer blocks than its shape has multiplies the
/// last one again.
inline constexpr int item_shape_count = 8;
[[nodiscard]] __host__ __device__ constexpr ItemShape item_shape(int number) {
  constexpr ItemShape all[item_shape_count] = {{128, 1}, {96, 1}, {64, 1}, {64, 2},
                                               {48, 2},  {32, 1}, {32, 4}, {16, 4}};
  return all[number];
}

/// The place of output k of y among the lines of its block, for loads that take features 0, 1, 8, 9, 16, ...
[[nodiscard]] __host__ __device__ constexpr int y_term(int k, int j) {
  return k ^ ((folded(j) ^ (k >> 3) << 1) & 7);
}

/// The address of the unit of 8 samples of a line: swizzled as the tensor core expects.
[[nodiscard]] __device__ inline std::uint32_t unit_at(std::uint32_t lines, int line, int unit) {
  return lines + static_cast<std::uint32_t>(line * line_bytes + ((unit ^ line) & 7) * 16);
}

/// Barriers at the start of shared memory.
struct Barriers {
  std::uint32_t shared;
  [[nodiscard]] __host__ __device__ std::uint32_t full(int stage) const { return shared + stage * 8; }
  [[nodiscard]] __host__ __device__ std::uint32_t empty(int stage) const {
    return shared + (most_stages + stage) * 8;
  }
  static constexpr int bytes = 2 * most_stages * 8;
};

}  // namespace kronsparse::cuda::fused_wgmma
