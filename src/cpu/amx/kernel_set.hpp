// The functions that tile registers provide to the drivers, and the format of operands they share.
//
// One instruction multiplies a tile of 16 rows by one of 16 columns over 32 terms of bf16, and adds up in
// f32. Operands are *strips*: 16 rows or columns and all terms, one tile of 1 KiB for every 32 of them. A
// tile of columns holds terms in pairs: line t of it has two terms of every column, side by side. Which two
// does not matter, as long as rows have the same ones there.
//
// Numbers of f16 go in two pieces of bf16 that add up to them exactly (see pieces.hpp). The pieces of an x
// are a pair, so a tile has 16 terms; weights have two tiles for each of X: one has the first piece of a
// weight in both places of its pair, the other the second. Four products of pieces make one of f16, exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/simd/kernel_set.hpp"

namespace kronsparse::amx {

using simd::Act;
using simd::Prefetch;

inline constexpr int tile_rows = 16;   ///< rows, or columns, of a strip
inline constexpr int tile_terms = 32;  ///< terms of a tile, or pieces of half as many
inline constexpr int tile_bytes = 1024;
inline constexpr int tile_sums = tile_rows * tile_rows;

/// One or two strips of rows times one or two of columns.
struct ProductArgs {
  const std::byte* a[2];
  const std::byte* in_place[2];  ///< rows whose first tiles are read where they lie
  std::int64_t in_place_stride;  ///< bytes from one such row to the next
  std::int64_t in_place_tiles;   ///< so many of a strip
  const std::byte* b[2];
  std::int64_t tiles;     ///< of a strip of X
  int a_pieces;           ///< tiles of rows for each of X: 1, or 2 where rows are weights of f16
  int b_pieces;           ///< likewise of columns
  float* c;               ///< the sums of the first strips
  std::int64_t c_stride;  ///< floats from one row to the next
  std::int64_t c_a_step;  ///< floats to the sums of the second strip of rows
  std::int64_t c_b_step;  ///< floats to the sums of the second strip of columns
  Prefetch* next_x;       ///< advanced once a tile; may be null
};

/// Rows of X (batch_last), each a term, to strips of columns. A line is a pair of neighbouring terms, or one
/// in two pieces.
struct PackColumnsArgs {
  const std::uint16_t* x;    ///< first term, first column
  std::int64_t term_stride;  ///< elements from one term to the next
  std::int64_t terms;        ///< all there are; tiles are filled up with zeros
  std::int64_t columns;      ///< likewise
  std::int64_t first_line;
  std::int64_t last_line;
  std::byte* strips;
};

/// Samples of X (batch_first) to strips of rows, one for each of J neighbouring j. Pairs are terms 16 apart,
/// neighbours where J is 1, or pieces of one.
struct PackRowsArgs {
  const std::uint16_t* x;      ///< first sample of the strip, first term, first j
  std::int64_t sample_stride;  ///< elements from one sample to the next
  std::int64_t term_stride;    ///< elements from one term to the next: J, or more where J is 16
  std::int64_t terms;          ///< all there are; tiles are filled up with zeros
  std::int64_t first_term;     ///< tiles before it are left out
  int samples;                 ///< as terms
  int first_row;
  int last_row;
  std::byte* strips;
  std::int64_t strip_step;  ///< bytes from one j to the next
};

/// Sums of J strips, one for each of J > 1 neighbouring j, on their way to Y: interleaved, bias, activation,
/// rounding. Vector q of a row goes to y + q·vector_step.
struct FinishArgs {
  const float* c;  ///< J tiles one after the other
  int rows;
  int reals;                  ///< valid of a row, at most 16·J
  const std::uint16_t* bias;  ///< laid out as a row of Y; may be null
  Act activation;
  std::uint16_t* y;
  std::int64_t y_stride;     ///< elements from one row to the next
  std::int64_t vector_step;  ///< elements
  bool stream;               ///< around the caches: y, its stride and two vectors of halves are whole lines
};

/// Sums of two strips side by side: the same where neighbours need not be interleaved.
struct FinishPairArgs {
  const float* c;  ///< rows of 32
  int rows;
  int reals;                         ///< valid of a row
  const float* row_bias;             ///< one for each row; may be null
  const std::uint16_t* vector_bias;  ///< laid out as a row of Y; may be null
  Act activation;
  std::uint16_t* y;
  std::int64_t y_stride;  ///< elements from one row to the next
  bool stream;            ///< around the caches, where all reals are valid: y and its stride are whole lines
};

inline constexpr int group_kinds = 5;  ///< J = 1, 2, 4, 8, 16

/// The conversions of X and Y on their way, for one dtype.
struct HalfKernels {
  void (*pack_columns)(const PackColumnsArgs&);
  void (*pack_rows[group_kinds])(const PackRowsArgs&);  ///< by log2(J)
  void (*finish[group_kinds - 1])(const FinishArgs&);   ///< by log2(J) - 1
  void (*finish_pair)(const FinishPairArgs&);
};

/// Tile registers of one kind: those of the CPU, or arrays that behave as they do.
struct KernelSet {
  const char* implementation;  ///< its name
  const char* missing;         ///< what a CPU without it is told
  bool (*usable)();
  void (*begin)();  ///< what a thread does before its first product,
  void (*end)();    ///< and after its last
  /// By the number of strips of rows and of columns, less one.
  void (*product[2][2])(const ProductArgs&);
  HalfKernels bf16, f16;
};

#if defined(__x86_64__)
extern const KernelSet tiles_of_cpu;
#endif
#if defined(KRONSPARSE_WITH_EMULATED_TILES)
extern const KernelSet emulated_tiles;
#endif

}  // namespace kronsparse::amx
