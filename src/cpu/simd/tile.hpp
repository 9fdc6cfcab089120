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
#include "cpu/simd/columns_in_place.hpp"
#include "cpu/simd/convert.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
/// A vector is a line, and one on its way around the caches costs the tile 8 clocks.
inline constexpr bool has_outbox = true;
#else
inline constexpr bool has_outbox = false;           // no such stores, or unmeasured
#endif

/// Sends so many of the lines that wait.
template <class Real>
KRONSPARSE_INLINE void send_some(Outbox<Real>& outbox, int lines) {
  const int last = outbox.sent + lines < outbox.count ? outbox.sent + lines : outbox.count;
  for (int line = outbox.sent; line < last; ++line)
    stream(outbox.target[line], load(outbox.lines + line * lanes<Real>));
  outbox.sent = last;
}
template <class Real>
void send(Outbox<Real>& outbox) {
  send_some(outbox, outbox.count);
}

/// Line `line` of a tile around the caches: at once, or when the outbox is sent.
template <class Real>
KRONSPARSE_INLINE void stream_by(Outbox<Real>* outbox, int line, Real* target, Vector<Real> v) {
  if (outbox == nullptr) return stream(target, v);
  store(outbox->lines + line * lanes<Real>, v);
  outbox->target[line] = target;
}

template <Storage storage, bool sends, class Element, class Real, int MR, int NR>
KRONSPARSE_INLINE void store_tile(const TileArgs<Real>& args, const Vector<Real> (&acc)[MR][NR]) {
  // Copied to locals: as far as the compiler knows, the stores could change args.
  const int rows = args.rows;
  const int64_t row_stride = args.out_row_stride;
  const int64_t vector_stride = args.out_vector_stride;
  auto* out = static_cast<Element*>(args.out);
  Outbox<Real>* const outbox = sends && args.stream ? args.outbox : nullptr;
  if (outbox != nullptr) {
    send(*outbox);
    outbox->sent = 0;
    outbox->count = storage == Storage::same ? rows * NR : rows * NR / 2;
  }
  if constexpr (storage == Storage::same) {
    if (args.stream) {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        if (m == rows) break;
#pragma GCC unroll 6
        for (int r = 0; r < NR; ++r) stream_by(outbox, m * NR + r, out + r * vector_stride, acc[m][r]);
        out += row_stride;
      }
      return;
    }
  } else if constexpr (NR % 2 == 0) {
    // Two vectors of halves are one.
    if (args.stream) {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        if (m == rows) break;
#pragma GCC unroll 3
        for (int r = 0; r < NR; r += 2) {
          const auto both = joined(narrow<storage>(acc[m][r]), narrow<storage>(acc[m][r + 1]));
          stream_by(outbox, (m * NR + r) / 2, reinterpret_cast<Real*>(out + r * vector_stride),
                    bits_as<Vector<Real>>(both));
        }
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
struct RowSource {
  const Real* row[MR];  ///< the first alone where they are adjacent

  // Missing rows repeat the last one: no branch in the loop, nothing read out of bounds.
  KRONSPARSE_INLINE explicit RowSource(const TileArgs<Real>& args) {
    if constexpr (adjacent) {
      row[0] = args.a;
    } else {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) row[m] = args.a + (m < args.rows ? m : args.rows - 1) * args.a_row_stride;
    }
  }
  KRONSPARSE_INLINE Vector<Real> group(int m, int64_t offset) const {
    return load_group<(G < lanes<Real> ? G : lanes<Real>)>(adjacent ? row[0] + offset + m : row[m] + offset);
  }
};

template <class Real, int MR, int NR, int G, bool sends, bool adjacent>
KRONSPARSE_INLINE void accumulate(const TileArgs<Real>& args, Vector<Real> (&acc)[MR][NR]) {
  constexpr int width = NR * lanes<Real>;
  constexpr int group_vectors = G > lanes<Real> ? G / lanes<Real> : 1;
  static_assert(NR % group_vectors == 0);
  const RowSource<Real, MR, G, adjacent> rows(args);
  const Real* b = args.b;
  const int64_t step = args.a_step;
  int64_t offset = 0;
  const bool prefetching = args.next_x != nullptr;
  const bool sending = sends && args.outbox->sent < args.outbox->count;
  const int64_t interval = prefetching ? args.next_x->interval
                           : sending   ? Prefetch::short_interval
                                       : args.depth;
  int lines = 0;
  if (sending) {
    const auto calls = static_cast<int>((args.depth + interval - 1) / interval);
    lines = (args.outbox->count + calls - 1) / calls;
  }
  for (int64_t done = 0; done < args.depth; done += interval) {
    const int64_t rest = args.depth - done;
    for (int64_t t = rest < interval ? rest : interval; t > 0; --t) {
#pragma GCC unroll 3
      for (int g = 0; g < group_vectors; ++g) {
        Vector<Real> panel[NR / group_vectors];
#pragma GCC unroll 6
        for (int r = 0; r < NR / group_vectors; ++r)
          panel[r] = load(b + (r * group_vectors + g) * lanes<Real>);
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) {
          const Vector<Real> group = rows.group(m, offset + g * lanes<Real>);
#pragma GCC unroll 6
          for (int r = 0; r < NR / group_vectors; ++r) acc[m][r * group_vectors + g] += group * panel[r];
        }
      }
      b += width;
      offset += step;
    }
    if (prefetching) args.next_x->advance();
    if (sending) send_some(*args.outbox, lines);
  }
}

template <class Real, int MR, int NR, int G, bool sends>
KRONSPARSE_INLINE void compute_tile(const TileArgs<Real>& args) {
  Vector<Real> acc[MR][NR];  // MR x NR vectors, all in registers
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 6
    for (int r = 0; r < NR; ++r) acc[m][r] = Vector<Real>{};
  }
  // As the weights of batch_last do. Copied x does as well, in groups, but gains nothing from it.
  constexpr bool may_be_adjacent = prefers_one_pointer && MR > 1 && G == 1;
  if (may_be_adjacent && args.a_row_stride == 1 && args.rows == MR) {
    accumulate<Real, MR, NR, G, sends, may_be_adjacent>(args, acc);
  } else {
    accumulate<Real, MR, NR, G, sends, false>(args, acc);
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
    if (args.storage == Storage::f16) return store_tile<Storage::f16, sends, uint16_t>(args, acc);
    if (args.storage == Storage::bf16) return store_tile<Storage::bf16, sends, uint16_t>(args, acc);
  }
  store_tile<Storage::same, sends, Real>(args, acc);
}

template <class Real, int MR, int NR, int G>
void tile(const TileArgs<Real>& args) {
  // Apart, so that tiles without an outbox need not look for one: short sums would be up to 9 % slower.
  if constexpr (has_outbox && (G == 1 || G >= lanes<Real>)) {
    if (args.outbox != nullptr) return compute_tile<Real, MR, NR, G, true>(args);
  }
  compute_tile<Real, MR, NR, G, false>(args);
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

/// Vector `number` of a group of d reals that is repeated. The group is in two vectors: its beginning and,
/// where it is longer than a vector, its end.
template <int d, int number, class Real, int... lane>
KRONSPARSE_INLINE Vector<Real> repeated(Vector<Real> begin, Vector<Real> end, Lanes<lane...>) {
  constexpr int all = lanes<Real>;
  constexpr auto place = [](int at) { return at < all ? at : all + at - (d - all); };
  return __builtin_shufflevector(begin, end, place((number * all + lane) % d)...);
}

template <int d, class Real>
KRONSPARSE_INLINE void repeat_groups(const Real* source, int64_t terms, Real* target, int64_t target_step) {
  constexpr int all = lanes<Real>;
  constexpr typename FirstLanes<all>::type every{};
  for (int64_t t = 0; t < terms; ++t, source += d, target += target_step) {
    const Vector<Real> begin = load(source), end = load(source + (d > all ? d - all : 0));
    store(target, repeated<d, 0, Real>(begin, end, every));
    if constexpr (d % 3 == 0) {
      store(target + all, repeated<d, 1, Real>(begin, end, every));
      store(target + 2 * all, repeated<d, 2, Real>(begin, end, every));
    }
  }
}

template <class Real>
void repeat(const Real* source, int64_t d, int64_t terms, Real* target, int64_t target_step) {
  if (d == 2) return repeat_groups<2>(source, terms, target, target_step);
  if (d == 3) return repeat_groups<3>(source, terms, target, target_step);
  repeat_groups<6>(source, terms, target, target_step);
}

/// Fills the function table; TileRows(NR) is what the registers hold.
template <class Real, int TileRows(int), bool repeats = false>
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
  template <int column_panel>
  static constexpr KernelSet<Real> make(int widest_panel, int widest_full, double flops_per_second) {
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
    if constexpr (repeats) {
      constexpr int three = 3 * lanes<Real>;
      set.tile_of_threes[0][0] = tile<Real, full_tile_rows, 3, three>;
      set.tile_of_threes[0][1] = tile<Real, 1, 3, three>;
      set.tile_of_threes[1][0] = tile<Real, full_tile_rows, 6, three>;
      set.tile_of_threes[1][1] = tile<Real, 1, 6, three>;
      set.repeat = repeat<Real>;
    }
    if constexpr (has_outbox) set.send = send<Real>;
    set.finish = finish<Real>;
    set.widen = widen<Real>;
    set.widen_runs = widen_runs<Real>;
    if constexpr (sizeof(Real) == 4)
      set.columns_in_place = columns_in_place<TileRows(column_panel), column_panel>;
    return set;
  }
};

}  // namespace kronsparse::simd::KRONSPARSE_ISA
