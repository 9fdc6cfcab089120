// The data of the kernel `mma` in shared memory, and the arguments of a launch.
//
// A block computes a tile: some samples of some outputs of some (i, j). x and y lie in shared memory as
// lines. A line is 128 bytes: one feature of 64 samples of a half type, or of 32 floats. So a product reads
// the lines of its terms in any order, whatever d is, and only the way between memory and lines depends on
// the layout. More samples are more groups of lines.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/host/divisor.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::mma {

inline constexpr int line_bytes = 128;
inline constexpr int line_units = line_bytes / 16;
inline constexpr int line_unit_bits = 3;
inline constexpr int most_threads = 256;

/// The numbers that the compiler knows. Each shape has a kernel.
struct Shape {
  int slots;        ///< tiles of 16 outputs that a warp computes at once
  int blocks;       ///< blocks of most_threads that a multiprocessor has registers for
  bool has_chunks;  ///< whether x comes in several chunks; loads and sums then share the registers
};

/// The lines of x or of y in a tile, and where their features lie in memory. Feature (i·height + row)·d + j
/// is row `row` of block (i, j): a term of x, or an output of y.
struct Side {
  std::int64_t sample = 0, feature = 0;  ///< strides in elements
  int rows = 1;                          ///< rows of a block in a tile, or in a chunk of it
  int lines = 1;                         ///< of a group of samples
  int height = 1;                        ///< rows of a block in memory
  /// Elements that memory allows to load or store at once: samples in batch_last, features in batch_first.
  int width = 1;
  Divisor pieces;   ///< batch_first: lines, `width` at a time
  Divisor by_rows;  ///< rows
  int table = 0;    ///< place of its entries in shared memory
};

/// A line of a side, in the order of memory: its first unit (tiles.cuh), or no_line where there is no such
/// feature; and its feature, counted from the first one of the tile.
struct alignas(8) Entry {
  std::uint32_t place;
  std::uint32_t feature;
};
inline constexpr std::uint32_t no_line = 0xffffffffu;

struct Arguments {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  const void* bias = nullptr;
  const std::byte* weights = nullptr;
  std::int64_t batch = 0;
  int a = 1, d = 1;
  Side from, to;
  Divisor run;                        ///< neighbouring j of a tile
  Divisor k_tiles, j_tiles, n_tiles;  ///< tiles, the fastest first; those of i come last
  int i_count = 1;                    ///< of a tile
  int chunks = 1;                     ///< pieces of the terms that x comes in
  int groups = 1;                     ///< groups of samples, 1, 2 or 4
  int group_shift = 0;                ///< groups as a power of two
  int warps = 1;                      ///< warps of a group
  int passes = 1;                     ///< turns in which the warps compute all outputs of a tile
  Divisor m_tiles;                    ///< tiles of 16 outputs of one (i, j) in a tile
  int all_m_tiles = 1;                ///< the same in memory
  int k_steps = 1;                    ///< steps of a tensor core's terms
  int chunk_steps = 1;                ///< the same in a chunk
  int y_offset = 0, zero_offset = 0;  ///< the lines of y in shared memory, and a line of zeros
  bool samples_first = true;          ///< layout batch_first
  Activation activation = Activation::none;
};

}  // namespace kronsparse::cuda::mma
