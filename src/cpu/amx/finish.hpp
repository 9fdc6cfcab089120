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
KRONSPARSE_INLINE HalfVector rounded_to_bf16(Vf v) {
#if defined(KRONSPARSE_EMULATES_TILES)
  return narrow_bf16(v);
#else
  // One instruction instead of six. Numbers below 2^-126 become zero, as they do in products.
  HalfVector rounded;
  asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(v));
  return rounded;
#endif
}

template <int J>
void finish_tiles(const amx::FinishArgs& args) {
  for (int row = 0; row < args.rows; ++row) {
    Vf v[J];
    const float* c = args.c + row * args.c_stride;
#pragma GCC unroll 16
    for (int j = 0; j < J; ++j) v[j] = load(c + j * args.c_tile_step);
    interleave<J>(v);
#pragma GCC unroll 16
    for (int q = 0; q < J; ++q) {
      const int64_t count = args.reals - 16 * q;
      if (count <= 0) break;
      if (args.vector_bias != nullptr)
        v[q] += bits_as<Vf>(load_some(args.vector_bias + q * args.vector_step, count) << 16);
      if (args.activation != Act::none) v[q] = activate(args.activation, v[q]);
      const HalfVector rounded = rounded_to_bf16(v[q]);
      uint16_t* y = args.y + row * args.y_stride + q * args.vector_step;
      if (count >= 16) {
        __builtin_memcpy(y, &rounded, sizeof rounded);
      } else {
        __builtin_memcpy(y, &rounded, static_cast<size_t>(count) * sizeof *y);
      }
    }
  }
}

inline void finish_columns(const amx::FinishColumnsArgs& args) {
  uint16_t* y = args.y;
  for (int row = 0; row < args.rows; ++row, y += args.y_stride) {
    const auto rounded_half = [&](int half) {
      Vf v = load(args.c + (2 * row + half) * 16);
      if (args.bias != nullptr) v += splat(args.bias[row]);
      if (args.activation != Act::none) v = activate(args.activation, v);
      return rounded_to_bf16(v);
    };
    const auto both = joined(rounded_half(0), args.columns > 16 ? rounded_half(1) : HalfVector{});
    if (args.columns < 32) {
      __builtin_memcpy(y, &both, static_cast<size_t>(args.columns) * sizeof *y);
    } else if (args.stream) {
      stream(y, both);
    } else {
      store(y, both);
    }
  }
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
