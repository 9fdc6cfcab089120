// Sums on their way to Y. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/pack.hpp"
#include "cpu/simd/activation.hpp"
#include "cpu/simd/convert.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

template <int first, int... lane>
KRONSPARSE_INLINE Vf zipped_from(Vf u, Vf v, Lanes<lane...>) {
  return __builtin_shufflevector(u, v, (first + lane / 2 + lane % 2 * 16)...);
}
/// J vectors of one j each to J vectors of elements (k, j), j the faster.
template <int J>
KRONSPARSE_INLINE void interleave(Vf (&v)[J]) {
  if constexpr (J > 1) {
    constexpr typename FirstLanes<16>::type every{};
    Vf even[J / 2], odd[J / 2];
#pragma GCC unroll 8
    for (int p = 0; p < J / 2; ++p) {
      even[p] = v[2 * p];
      odd[p] = v[2 * p + 1];
    }
    interleave<J / 2>(even);
    interleave<J / 2>(odd);
#pragma GCC unroll 8
    for (int p = 0; p < J / 2; ++p) {
      v[2 * p] = zipped_from<0>(even[p], odd[p], every);
      v[2 * p + 1] = zipped_from<8>(even[p], odd[p], every);
    }
  }
}

/// To nearest, ties to even.
template <Storage storage>
KRONSPARSE_INLINE HalfVector rounded(Vf v) {
#if defined(KRONSPARSE_EMULATES_TILES)
  return narrow<storage>(v);
#else
  if constexpr (storage == Storage::f16) return narrow_f16(v);
  // One instruction instead of six. Numbers below 2^-126 become zero, as they do in products.
  HalfVector half;
  asm("vcvtneps2bf16 %1, %0" : "=v"(half) : "v"(v));
  return half;
#endif
}

template <Storage storage>
KRONSPARSE_INLINE Vf load_bias(const uint16_t* source, int64_t count) {
  const Vu lanes = load_some<storage>(source, count);
  return bits_as<Vf>(storage == Storage::f16 ? lanes : lanes << 16);
}

/// The first of a row's vectors.
KRONSPARSE_INLINE void store_some(uint16_t* y, HalfVector half, int64_t count) {
  if (count >= 16) {
    __builtin_memcpy(y, &half, sizeof half);
  } else {
    __builtin_memcpy(y, &half, static_cast<size_t>(count) * sizeof *y);
  }
}

template <Storage storage, int J>
void finish_tiles(const amx::FinishArgs& args) {
  for (int row = 0; row < args.rows; ++row) {
    Vf v[J];
    const float* c = args.c + static_cast<ptrdiff_t>(16) * row;
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) v[j] = load(c + j * amx::tile_sums);
    interleave<J>(v);
    uint16_t* y = args.y + row * args.y_stride;
#pragma GCC unroll 8
    for (int q = 0; q < J; q += 2) {
      const int64_t count = args.reals - 16 * q;
      if (count <= 0) break;
      HalfVector halves[2];
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        Vf& sums = v[q + p];
        if (args.bias != nullptr)
          sums += load_bias<storage>(args.bias + (q + p) * args.vector_step, count - 16 * p);
        if (args.activation != Act::none) sums = activate(args.activation, sums);
        halves[p] = rounded<storage>(sums);
      }
      if (args.stream) {
        stream(y + static_cast<ptrdiff_t>(16) * q, joined(halves[0], halves[1]));
      } else {
        store_some(y + q * args.vector_step, halves[0], count);
        if (count > 16) store_some(y + (q + 1) * args.vector_step, halves[1], count - 16);
      }
    }
  }
}

template <Storage storage>
void finish_pair(const amx::FinishPairArgs& args) {
  uint16_t* y = args.y;
  for (int row = 0; row < args.rows; ++row, y += args.y_stride) {
    const auto of_strip = [&](int half) {
      Vf v = load(args.c + static_cast<ptrdiff_t>(16) * (2 * row + half));
      if (args.row_bias != nullptr) v += splat(args.row_bias[row]);
      if (args.vector_bias != nullptr) {
        const ptrdiff_t first = static_cast<ptrdiff_t>(16) * half;
        v += load_bias<storage>(args.vector_bias + first, args.reals - first);
      }
      if (args.activation != Act::none) v = activate(args.activation, v);
      return rounded<storage>(v);
    };
    if (args.reals >= 32 && args.stream) {
      stream(y, joined(of_strip(0), of_strip(1)));
    } else {
      store_some(y, of_strip(0), args.reals);
      if (args.reals > 16) store_some(y + 16, of_strip(1), args.reals - 16);
    }
  }
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
