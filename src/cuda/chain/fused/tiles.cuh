// The data of the kernel `fused` in shared memory, and the arguments of a launch.
//
// A block, or a cluster of blocks, computes a tile: some samples through all products of a chain. Between two
// products the features lie in shared memory as lines. A line is one feature of the tile's samples. So any
// order of features costs nothing: a product reads the lines of its terms in their order, and writes each of
// its results as a line to the place where the next product expects it, in whichever block that is.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/chain/limits.hpp"
#include "cuda/host/divisor.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::fused {

inline constexpr int most_steps = most_links;
inline constexpr int most_threads = 512;

/// The samples of a tile, and the tiles of 16 outputs that a warp computes at once. Each shape has a kernel.
struct Shape {
  int samples;
  int m_tiles;
};

/// A place in shared memory. Tiles with an odd number use the one `alternate` bytes further, so that one is
/// filled while the other is used.
struct Place {
  int offset = 0;
  int alternate = 0;

  [[nodiscard]] __host__ __device__ int of_tile(int parity) const { return offset + parity * alternate; }
};

/// The features between two products, numbered as in y of the first: feature (i·c + l)·d + j is term l of
/// block (i, j) of the second. Each rank (block of the cluster) has the terms of its own (i, j).
struct Space {
  Divisor block_features;  ///< c·d
  Divisor d;
  Divisor i_count, j_count;  ///< the i and j of one rank
  int ranks_j = 1;           ///< ranks that differ in their j alone
  int terms = 1;             ///< lines of one (i, j): c, rounded up to what a product takes at once
  int shift = 31;            ///< see line_entry
  Place place;
};

/// The size of a line.
struct Line {
  int samples, element_bytes;

  /// Units of 16 bytes.
  [[nodiscard]] __host__ __device__ constexpr int units() const { return samples * element_bytes / 16; }
};

/// The place of a line as one number: its first unit in the space, in bytes (20 bits), and the rank (4 bits).
/// Unit u of the line lies at that address ^ 16·u, if the space begins at a multiple of 1024 bytes. The
/// highest eight bits are for the exponent of a float that the line's sums are multiplied by.
using Entry = std::uint32_t;
inline constexpr Entry no_entry = 0xffffffffu;
[[nodiscard]] __host__ __device__ inline int rank_of(Entry entry) {
  return static_cast<int>(entry >> 20 & 0xfu);
}
[[nodiscard]] __host__ __device__ inline std::uint32_t address_of(Entry entry) { return entry & 0xfffffu; }

/// The entry of a line. Units of a line are swizzled within rows of 128 bytes, so that the lines that a warp
/// reads at once, and those that it writes at once, lie in different banks. Neighbouring lines differ in the
/// number of their row; lines further apart in their number shifted by `shift`.
[[nodiscard]] __host__ __device__ inline Entry line_entry(const Line& form, int line, int shift) {
  const int units = form.units();
  const int row = units >= 8 ? line : line * units / 8;
  int swizzle = (row ^ line >> shift) & 7;
  // Lanes read floats from four lines, two units of each: such pairs stay together.
  if (form.element_bytes == 4) swizzle = (swizzle << 1 & 6) | swizzle >> 2;
  return static_cast<Entry>(line * units * 16 ^ swizzle * 16);
}

/// The line of a feature, as an entry.
[[nodiscard]] __host__ __device__ inline Entry entry_of(const Line& form, const Space& space, int feature) {
  const auto split = [](int number, const Divisor& by, int& rest) {
    const auto quotient = static_cast<int>(by.quotient(static_cast<std::uint32_t>(number)));
    rest = number - quotient * static_cast<int>(by.value());
    return quotient;
  };
  int in_block = 0, i_here = 0, j = 0, j_here = 0;
  const int i = split(feature, space.block_features, in_block);
  const int l = split(in_block, space.d, j);
  const int rank_i = split(i, space.i_count, i_here);
  const int rank_j = split(j, space.j_count, j_here);
  const int line = (i_here * static_cast<int>(space.j_count.value()) + j_here) * space.terms + l;
  return line_entry(form, line, space.shift) | static_cast<Entry>(rank_i * space.ranks_j + rank_j) << 20;
}

/// A piece of a step that a warp computes: some tiles of 16 outputs of one (i, j), for a group of samples.
/// Items lie in shared memory.
struct alignas(16) Item {
  std::uint32_t weights;  ///< the first fragment, in units of 16 bytes
  std::uint32_t line;     ///< of the first term
  /// The place of the entries of its outputs, and in the highest eight bits how many outputs exist.
  std::uint32_t outputs;
  std::uint32_t feature;  ///< of its first output
};

/// One product of the chain, as a block of the cluster computes it.
struct Step {
  int b = 1, d = 1;
  int blocks = 1;          ///< the (i, j) of one rank
  Divisor j_count;         ///< the j of one rank
  int i_count = 1;         ///< the i of one rank
  int ranks_j = 1;         ///< ranks that differ in their j alone
  int terms = 1;           ///< lines of one (i, j)
  int repeats = 1;         ///< fragments of weights that are multiplied with the same x, and added up
  int k_steps = 1;         ///< steps of a tensor core's terms, repeats included
  int tiles = 1;           ///< tiles of 16 outputs of one (i, j)
  int m_groups = 1;        ///< items of one (i, j)
  int m_tiles = 1;         ///< tiles in an item; the last item may have fewer
  int groups_of_part = 1;  ///< items of one (i, j) in a part of the step
  int rows_pitch = 0;      ///< if x lies as rows of features instead: bytes from row to row
  int in_shift = 31;       ///< of its lines
  Place in;
  int items = 0;             ///< place of its items in shared memory, part after part
  int table = 0;             ///< place of the entries of its outputs in shared memory
  std::int64_t weights = 0;  ///< bytes from the first packed weight
  /// Bytes from the first packed weight to the exponents of the outputs' sums (MergeTask); -1: none.
  std::int64_t exponents = -1;
};

struct Arguments {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  const void* bias = nullptr;
  const std::byte* weights = nullptr;
  std::int64_t batch = 0;
  std::int64_t x_sample = 0, x_feature = 0, y_sample = 0, y_feature = 0;  ///< strides in elements
  std::int64_t tiles = 1;
  int ranks = 1;
  int steps = 1;
  int parts = 1;              ///< parts of the last step: y leaves part by part
  int x_features = 0;         ///< features of x that a rank copies, if they are contiguous there
  int x_all = 0;              ///< features of x
  int y_features = 0;         ///< features of a part of y that a rank stores
  int y_all = 0;              ///< features of a part of y
  int y_run = 0;              ///< of them, those next to each other in y
  Divisor y_runs;             ///< the same
  int y_run_step = 0;         ///< features from one run to the next
  bool samples_first = true;  ///< layout batch_first
  bool x_rows = false;        ///< the first product reads x as rows
  bool x_vectors = false;     ///< x can be copied, and y stored, in units of 16 bytes
  bool y_vectors = false;
  bool waits_at_end = false;  ///< whether the cluster meets before the next tile
  int x_buffers = 1;
  int staging = 0, staging_pitch = 0;  ///< rows of x that become lines
  int x_table = 0;                     ///< entries of the features of x that a rank copies
  Activation activation = Activation::none;
  Step step[most_steps];
  Space space[most_steps + 1];  ///< the lines that each step reads; the last is y's
  int terms[most_steps] = {};   ///< c of each step
};

}  // namespace kronsparse::cuda::fused
