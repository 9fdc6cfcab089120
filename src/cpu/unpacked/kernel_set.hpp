// The functions that one instruction set provides for values as they are given, as a table. ISA files see
// this, so it holds no inline functions: see simd/kernel_set.hpp.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel_set.hpp"

namespace kronsparse::unpacked {

/// Outputs [first, last) of one block i and one sample, d reals each:
///   y[(r - first)·d + j] = sum over t of values[r·row_step + t·term_step + j] x[t·d + j]
/// Nothing is read from beyond the sizes, but anything within them may be: vectors are longer than d.
template <class Real>
struct ProductArgs {
  const void* values;  ///< of the block, of `storage`
  std::int64_t values_size;
  std::int64_t row_step;  ///< either this or term_step is d
  std::int64_t term_step;
  const Real* x;  ///< of the block
  std::int64_t x_size;
  std::int64_t terms;
  std::int64_t d;
  std::int64_t first, last;
  Real* y;
  simd::Storage storage;
};

/// Rows [first, last) of the gradient of one block i, `depth`·d reals each:
///   y[(k - first)·depth·d + l·d + j] = sum over n of g[n·g_stride + (k - first)·d + j] x[n·x_stride + l·d +
///   j]
template <class Real>
struct GradientArgs {
  const Real* g;  ///< of the first row
  std::int64_t g_size;
  std::int64_t g_stride;
  const Real* x;  ///< of the block
  std::int64_t x_size;
  std::int64_t x_stride;
  std::int64_t samples;
  std::int64_t depth;
  std::int64_t d;
  std::int64_t first, last;
  Real* y;
};

/// The way of neighbouring sums to their place in memory, which may be where they are.
template <class Real>
struct FinishArgs {
  const Real* sums;
  std::int64_t count;
  const void* bias;  ///< of `storage`; null for none
  simd::Act activation;
  simd::Storage storage;
  void* y;
};

template <class Real>
struct Kernels {
  int lanes;  ///< reals in a vector
  void (*multiply)(const ProductArgs<Real>&);
  void (*gradient)(const GradientArgs<Real>&);
  void (*finish)(const FinishArgs<Real>&);
  /// Converts `count` elements to Real.
  void (*widen)(const void* source, simd::Storage storage, Real* target, std::int64_t count);
};

/// One instruction set: `base` says whether this CPU has it.
struct Isa {
  const char* name;
  const simd::Isa* base;
  const Kernels<float>* f32;
  const Kernels<double>* f64;
};

#if defined(__x86_64__)
extern const Isa isa_avx512;
extern const Isa isa_avx2;
#endif
extern const Isa isa_baseline;

}  // namespace kronsparse::unpacked
