// The fitted constants of the cost models in gradient/. Every member is a double, so that a program can try
// others (tools/sweeps).
#pragma once

namespace kronsparse::cuda::tuning {

struct GradientWgmma {
  double start;           ///< seconds
  double product_rate;    ///< multiply-adds per clock of a multiprocessor
  double sorted, shared;  ///< bytes per clock: sorted by j; through shared memory
  double taken_in;        ///< bytes per clock from L2
  double stage;           ///< clocks of a stage at least
  double storing;         ///< clocks of the end of a block
  double stored;          ///< bytes per clock
  double memory;          ///< in times of a copy
  double l2_rate;         ///< in copy rates
  double mixed;           ///< share of the work that could overlap but does not
};

struct GradientMma {
  double start;  ///< seconds
  /// Clocks of a multiprocessor for a product of 16 x 8 x 16: the time of mma.sync or of the loads from
  /// shared memory, whichever is longer. One j; runs of 8, 4 and 2 elements, in rows of 16 j or of fewer;
  /// single elements.
  double one_j, by_8, by_4_of_16_j, by_4, by_2_of_16_j, by_2, by_1;
  double copied_by_16, copied_by_4, copied_by_2;  ///< bytes per clock into shared memory, by width
  double taken_in;                                ///< bytes per clock from L2
  double latency,
      step_latency;   ///< clocks: of loads; of a warp that waits for its loads, then for its products
  double not_hidden;  ///< loads, sorting and products one after the other
  double block;       ///< seconds of each wave
  double stored;      ///< bytes per clock
  double l2_rate;     ///< in copy rates
  double memory;      ///< in times of a copy
  double mixed;       ///< share of the work that could overlap but does not
  /// Corrections beyond all of this, measured: rows, columns, runs of 16 j and of fewer.
  double of_rows, of_columns, of_16_j, of_runs;
};

struct GradientSimt {
  double start;    ///< seconds
  double fma;      ///< reached share of the FMA units' rate
  double sectors;  ///< arithmetic, for each sector that is read again
};

}  // namespace kronsparse::cuda::tuning
