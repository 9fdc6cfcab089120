// X on its way into strips. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/kernel_set.hpp"
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
/// The same of 16, each in a lane of its own.
KRONSPARSE_INLINE Vu load_some(const uint16_t* source, int64_t count) {
  if (count >= 16) return load_half(source);
  const Vector<uint16_t> some = load_line(source, count);
  return load_half(reinterpret_cast<const uint16_t*>(&some));
}

/// A line of a tile: 16 pairs.
KRONSPARSE_INLINE void store_pairs(std::byte* line, Vu first, Vu second) {
  store(reinterpret_cast<uint32_t*>(line), first | (second << 16));
}

inline void pack_columns(const amx::PackColumnsArgs& args) {
  const int64_t strip_bytes = (args.terms + amx::tile_terms - 1) / amx::tile_terms * amx::tile_bytes;
  for (int64_t pair = args.first_pair; pair < args.last_pair; ++pair) {
    const uint16_t* first = args.x + 2 * pair * args.term_stride;
    const uint16_t* second = first + args.term_stride;
    std::byte* line = args.strips + pair * 64;  // 16 pairs are a tile
    for (int64_t column = 0; column < args.columns; column += 16, line += strip_bytes) {
      const int64_t count = args.columns - column;
      store_pairs(line, 2 * pair < args.terms ? load_some(first + column, count) : Vu{},
                  2 * pair + 1 < args.terms ? load_some(second + column, count) : Vu{});
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
template <int J>
KRONSPARSE_INLINE void load_terms(const uint16_t* x, const amx::PackRowsArgs& args, int64_t term,
                                  Vu (&v)[J]) {
  const int64_t valid = args.terms - term;
  const uint16_t* source = x + term * args.term_stride;
#pragma GCC unroll 16
  for (int q = 0; q < J; ++q) {
    if constexpr (J == 16) {
      v[q] = q < valid ? load_half(source + q * args.term_stride) : Vu{};
    } else {
      v[q] = load_some(source + static_cast<ptrdiff_t>(16) * q, valid * J - 16 * q);
    }
  }
  sort_by_j<J>(v);
}

template <int J>
void pack_rows(const amx::PackRowsArgs& args) {
  for (int row = args.first_row; row < args.last_row; ++row) {
    const uint16_t* x = args.x + row * args.sample_stride;
    std::byte* line =
        args.strips + static_cast<ptrdiff_t>(64) * row + args.first_term / amx::tile_terms * amx::tile_bytes;
    for (int64_t term = args.first_term; term < args.terms;
         term += amx::tile_terms, line += amx::tile_bytes) {
      if constexpr (J == 1) {
        // As they lie.
        store(reinterpret_cast<uint16_t*>(line),
              load_line(x + term, row < args.samples ? args.terms - term : 0));
        continue;
      }
      Vu u[J] = {}, v[J] = {};
      if (row < args.samples) {
        load_terms<J>(x, args, term, u);
        if (term + 16 < args.terms) load_terms<J>(x, args, term + 16, v);
      }
#pragma GCC unroll 16
      for (int j = 0; j < J; ++j) store_pairs(line + j * args.strip_step, u[j], v[j]);
    }
  }
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
