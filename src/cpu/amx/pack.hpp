// X on its way into strips. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/kernel_set.hpp"
#include "cpu/amx/pieces.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// `count` elements of 32, the others zero; nothing is read beyond them.
KRONSPARSE_INLINE Vector<uint16_t> load_line(const uint16_t* source, int64_t count) {
  if (count >= 32) return load(source);
#if defined(__AVX512BW__)
  const auto valid = static_cast<__mmask32>(count > 0 ? (1U << static_cast<unsigned>(count)) - 1U : 0U);
  return bits_as<Vector<uint16_t>>(_mm512_maskz_loadu_epi16(valid, source));
#else
  uint16_t some[32] = {};
  if (count > 0) __builtin_memcpy(some, source, static_cast<size_t>(count) * sizeof *source);
  return load(some);
#endif
}
/// 16 elements in lanes of their own: bf16 as it is, f16 as f32.
template <Storage storage>
KRONSPARSE_INLINE Vu load_lanes(const uint16_t* source) {
  if constexpr (storage == Storage::f16) return bits_as<Vu>(widen_f16(source));
  return load_half(source);
}
/// `count` of them, the others zero.
template <Storage storage>
KRONSPARSE_INLINE Vu load_some(const uint16_t* source, int64_t count) {
  if (count >= 16) return load_lanes<storage>(source);
  const Vector<uint16_t> some = load_line(source, count);
  return load_lanes<storage>(reinterpret_cast<const uint16_t*>(&some));
}

/// A line of a tile: 16 pairs of bf16.
KRONSPARSE_INLINE void store_line(std::byte* line, Vu pairs) {
  store(reinterpret_cast<uint32_t*>(line), pairs);
}
KRONSPARSE_INLINE Vu paired(Vu first, Vu second) { return first | (second << 16); }
/// Both pieces of 16 numbers of f16; pieces.hpp says why these.
KRONSPARSE_INLINE Vu in_pieces(Vu numbers) {
  const Vf x = bits_as<Vf>(numbers);
  const Vu first = bits_as<Vu>(x * splat(amx::first_piece)) & 0xffff0000u;
  const Vf rest = x - bits_as<Vf>(first);
  const Vf second = is_number(rest) ? rest : x;
  return (first >> 16) | (bits_as<Vu>(second) & 0xffff0000u);
}

template <Storage storage>
void pack_columns(const amx::PackColumnsArgs& args) {
  constexpr int of_a_line = storage == Storage::f16 ? 1 : 2;
  constexpr int of_a_tile = 16 * of_a_line;
  const int64_t strip_bytes = (args.terms + of_a_tile - 1) / of_a_tile * amx::tile_bytes;
  for (int64_t number = args.first_line; number < args.last_line; ++number) {
    const int64_t term = of_a_line * number;
    const uint16_t* first = args.x + term * args.term_stride;
    std::byte* line = args.strips + number * 64;
    for (int64_t column = 0; column < args.columns; column += 16, line += strip_bytes) {
      const int64_t count = args.columns - column;
      const Vu one = term < args.terms ? load_some<storage>(first + column, count) : Vu{};
      if constexpr (storage == Storage::f16) {
        store_line(line, in_pieces(one));
      } else {
        const uint16_t* second = first + args.term_stride;
        store_line(line,
                   paired(one, term + 1 < args.terms ? load_some<storage>(second + column, count) : Vu{}));
      }
    }
  }
}

template <int first, int... lane>
KRONSPARSE_INLINE Vu every_other(Vu u, Vu v, Lanes<lane...>) {
  return __builtin_shufflevector(u, v, (2 * lane + first)...);
}
/// J vectors of elements (l, j), j the faster, to J vectors of one j each.
template <int J>
KRONSPARSE_INLINE void sort_by_j(Vu (&v)[J]) {
  if constexpr (J > 1) {
    constexpr typename FirstLanes<16>::type every{};
    Vu even[J / 2], odd[J / 2];
#pragma GCC unroll 8
    for (int p = 0; p < J / 2; ++p) {
      even[p] = every_other<0>(v[2 * p], v[2 * p + 1], every);
      odd[p] = every_other<1>(v[2 * p], v[2 * p + 1], every);
    }
    sort_by_j<J / 2>(even);
    sort_by_j<J / 2>(odd);
#pragma GCC unroll 8
    for (int p = 0; p < J / 2; ++p) {
      v[2 * p] = even[p];
      v[2 * p + 1] = odd[p];
    }
  }
}

/// The terms [term, term + 16) of one sample, a vector for each j.
template <Storage storage, int J>
KRONSPARSE_INLINE void load_terms(const uint16_t* x, const amx::PackRowsArgs& args, int64_t term,
                                  Vu (&v)[J]) {
  const int64_t valid = args.terms - term;
  const uint16_t* source = x + term * args.term_stride;
#pragma GCC unroll 16
  for (int q = 0; q < J; ++q) {
    if constexpr (J == 16) {
      v[q] = q < valid ? load_lanes<storage>(source + q * args.term_stride) : Vu{};
    } else {
      v[q] = load_some<storage>(source + static_cast<ptrdiff_t>(16) * q, valid * J - 16 * q);
    }
  }
  sort_by_j<J>(v);
}

template <Storage storage, int J>
void pack_rows(const amx::PackRowsArgs& args) {
  constexpr int of_a_tile = storage == Storage::f16 ? amx::tile_terms / 2 : amx::tile_terms;
  for (int row = args.first_row; row < args.last_row; ++row) {
    const uint16_t* x = args.x + row * args.sample_stride;
    std::byte* line =
        args.strips + static_cast<ptrdiff_t>(64) * row + args.first_term / of_a_tile * amx::tile_bytes;
    for (int64_t term = args.first_term; term < args.terms; term += of_a_tile, line += amx::tile_bytes) {
      if constexpr (storage == Storage::f16) {
        Vu v[J] = {};
        if (row < args.samples) load_terms<storage, J>(x, args, term, v);
#pragma GCC unroll 16
        for (int j = 0; j < J; ++j) store_line(line + j * args.strip_step, in_pieces(v[j]));
        continue;
      }
      if constexpr (J == 1) {
        // As they lie.
        store(reinterpret_cast<uint16_t*>(line),
              load_line(x + term, row < args.samples ? args.terms - term : 0));
        continue;
      }
      Vu u[J] = {}, v[J] = {};
      if (row < args.samples) {
        load_terms<storage, J>(x, args, term, u);
        if (term + 16 < args.terms) load_terms<storage, J>(x, args, term + 16, v);
      }
#pragma GCC unroll 16
      for (int j = 0; j < J; ++j) store_line(line + j * args.strip_step, paired(u[j], v[j]));
    }
  }
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
