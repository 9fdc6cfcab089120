// Products whose samples are lanes, of rows of 16-bit numbers that are widened where they lie. Included by
// isa_*.cpp only.
#pragma once

#include "cpu/simd/activation.hpp"
#include "cpu/simd/convert.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// Through memory, in a loop: in registers it would be written out for each of them.
template <int MR, int NR>
KRONSPARSE_INLINE void activate_all(Act activation, Vf (&acc)[MR][NR]) {
  Vf tile[MR * NR];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 6
    for (int r = 0; r < NR; ++r) tile[m * NR + r] = acc[m][r];
  }
#pragma GCC unroll 1
  for (int t = 0; t < MR * NR; ++t) tile[t] = activate(activation, tile[t]);
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 6
    for (int r = 0; r < NR; ++r) acc[m][r] = tile[m * NR + r];
  }
}

/// MR outputs, NR vectors of samples at a time. The last ones overlap those before them where they are fewer:
/// they are computed once more, to the same end.
template <Storage storage, int MR, int NR>
KRONSPARSE_INLINE void columns_as(const ColumnsArgs& args) {
  constexpr int all = lanes<float>;
  constexpr int64_t width = NR * all;
  const int64_t last = args.columns - width;
  for (int64_t n = 0; n < args.columns; n += width) {
    const int64_t first = n < last ? n : last;
    const uint16_t* x = args.x + first;
    const float* weights = args.weights;
    Vf acc[MR][NR];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 6
      for (int r = 0; r < NR; ++r) acc[m][r] = Vf{};
    }
    for (int64_t l = 0; l < args.depth; ++l) {
      Vf terms[NR];
#pragma GCC unroll 6
      for (int r = 0; r < NR; ++r) terms[r] = widen_vector<storage, float>(x + r * all);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        const Vf weight = load_group<1>(weights + m);
#pragma GCC unroll 6
        for (int r = 0; r < NR; ++r) acc[m][r] += weight * terms[r];
      }
      x += args.x_stride;
      weights += args.weights_step;
    }
    if (args.bias != nullptr) {
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        if (m == args.rows) break;
        const Vf bias = load_group<1>(args.bias + m);
#pragma GCC unroll 6
        for (int r = 0; r < NR; ++r) acc[m][r] += bias;
      }
    }
    if (args.activation != Act::none) activate_all(args.activation, acc);
    uint16_t* y = args.y + first;
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      if (m == args.rows) break;
#pragma GCC unroll 6
      for (int r = 0; r < NR; ++r) store_as<storage, float>(y + r * all, acc[m][r]);
      y += args.y_stride;
    }
  }
}

template <Storage storage, int MR, int NR>
KRONSPARSE_INLINE void columns_of_rows(const ColumnsArgs& args) {
  if (args.rows == 1) return columns_as<storage, 1, NR>(args);
  if (args.rows == 2) return columns_as<storage, 2, NR>(args);
  if (args.rows <= 4) return columns_as<storage, 4, NR>(args);
  columns_as<storage, MR, NR>(args);
}

template <int MR, int NR>
void columns_in_place(const ColumnsArgs& args) {
  if (args.storage == Storage::f16) return columns_of_rows<Storage::f16, MR, NR>(args);
  columns_of_rows<Storage::bf16, MR, NR>(args);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
