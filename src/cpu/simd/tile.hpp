// The micro-kernel. Included by isa_*.cpp only.
//
// Every product of this backend is made of one kind of step: a few rows times
// a panel of a few vectors, where the row operand is a group of G neighbouring
// elements repeated across the vector. G = 1 is the textbook GEMM kernel; G > 1
// is what makes Kronecker-sparse products need no permutation: lane f of the
// panel stands for output (k, j) = (f / G, f % G) and needs x[l·d + j], so the
// group x[l·d .. l·d + G) is loaded as it lies in memory.
#pragma once

#include "cpu/simd/activation.hpp"
#include "cpu/simd/convert.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

template <Storage storage, class Element, class Real, int MR, int NR>
KRONSPARSE_INLINE void store_tile(const TileArgs<Real>& args, const Vector<Real> (&acc)[MR][NR]) {
  // Copied to locals: as far as the compiler knows, the stores could change args.
  const int rows = args.rows;
  const int64_t row_stride = args.out_row_stride;
  const int64_t vector_stride = args.out_vector_stride;
  auto* out = static_cast<Element*>(args.out);
  if constexpr (storage == Storage::same) {
    if (args.stream) {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        if (m == rows) break;
#pragma GCC unroll 6
        for (int r = 0; r < NR; ++r) stream(out + r * vector_stride, acc[m][r]);
        out += row_stride;
      }
      return;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    if (m == rows) break;
#pragma GCC unroll 6
    for (int r = 0; r < NR; ++r) store_as<storage, Real>(out + r * vector_stride, acc[m][r]);
    out += row_stride;
  }
}

#if defined(__x86_64__)
/// Six pointers and their index are half of the 16 general registers: to set them up is 10 % of a short sum.
inline constexpr bool prefers_one_pointer = true;
#else
inline constexpr bool prefers_one_pointer = false;  // 3 to 5 % slower on a Neoverse N1
#endif

/// The rows of a tile: MR pointers, or one where they lie side by side (`adjacent`).
template <class Real, int MR, int G, bool adjacent>
struct TileRows {
  const Real* row[adjacent ? 1 : MR];

  // Missing rows repeat the last one: no branch in the loop, nothing read out of bounds.
  KRONSPARSE_INLINE explicit TileRows(const TileArgs<Real>& args) {
    if constexpr (adjacent) {
      row[0] = args.a;
    } else {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) row[m] = args.a + (m < args.rows ? m : args.rows - 1) * args.a_row_stride;
    }
  }
  KRONSPARSE_INLINE Vector<Real> group(int m, int64_t offset) const {
    return load_group<G>(adjacent ? row[0] + offset + m : row[m] + offset);
  }
};

template <class Real, int MR, int NR, int G, bool adjacent>
KRONSPARSE_INLINE void accumulate(const TileArgs<Real>& args, Vector<Real> (&acc)[MR][NR]) {
  constexpr int width = NR * lanes<Real>;
  const TileRows<Real, MR, G, adjacent> rows(args);
  const Real* b = args.b;
  const int64_t step = args.a_step;
  int64_t offset = 0;
  const bool prefetching = args.next_x != nullptr;
  const int64_t interval = prefetching ? args.next_x->interval : args.depth;
  for (int64_t done = 0; done < args.depth; done += interval) {
    const int64_t rest = args.depth - done;
    for (int64_t t = rest < interval ? rest : interval; t > 0; --t) {
      Vector<Real> panel[NR];
#pragma GCC unroll 6
      for (int r = 0; r < NR; ++r) panel[r] = load(b + r * lanes<Real>);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        const Vector<Real> group = rows.group(m, offset);
#pragma GCC unroll 6
        for (int r = 0; r < NR; ++r) acc[m][r] += group * panel[r];
      }
      b += width;
      offset += step;
    }
    if (prefetching) args.next_x->advance();
  }
}

template <class Real, int MR, int NR, int G>
void tile(const TileArgs<Real>& args) {
  Vector<Real> acc[MR][NR];  // MR x NR vectors, all in registers
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 6
    for (int r = 0; r < NR; ++r) acc[m][r] = Vector<Real>{};
  }
  // As the weights of batch_last do. Copied x does as well, in groups, but gains nothing from it.
  constexpr bool may_be_adjacent = prefers_one_pointer && MR > 1 && G == 1;
  if (may_be_adjacent && args.a_row_stride == 1 && args.rows == MR) {
    accumulate<Real, MR, NR, G, may_be_adjacent>(args, acc);
  } else {
    accumulate<Real, MR, NR, G, false>(args, acc);
  }
  if (args.init != nullptr) {
    const Real* init = args.init;
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      if (m == args.rows) break;
#pragma GCC unroll 6
      for (int r = 0; r < NR; ++r) acc[m][r] += load(init + r * lanes<Real>);
      init += args.init_row_stride;
    }
  }
  if constexpr (sizeof(Real) == 4) {
    if (args.storage == Storage::f16) return store_tile<Storage::f16, uint16_t, Real, MR, NR>(args, acc);
    if (args.storage == Storage::bf16) return store_tile<Storage::bf16, uint16_t, Real, MR, NR>(args, acc);
  }
  store_tile<Storage::same, Real, Real, MR, NR>(args, acc);
}

/// Copies the lanes of one row, already rounded, to their places in Y.
template <class Element, class Real>
KRONSPARSE_INLINE void scatter(const Element* row, Element* out, const FinishArgs<Real>& args) {
  const bool whole_pieces = args.unit_stride == args.unit;
  if (whole_pieces && args.piece_stride == args.piece) {
    for (int f = 0; f < args.lanes_valid; ++f) out[f] = row[f];
    return;
  }
  for (int f = 0; f < args.lanes_valid; f += args.piece, out += args.piece_stride) {
    const int count = args.lanes_valid - f < args.piece ? args.lanes_valid - f : args.piece;
    if (whole_pieces) {
      for (int e = 0; e < count; ++e) out[e] = row[f + e];
    } else {
      for (int e = 0; e < count; ++e) out[e / args.unit * args.unit_stride + e % args.unit] = row[f + e];
    }
  }
}

template <Storage storage, class Element, class Real>
KRONSPARSE_INLINE void finish_as(const FinishArgs<Real>& args) {
  // Pieces of whole vectors go straight to Y; others through a buffer, lane by lane.
  const bool whole_vectors =
      args.piece % lanes<Real> == 0 && args.unit_stride == args.unit && args.lanes_valid == args.row_length;
  auto* out = static_cast<Element*>(args.out);
  const Real* row = args.tile;
  for (int m = 0; m < args.rows; ++m, row += args.row_length, out += args.out_row_stride) {
    alignas(64) Element rounded[max_panel_lanes];
    Element* piece = out;
    for (int f = 0, within = 0; f < args.row_length; f += lanes<Real>) {
      Vector<Real> v = load(row + f);
      if (args.activation != Act::none) v = activate(args.activation, v);
      store_as<storage, Real>(whole_vectors ? piece + within : rounded + f, v);
      within += lanes<Real>;
      if (within == args.piece) {
        within = 0;
        piece += args.piece_stride;
      }
    }
    if (!whole_vectors) scatter(rounded, out, args);
  }
}

template <class Real>
void finish(const FinishArgs<Real>& args) {
  if constexpr (sizeof(Real) == 4) {
    if (args.storage == Storage::f16) return finish_as<Storage::f16, uint16_t>(args);
    if (args.storage == Storage::bf16) return finish_as<Storage::bf16, uint16_t>(args);
  }
  finish_as<Storage::same, Real>(args);
}

/// Fills the function table; tile_rows<NR> is what the registers hold.
template <class Real, int TileRows(int)>
struct MakeKernelSet {
  template <int NR, int G>
  static constexpr void fill(KernelSet<Real>& set, int group_index) {
    constexpr int rows = G == lanes<Real> ? full_tile_rows : TileRows(NR);
    set.tile_rows[NR - 1] = TileRows(NR);
    set.tile[group_index][NR - 1][0] = tile<Real, rows, NR, G>;
    set.tile[group_index][NR - 1][1] = tile<Real, 4, NR, G>;
    set.tile[group_index][NR - 1][2] = tile<Real, 1, NR, G>;
  }
  template <int G>
  static constexpr void fill_group(KernelSet<Real>& set, int group_index) {
    if constexpr (G <= lanes<Real>) {
      fill<1, G>(set, group_index);
      fill<2, G>(set, group_index);
      fill<3, G>(set, group_index);
      fill<4, G>(set, group_index);
    }
    if constexpr (G == lanes<Real>) {
      fill<5, G>(set, group_index);
      fill<6, G>(set, group_index);
    }
  }
  static constexpr KernelSet<Real> make(int widest_panel, int widest_full, int column_panel,
                                        double flops_per_second) {
    KernelSet<Real> set{};
    set.lanes = lanes<Real>;
    set.widest_panel = widest_panel;
    set.widest_full = widest_full;
    set.column_panel = column_panel;
    set.flops_per_second = flops_per_second;
    fill_group<1>(set, 0);
    fill_group<2>(set, 1);
    fill_group<4>(set, 2);
    fill_group<8>(set, 3);
    fill_group<16>(set, 4);
    set.finish = finish<Real>;
    set.widen = widen<Real>;
    set.widen_runs = widen_runs<Real>;
    return set;
  }
};

}  // namespace kronsparse::simd::KRONSPARSE_ISA
