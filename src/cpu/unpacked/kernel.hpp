// Products with values as they are given. Included by isa_*.cpp only.
//
// The values of one output lie along j, and so does x. Where d fills vectors, or is no power of two, lanes
// are j, and a vector may hang over the end of a run: what it reads there is dropped. Otherwise a vector
// holds several terms or outputs: sums whose terms are in one vector are folded at the end, and others take
// the d elements of x that belong to a term, repeated across the vector.
#pragma once

#include "cpu/simd/activation.hpp"
#include "cpu/simd/convert.hpp"
#include "cpu/simd/vector.hpp"
#include "cpu/unpacked/kernel_set.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

inline constexpr int at_once = 4;  ///< sums under way: one alone would wait for each of its additions

/// The first `count` elements, fewer than a vector has, and zeros.
template <Storage storage, class Real>
KRONSPARSE_INLINE Vector<Real> widen_few(const unsigned char* source, int64_t count) {
  constexpr int64_t bytes = storage == Storage::same ? static_cast<int64_t>(sizeof(Real)) : 2;
  unsigned char few[lanes<Real> * bytes] = {};
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  // Values stored in pieces are not there yet when a vector of them is wanted.
  const auto mask = static_cast<uint32_t>((1U << count) - 1);
  if constexpr (storage != Storage::same) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(few),
                        _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), source));
    return widen_vector<storage, Real>(few);
  } else if constexpr (sizeof(Real) == 4) {
    return bits_as<Vector<Real>>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), source));
  } else {
    return bits_as<Vector<Real>>(_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), source));
  }
#else
  __builtin_memcpy(few, source, static_cast<size_t>(count * bytes));
  return widen_vector<storage, Real>(few);
#endif
}

/// Elements that are read by whole vectors, and by a part of one at the end.
template <Storage storage, class Real>
struct Operand {
  static constexpr int64_t bytes = storage == Storage::same ? static_cast<int64_t>(sizeof(Real)) : 2;

  const unsigned char* data;
  int64_t size;

  KRONSPARSE_INLINE Operand(const void* first, int64_t elements)
      : data(static_cast<const unsigned char*>(first)), size(elements) {}
  KRONSPARSE_INLINE Vector<Real> operator[](int64_t at) const {
    if (__builtin_expect(at + lanes<Real> <= size, 1)) return widen_vector<storage, Real>(data + at * bytes);
    return widen_few<storage, Real>(data + at * bytes, size - at);
  }
};

template <class Real>
KRONSPARSE_INLINE void store_few(Real* target, Vector<Real> v, int64_t count) {
  if (count >= lanes<Real>) return store(target, v);
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  const auto mask = static_cast<uint32_t>((1U << count) - 1);
  if constexpr (sizeof(Real) == 4)
    return _mm512_mask_storeu_ps(target, static_cast<__mmask16>(mask), bits_as<__m512>(v));
  else
    return _mm512_mask_storeu_pd(target, static_cast<__mmask8>(mask), bits_as<__m512d>(v));
#else
  __builtin_memcpy(target, &v, static_cast<size_t>(count) * sizeof(Real));
#endif
}

/// The places of the terms of sums: of rows in one operand, for all of them in the other.
struct Steps {
  int64_t row;
  int64_t term;
  int64_t shared;
};

/// y[r·d + j] of some rows r, for some vectors of j, whose elements begin at `at` and `shared_at`.
template <int rows, int vectors, class Rows, class Shared, class Real>
KRONSPARSE_INLINE void sum_along_j(const Rows& of_rows, int64_t at, const Shared& shared, int64_t shared_at,
                                   Steps steps, int64_t terms, Real* y, int64_t d, int64_t width) {
  Vector<Real> sums[rows][vectors] = {};
  for (int64_t t = 0; t < terms; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Vector<Real> one = shared[shared_at + t * steps.shared + v * lanes<Real>];
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r)
        sums[r][v] += of_rows[at + t * steps.term + r * steps.row + v * lanes<Real>] * one;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      store_few(y + r * d + v * lanes<Real>, sums[r][v], width - v * lanes<Real>);
  }
}

/// Rows of d sums each, lanes being j. The first row begins at `at`.
template <class Rows, class Shared, class Real>
KRONSPARSE_INLINE void along_j(const Rows& of_rows, int64_t at, const Shared& shared, int64_t shared_at,
                               Steps steps, int64_t terms, int64_t d, int64_t rows, Real* y) {
  constexpr int64_t wide = at_once * lanes<Real>;
  int64_t j = 0;
  for (; j + wide <= d; j += wide)
    for (int64_t r = 0; r < rows; ++r)
      sum_along_j<1, at_once>(of_rows, at + r * steps.row + j, shared, shared_at + j, steps, terms,
                              y + r * d + j, d, wide);
  for (; j < d; j += lanes<Real>) {
    int64_t r = 0;
    for (; r + at_once <= rows; r += at_once)
      sum_along_j<at_once, 1>(of_rows, at + r * steps.row + j, shared, shared_at + j, steps, terms,
                              y + r * d + j, d, d - j);
    for (; r < rows; ++r)
      sum_along_j<1, 1>(of_rows, at + r * steps.row + j, shared, shared_at + j, steps, terms, y + r * d + j,
                        d, d - j);
  }
}

/// Adds the upper half of the lanes to the lower one, until G are left.
template <int G, class Real, int width, int... lane>
KRONSPARSE_INLINE Vector<Real> folded(Vector<Real> v, Lanes<lane...> every) {
  if constexpr (width >= G) {
    v += __builtin_shufflevector(v, v, (lane + width) % lanes<Real>...);
    return folded<G, Real, width / 2>(v, every);
  }
  return v;
}

/// In the lanes from `count` on, 0.
template <class Real>
KRONSPARSE_INLINE Vector<Real> first_lanes(Vector<Real> v, int64_t count) {
  Vector<Real> number;
  for (int lane = 0; lane < lanes<Real>; ++lane) number[lane] = static_cast<Real>(lane);
  return number < static_cast<Real>(count) - Vector<Real>{} ? v : Vector<Real>{};
}

/// y[r·G + j] = sum over t of values[at + r·run + t·G + j] x[t·G + j], a run being all terms of a row.
template <int rows, int G, class Values, class X, class Real>
KRONSPARSE_INLINE void fold_rows(const Values& values, int64_t at, const X& x, int64_t run, Real* y) {
  Vector<Real> sums[rows] = {};
  int64_t e = 0;
  for (; e + lanes<Real> <= run; e += lanes<Real>) {
    const Vector<Real> shared = x[e];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sums[r] += values[at + r * run + e] * shared;
  }
  if (e < run) {
    const Vector<Real> shared = x[e];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sums[r] += first_lanes<Real>(values[at + r * run + e] * shared, run - e);
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const Vector<Real> sum =
        folded<G, Real, lanes<Real> / 2>(sums[r], typename FirstLanes<lanes<Real>>::type{});
    __builtin_memcpy(y + r * G, &sum, G * sizeof(Real));
  }
}

/// y[e] = sum over t of values[at + t·step + e] group[t·group_step + e % G].
template <int vectors, int G, class Values, class Real>
KRONSPARSE_INLINE void sum_groups(const Values& values, int64_t at, int64_t step, const Real* group,
                                  int64_t group_step, int64_t terms, Real* y, int64_t count) {
  Vector<Real> sums[vectors] = {};
  for (int64_t t = 0; t < terms; ++t) {
    const Vector<Real> shared = load_group<G>(group + t * group_step);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[v] += values[at + t * step + v * lanes<Real>] * shared;
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) store_few(y + v * lanes<Real>, sums[v], count - v * lanes<Real>);
}
template <int G, class Values, class Real>
KRONSPARSE_INLINE void along_groups(const Values& values, int64_t at, int64_t step, const Real* group,
                                    int64_t group_step, int64_t terms, int64_t count, Real* y) {
  constexpr int64_t wide = at_once * lanes<Real>;
  int64_t e = 0;
  for (; e + wide <= count; e += wide)
    sum_groups<at_once, G>(values, at + e, step, group, group_step, terms, y + e, wide);
  for (; e < count; e += lanes<Real>)
    sum_groups<1, G>(values, at + e, step, group, group_step, terms, y + e, count - e);
}

template <int G, Storage storage, class Real>
void multiply_groups(const unpacked::ProductArgs<Real>& args) {
  const Operand<storage, Real> values(args.values, args.values_size);
  const int64_t rows = args.last - args.first;
  if (args.row_step == G)
    return along_groups<G>(values, args.first * G, args.term_step, args.x, G, args.terms, rows * G, args.y);
  const Operand<Storage::same, Real> x(args.x, args.x_size);
  int64_t r = 0;
  for (; r + at_once <= rows; r += at_once)
    fold_rows<at_once, G>(values, (args.first + r) * args.row_step, x, args.terms * G, args.y + r * G);
  for (; r < rows; ++r)
    fold_rows<1, G>(values, (args.first + r) * args.row_step, x, args.terms * G, args.y + r * G);
}

template <Storage storage, class Real>
void multiply_as(const unpacked::ProductArgs<Real>& args) {
  if (args.d == 1) return multiply_groups<1, storage>(args);
  if constexpr (lanes < Real >> 2)
    if (args.d == 2) return multiply_groups<2, storage>(args);
  if constexpr (lanes < Real >> 4)
    if (args.d == 4) return multiply_groups<4, storage>(args);
  if constexpr (lanes < Real >> 8)
    if (args.d == 8) return multiply_groups<8, storage>(args);
  along_j(Operand<storage, Real>(args.values, args.values_size), args.first * args.row_step,
          Operand<Storage::same, Real>(args.x, args.x_size), 0, Steps{args.row_step, args.term_step, args.d},
          args.terms, args.d, args.last - args.first, args.y);
}

template <class Real>
void multiply(const unpacked::ProductArgs<Real>& args) {
  if constexpr (sizeof(Real) == 4) {
    if (args.storage == Storage::f16) return multiply_as<Storage::f16>(args);
    if (args.storage == Storage::bf16) return multiply_as<Storage::bf16>(args);
  }
  multiply_as<Storage::same>(args);
}

template <int G, class Real>
void gradient_groups(const unpacked::GradientArgs<Real>& args) {
  const Operand<Storage::same, Real> x(args.x, args.x_size);
  for (int64_t k = 0; k < args.last - args.first; ++k)
    along_groups<G>(x, 0, args.x_stride, args.g + k * G, args.g_stride, args.samples, args.depth * G,
                    args.y + k * args.depth * G);
}

template <class Real>
void gradient(const unpacked::GradientArgs<Real>& args) {
  if (args.d == 1) return gradient_groups<1>(args);
  if constexpr (lanes < Real >> 2)
    if (args.d == 2) return gradient_groups<2>(args);
  if constexpr (lanes < Real >> 4)
    if (args.d == 4) return gradient_groups<4>(args);
  if constexpr (lanes < Real >> 8)
    if (args.d == 8) return gradient_groups<8>(args);
  const Operand<Storage::same, Real> x(args.x, args.x_size), g(args.g, args.g_size);
  const Steps steps{args.d, args.x_stride, args.g_stride};
  for (int64_t k = 0; k < args.last - args.first; ++k)
    along_j(x, 0, g, k * args.d, steps, args.samples, args.d, args.depth, args.y + k * args.depth * args.d);
}

template <Storage storage, class Real>
KRONSPARSE_INLINE void finish_row_as(const unpacked::FinishArgs<Real>& args) {
  using Of = Operand<storage, Real>;
  const Operand<Storage::same, Real> sums(args.sums, args.count);
  const Of bias(args.bias, args.count);
  auto* y = static_cast<unsigned char*>(args.y);
  for (int64_t e = 0; e < args.count; e += lanes<Real>) {
    Vector<Real> v = sums[e];
    if (args.bias != nullptr) v += bias[e];
    if (args.activation != Act::none) v = activate(args.activation, v);
    if (e + lanes<Real> <= args.count) {
      store_as<storage, Real>(y + e * Of::bytes, v);
    } else {
      unsigned char few[lanes<Real> * Of::bytes];
      store_as<storage, Real>(few, v);
      __builtin_memcpy(y + e * Of::bytes, few, static_cast<size_t>((args.count - e) * Of::bytes));
    }
  }
}

template <class Real>
void finish_row(const unpacked::FinishArgs<Real>& args) {
  if constexpr (sizeof(Real) == 4) {
    if (args.storage == Storage::f16) return finish_row_as<Storage::f16>(args);
    if (args.storage == Storage::bf16) return finish_row_as<Storage::bf16>(args);
  }
  finish_row_as<Storage::same>(args);
}

template <class Real>
inline constexpr unpacked::Kernels<Real> unpacked_kernels{lanes<Real>, multiply<Real>, gradient<Real>,
                                                          finish_row<Real>, widen<Real>};

}  // namespace kronsparse::simd::KRONSPARSE_ISA
