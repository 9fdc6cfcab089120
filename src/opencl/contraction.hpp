// A problem as the kernels see it: for every i and j a product of two matrices, C[m,n] = sum over the depth
// of A[m,depth] · B[n,depth], each with strides of its own. Multiply, its transposes and the gradient differ
// in nothing else:
//   multiply, transposed   A is x (m samples), B the values (n outputs), C is y
//   gradient               A is g (m of its features), B is x (n of its features), C the gradient; the depth
//                          is the batch
#pragma once

#include <cstdint>
#include <string>

#include "core/implementation.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::opencl {

/// The argument of every kernel, as kernels/element.cl has it. Counts elements.
struct Args {
  std::int64_t m = 0, n = 0, depth = 0, js = 0;
  std::int64_t a_at = 0, a_i = 0, a_j = 0, a_row = 0, a_depth = 0;
  std::int64_t b_at = 0, b_i = 0, b_j = 0, b_tile = 0, b_row = 0, b_depth = 0;
  std::int64_t c_at = 0, c_i = 0, c_j = 0, c_m = 0, c_n = 0;
  std::int64_t bias_at = 0, bias_i = 0, bias_n = 0;
  std::int64_t n_tiles = 1, j_inner = 1, m_tiles = 1, j_outer = 1;
  std::int64_t first_tile = 0, tiles = 0;
  std::int64_t has_bias = 0, activation = 0, conjugates_b = 0;
  std::int64_t loads_a_vectors = 0, loads_b_vectors = 0, stores_vectors = 0, stores_runs = 0;
};

/// Sizes and strides; tiles and places are still to come. B is in the order of packed_order() with this
/// panel, or as it is given where that is 0.
[[nodiscard]] Args args_of(const Problem& problem, std::int64_t panel);

/// Values (a, d, tile, depth, n in the tile): for every i and j, and every tile of `panel` outputs, a matrix
/// whose rows hold those outputs. `family` is the name of the implementation that reads them.
[[nodiscard]] PackedOrder packed_order(const Problem& problem, std::string_view family, std::int64_t panel);
/// The panel of an order; 0 of values as they are given.
[[nodiscard]] inline std::int64_t panel_of(const PackedOrder& order) { return order.numbers[1]; }
/// Values as they are given.
[[nodiscard]] PackedOrder given_order(const Problem& problem);

/// A tile of sums, to be computed by one work-item or one work-group.
struct Tile {
  int j = 1, m = 1, n = 1;
};

[[nodiscard]] inline std::int64_t tiles_of(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}
/// The size with its last tile filled up.
[[nodiscard]] inline double padded(std::int64_t size, std::int64_t tile) {
  return static_cast<double>(tiles_of(size, tile) * tile);
}

/// Whether neighbouring m of C are neighbours in memory: y in batch_last. Else neighbouring n of a j are
/// nearest.
[[nodiscard]] inline bool stores_m_first(const Problem& problem) {
  return problem.operation != Operation::gradient && problem.layout == Layout::batch_last;
}

/// How many i there are.
[[nodiscard]] inline std::int64_t i_count(const Problem& problem) { return problem.pattern().a; }

/// The same for all batches of a range, each within twice of the next: a plan then knows from the beginning
/// which kernels its runs will need.
[[nodiscard]] Problem with_rounded_batch(const Problem& problem);

}  // namespace kronsparse::opencl
