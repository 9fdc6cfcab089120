// The functions that one instruction set provides to the drivers, as a table.
//
// Everything above this line of abstraction (blocking, packing, threading) is
// compiled once for the base architecture; everything below is compiled once
// per instruction set. ISA files therefore include nothing whose inline
// functions the linker could confuse with the base versions.
#pragma once

#include <cstdint>

namespace kronsparse::simd {

/// Storage of X, Y and bias relative to the type arithmetic is done in.
enum class Storage : std::uint8_t { same, f16, bf16, complex };

/// Mirrors kronsparse::Activation, which ISA files must not see (see above).
enum class Act : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

/// Lines of a block of rows.
struct PrefetchedRows {
  static constexpr std::int64_t line = 64;

  const char* row = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
  std::int64_t row_stride = 0;  ///< bytes
  std::int64_t step = line;     ///< bytes from one line to the next that is wanted

  [[nodiscard]] __attribute__((always_inline)) std::int64_t lines() const {
    return rows * ((row_bytes + step - 1) / step);
  }
};

/// Rows fetched into L2 little by little, while something else is computed.
/// Asking for many lines at once would stall on the few a core can have under
/// way, so the micro-kernel asks for a few every `interval` terms.
struct Prefetch : PrefetchedRows {
  PrefetchedRows later = {};  ///< what follows: Y, where it is not written around the caches
  std::int64_t offset = 0;
  std::int64_t interval = 32;
  std::int64_t lines_per_call = 0;

  static constexpr std::int64_t short_interval = 8;
  /// Spreads the block over so many tiles of this depth. Short sums ask more often, for they have much to ask
  /// for beside little to compute; and so do tiles that also send an outbox.
  __attribute__((always_inline)) void spread_over(std::int64_t tiles, std::int64_t depth, bool sends) {
    interval = sends ? short_interval : depth < 64 ? 16 : 32;
    spread_over_calls(tiles * ((depth + interval - 1) / interval));
  }
  /// Asks for all of it in so many calls of advance().
  __attribute__((always_inline)) void spread_over_calls(std::int64_t calls) {
    const std::int64_t all = lines() + later.lines();
    lines_per_call = calls > 0 ? (all + calls - 1) / calls : all;
  }
  __attribute__((always_inline)) void advance() {
    // Locals: as far as the compiler knows, somebody could look at the members in between.
    const char* from = row;
    std::int64_t left = rows;
    std::int64_t at = offset;
    for (std::int64_t n = lines_per_call; n > 0 && left > 0; --n) {
      __builtin_prefetch(from + at, 0, 2);
      at += step;
      if (at >= row_bytes) {
        at = 0;
        from += row_stride;
        --left;
      }
    }
    if (left == 0) {
      static_cast<PrefetchedRows&>(*this) = later;
      later.rows = 0;
      offset = 0;
      return;
    }
    row = from;
    rows = left;
    offset = at;
  }
};

inline constexpr int max_lanes = 16;        ///< of any vector
inline constexpr int max_vectors = 6;       ///< widest panel, in vectors
inline constexpr int group_kinds = 5;       ///< G = 1, 2, 4, 8, 16
inline constexpr int max_tile_rows = 8;     ///< most rows of any tile
inline constexpr int full_tile_rows = 4;    ///< rows of a tile whose groups fill a vector or three
inline constexpr int max_panel_lanes = 96;  ///< most lanes of any panel
inline constexpr int max_tile_size = max_tile_rows * max_panel_lanes;

/// Lines of a finished tile on their way around the caches. All at once they would take the places in which
/// the next tile's operands come from L2; so they wait in L1, and that tile sends a few of them at a time.
template <class Real>
struct Outbox {
  alignas(64) Real lines[max_tile_size];
  Real* target[max_tile_rows * max_vectors];
  int sent = 0;
  int count = 0;
};

/// One register tile: for each row m < rows and vector r of the panel,
///   out[m][r] = init[m][r] + sum_t group(a[m·a_row_stride + t·a_step]) * b[t][r]
/// where group() repeats G neighbouring elements across a vector.
template <class Real>
struct TileArgs {
  std::int64_t depth;  ///< terms t
  const Real* a;
  std::int64_t a_row_stride;
  std::int64_t a_step;
  int rows;          ///< valid rows, 1..MR; further ones are computed and dropped
  const Real* b;     ///< panel: depth x (NR vectors), contiguous
  const Real* init;  ///< nullptr starts from zero
  std::int64_t init_row_stride;
  void* out;  ///< of `storage`; strides count its elements
  std::int64_t out_row_stride;
  std::int64_t out_vector_stride;
  Storage storage;
  Prefetch* next_x;  ///< what the next task reads; null when nothing is left to fetch
  /// Write around the caches: out and its row stride are multiples of a cache line, and so is what is written
  /// at a time, a vector of reals or two neighbours of halves.
  bool stream;
  Outbox<Real>* outbox;  ///< sent while this tile is computed, then filled with what it streams; may be null
};

/// The way of a finished tile from a buffer into Y: activation, rounding,
/// scatter. Lane f of a row belongs at
///   (f / piece)·piece_stride + (f % piece / unit)·unit_stride + f % unit
/// counted in reals (halves for the 16-bit types).
template <class Real>
struct FinishArgs {
  Real* tile;  ///< rows x row_length, row_length a multiple of the lanes; clobbered
  int rows;
  int row_length;
  int lanes_valid;
  Act activation;
  Storage storage;
  void* out;
  std::int64_t out_row_stride;
  int piece;
  std::int64_t piece_stride;
  int unit;
  std::int64_t unit_stride;
};

/// A few outputs of one (i, j), for all of some samples in 16-bit storage, whose rows lie near each other.
struct ColumnsArgs {
  const std::uint16_t* x;  ///< of the first term
  std::int64_t x_stride;   ///< from term to term
  std::int64_t depth;
  const float* weights;  ///< of the first term: one for each row
  std::int64_t weights_step;
  int rows;           ///< outputs, at most as many as a tile of the column driver has
  const float* bias;  ///< one for each row; nullptr for none
  std::uint16_t* y;
  std::int64_t y_stride;
  std::int64_t columns;  ///< samples, at least as many as a tile of the column driver has
  Storage storage;       ///< f16 or bf16
  Act activation;
};

template <class Real>
struct KernelSet {
  using Tile = void (*)(const TileArgs<Real>&);
  int lanes;                ///< reals in a vector
  int widest_panel;         ///< largest NR of the row driver, groups narrower than a vector
  int widest_full;          ///< the same for groups that fill the vector
  int column_panel;         ///< NR of the column driver
  double flops_per_second;  ///< of one thread, nominal: for the cost model
  /// Tile rows MR for panels of NR vectors, by NR - 1.
  int tile_rows[max_vectors];
  /// By log2(G), NR - 1, and row class: 0 for up to MR rows, 1 for up to 4, 2 for one.
  Tile tile[group_kinds][max_vectors][3];
  /// For groups of three vectors: of one group or two; for up to 4 rows, for one.
  Tile tile_of_threes[2][2];
  void (*finish)(const FinishArgs<Real>&);
  /// Sends what waits in an outbox; null where an outbox is not worth its while.
  void (*send)(Outbox<Real>&);
  /// Converts `count` elements to Real (storage same, f16 or bf16).
  void (*widen)(const void* source, Storage storage, Real* target, std::int64_t count);
  /// Converts `steps` runs of `vectors` whole vectors; runs start source_step
  /// elements apart and go to target_step reals apart, vectors of a run to
  /// vector_step reals apart.
  void (*widen_runs)(const void* source, Storage storage, std::int64_t source_step, std::int64_t steps,
                     int vectors, Real* target, std::int64_t target_step, std::int64_t vector_step);
  /// The column driver's work on 16-bit storage without a copy of x; null where Real is no float.
  void (*columns_in_place)(const ColumnsArgs&);
  /// Repeats each of `terms` groups of d reals, 2, 3 or 6, until they fill one vector or three; these go to
  /// target_step reals apart. Reads up to a vector beyond the last group. Null where the instruction set does
  /// as well without.
  void (*repeat)(const Real* source, std::int64_t d, std::int64_t terms, Real* target,
                 std::int64_t target_step);
};

/// One instruction set. `usable` tells whether this CPU has it.
struct Isa {
  const char* name;     ///< of the implementation, "simd-avx512"
  const char* missing;  ///< what a CPU without it is told: "this CPU has no AVX-512 (F, DQ, BW, VL)"
  bool (*usable)();
  const KernelSet<float>* f32;
  const KernelSet<double>* f64;
};

#if defined(__x86_64__)
/// The answer of __builtin_cpu_supports("f16c"); older clangs do not know that name.
[[nodiscard]] bool cpu_has_f16c();
extern const Isa isa_avx512;
extern const Isa isa_avx2;
#endif
extern const Isa isa_baseline;

}  // namespace kronsparse::simd
