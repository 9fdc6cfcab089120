// The fitted constants of the cost models in large_batch/. Every member is a double, so that a program can
// try others (tools/sweeps).
#pragma once

#include <array>

namespace kronsparse::cuda::tuning {

struct Gemm {
  double start;   ///< seconds of a launch
  double memory;  ///< time of memory, in times of a copy of as many bytes
  double tensor;  ///< time of tensor cores, in times of their peak
  /// Where x and y are rows that the copy engine does not take: their time of memory, in times of that of
  /// tensor copies; clocks of a warp of the producer for 32 vectors.
  double x_rows, y_rows, vectors;
};

struct Wgmma {
  /// The parts of a prediction overlap only partly, so they are added up.
  struct Shares {
    double start;     ///< seconds of a launch
    double per_tile;  ///< seconds of a block for each of its tiles: the epilogue
    double memory;    ///< share of the time of a copy
    double l2;        ///< share of the time of L2
    double tensor;    ///< share of the time of tensor cores
  };
  Shares half_first, half_last, float_first, float_last;
  double l2_rate;       ///< L2, in copy rates
  double element_wise;  ///< L2, where pairs of j cross a row of an odd d, and are copied one by one
  /// L2, by the runs of j of half types: a row of j that is longer than a run costs a look-up in the L1 cache
  /// for each run. Look-ups collide if d is a multiple of 32; runs of half a sector cost more.
  double runs_collide, runs_of_half_sectors, runs_of_16_j;
  /// All, where x is copied in pieces smaller than 16 bytes: floats; half types by 4 bytes or element by
  /// element; half types otherwise.
  double small_copies_of_floats, small_copies_of_4_bytes, small_copies;
  double bundle_l2;  ///< share of L2 for weights that stay there together
  double
      least_busy_percent;  ///< busy blocks at least, if groups with resident weights have blocks of their own
};

struct Staged {
  double start;      ///< seconds of a chunk's two launches
  double memory;     ///< x and y through L2 three times, in times of a copy
  double weights;    ///< the same for weights
  double tensor;     ///< time of tensor cores, in times of their peak
  double once;       ///< seconds of a run's first and last steps, which overlap with nothing
  double chunks_l2;  ///< a chunk's share of L2, which x and y pass through as well
};

/// The terms of a prediction, in the order of mma::cost_terms(). Units are of 16 bytes, rows those of
/// batch_first, columns those of batch_last; "wide" where several elements are copied at once; "tight" where
/// registers do not last for loads and sums.
inline constexpr std::array mma_terms = {
    "start",
    "x: 1,000 units, narrow rows",
    "x: wide rows",
    "x: narrow columns",
    "x: wide columns",
    "y: 1,000 units, narrow rows",
    "y: wide rows",
    "y: narrow columns",
    "y: wide columns",
    "products: 1,000 steps and slots, half types",
    "products: floats",
    "1,000 right operands",
    "weights: 100,000 units",
    "x: 1,000 runs in rows",
    "y: 1,000 runs in rows",
    "half types, tight: units of x",
    "half types, tight: products",
    "floats, tight: units of x",
    "floats, tight: products",
    "turns of chunks",
    "turns of 10 steps",
    "turns of loads of rows",
    "turns of stores of rows",
    "turns of narrow loads of columns",
    "turns of stores of columns",
    "turns of wide loads of columns",
};

struct Mma {
  std::array<double, mma_terms.size()> microseconds;  ///< for each of the terms
  double start;                                       ///< seconds besides the time of memory
  /// Multiply-adds per clock and multiprocessor of mma.sync; never the limit of this kernel there.
  double halves, tf32, tf32x3;
};

struct Simt {
  double start;                      ///< seconds
  double fma_first, fma_last;        ///< reached share of the FMA units' rate, by layout
  double memory_first, memory_last;  ///< reached share of the copy rate
  double sectors;                    ///< arithmetic, for each sector that is read again
  double doubt;                      ///< half types on GPUs where nothing was measured: tensor cores are
                                     ///< preferred
};

}  // namespace kronsparse::cuda::tuning
