// Numbers in lanes, real or complex, and the transposition that brings them there. Included by kernel.hpp
// only.
#pragma once

#include "cpu/simd/vector.hpp"
#include "factorize/rank_one/kernel_set.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

using Vd = Vector<double>;
using Mask = Vector<int64_t>;
inline constexpr int width = lanes<double>;

struct Complex {
  Vd re, im;
};

KRONSPARSE_INLINE Vd constant(double value) { return value - Vd{}; }
KRONSPARSE_INLINE Vd select(Mask mask, Vd yes, Vd no) { return mask ? yes : no; }
KRONSPARSE_INLINE Vd lesser(Vd x, Vd y) { return x < y ? x : y; }
KRONSPARSE_INLINE Vd greater(Vd x, Vd y) { return x > y ? x : y; }
KRONSPARSE_INLINE bool any(Mask mask) {
  int64_t all = 0;
  for (int lane = 0; lane < width; ++lane) all |= mask[lane];
  return all != 0;
}
KRONSPARSE_INLINE Vd root(Vd x) {
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  return bits_as<Vd>(_mm512_sqrt_pd(bits_as<__m512d>(x)));
#elif defined(__AVX2__) && KRONSPARSE_VECTOR_BYTES == 32
  return bits_as<Vd>(_mm256_sqrt_pd(bits_as<__m256d>(x)));
#else
  Vd y;
  for (int lane = 0; lane < width; ++lane) y[lane] = __builtin_sqrt(x[lane]);
  return y;
#endif
}

// What real and complex numbers have in common.

KRONSPARSE_INLINE Vd conjugate(Vd x) { return x; }
KRONSPARSE_INLINE Complex conjugate(Complex x) { return {x.re, -x.im}; }
KRONSPARSE_INLINE Vd real_part(Vd x) { return x; }
KRONSPARSE_INLINE Vd real_part(Complex x) { return x.re; }
KRONSPARSE_INLINE Vd squared(Vd x) { return x * x; }
KRONSPARSE_INLINE Vd squared(Complex x) { return x.re * x.re + x.im * x.im; }
KRONSPARSE_INLINE Vd scaled(Vd x, Vd factor) { return x * factor; }
KRONSPARSE_INLINE Complex scaled(Complex x, Vd factor) { return {x.re * factor, x.im * factor}; }
KRONSPARSE_INLINE Vd sum_of(Vd x, Vd y) { return x + y; }
KRONSPARSE_INLINE Complex sum_of(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
KRONSPARSE_INLINE void add_product(Vd& sum, Vd x, Vd y) { sum += x * y; }
KRONSPARSE_INLINE void add_product(Complex& sum, Complex x, Complex y) {
  sum.re += x.re * y.re;
  sum.im += x.re * y.im;
  sum.re -= x.im * y.im;
  sum.im += x.im * y.re;
}
KRONSPARSE_INLINE void subtract_product(Vd& sum, Vd x, Vd y) { sum -= x * y; }
KRONSPARSE_INLINE void subtract_product(Complex& sum, Complex x, Complex y) {
  sum.re -= x.re * y.re;
  sum.im -= x.re * y.im;
  sum.re += x.im * y.im;
  sum.im -= x.im * y.re;
}
KRONSPARSE_INLINE Vd or_one(Mask mask, Vd x) { return select(mask, x, constant(1)); }
KRONSPARSE_INLINE Complex or_one(Mask mask, Complex x) {
  return {or_one(mask, x.re), select(mask, x.im, Vd{})};
}

template <class Number>
inline constexpr int parts = sizeof(Number) / sizeof(Vd);

// ---- to lanes and back ----------------------------------------------------------

template <class Real>
KRONSPARSE_INLINE Vd load_as_double(const Real* source) {
  typedef Real Loaded __attribute__((vector_size(width * sizeof(Real))));  // NOLINT(modernize-use-using)
  Loaded loaded;
  __builtin_memcpy(&loaded, source, sizeof loaded);
  return __builtin_convertvector(loaded, Vd);
}
template <class Real>
KRONSPARSE_INLINE void store_from_double(Real* target, Vd v) {
  typedef Real Stored __attribute__((vector_size(width * sizeof(Real))));  // NOLINT(modernize-use-using)
  const Stored stored = __builtin_convertvector(v, Stored);
  __builtin_memcpy(target, &stored, sizeof stored);
}

/// One of the two vectors that halves of x and y make: runs of `run` lanes, from x and y in turn.
template <int run, bool is_upper, int... lane>
KRONSPARSE_INLINE Vd interleave(Vd x, Vd y, Lanes<lane...>) {
  return __builtin_shufflevector(
      x, y, ((lane / run) % 2 == 0 ? lane + (is_upper ? run : 0) : width + lane - (is_upper ? 0 : run))...);
}
template <int run>
KRONSPARSE_INLINE void transpose_runs(Vd (&rows)[width]) {
  using All = typename FirstLanes<width>::type;
  for (int row = 0; row < width; ++row)
    if ((row / run) % 2 == 0) {
      const Vd x = rows[row];
      const Vd y = rows[row + run];
      rows[row] = interleave<run, false>(x, y, All());
      rows[row + run] = interleave<run, true>(x, y, All());
    }
}
/// Element `lane` of vector `row` becomes element `row` of vector `lane`.
KRONSPARSE_INLINE void transpose(Vd (&rows)[width]) {
  transpose_runs<1>(rows);
  if constexpr (width >= 4) transpose_runs<2>(rows);
  if constexpr (width >= 8) transpose_runs<4>(rows);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
