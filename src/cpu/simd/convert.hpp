// Between storage and vectors. Included by isa_*.cpp only.
#pragma once

#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

template <Storage storage>
KRONSPARSE_INLINE HalfVector narrow(Vf v) {
  if constexpr (storage == Storage::f16) return narrow_f16(v);
  if constexpr (storage == Storage::bf16) return narrow_bf16(v);
}

/// Two vectors of halves in one.
KRONSPARSE_INLINE Vector<uint16_t> joined(HalfVector lower, HalfVector upper) {
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  // Through memory, a load would wait for both stores.
  const __m512i lower_half = _mm512_castsi256_si512(bits_as<__m256i>(lower));
  return bits_as<Vector<uint16_t>>(_mm512_inserti64x4(lower_half, bits_as<__m256i>(upper), 1));
#else
  const HalfVector both[2] = {lower, upper};
  return bits_as<Vector<uint16_t>>(both);
#endif
}

/// One vector rounded to its storage and written to `target`.
template <Storage storage, class Real>
KRONSPARSE_INLINE void store_as(void* target, Vector<Real> v) {
  if constexpr (storage == Storage::same) {
    __builtin_memcpy(target, &v, sizeof v);
  } else {
    const HalfVector half = narrow<storage>(v);
    __builtin_memcpy(target, &half, sizeof half);
  }
}

template <Storage storage, class Real>
KRONSPARSE_INLINE Vector<Real> widen_vector(const void* source) {
  if constexpr (storage == Storage::f16) return widen_f16(static_cast<const uint16_t*>(source));
  if constexpr (storage == Storage::bf16) return widen_bf16(static_cast<const uint16_t*>(source));
  if constexpr (storage == Storage::same) return load(static_cast<const Real*>(source));
}

template <Storage storage, class Real>
KRONSPARSE_INLINE void widen_half(const void* source, Real* target, int64_t count) {
  const auto* half = static_cast<const uint16_t*>(source);
  int64_t e = 0;
  for (; e + lanes<float> <= count; e += lanes<float>)
    store(target + e, widen_vector<storage, Real>(half + e));
  if (e < count) {
    uint16_t rest[lanes<float>] = {};
    for (int64_t r = e; r < count; ++r) rest[r - e] = half[r];
    const Vf v = widen_vector<storage, Real>(rest);
    for (int64_t r = e; r < count; ++r) target[r] = v[r - e];
  }
}

template <class Real>
void widen(const void* source, Storage storage, Real* target, int64_t count) {
  if constexpr (sizeof(Real) == 4) {
    if (storage == Storage::f16) return widen_half<Storage::f16>(source, target, count);
    if (storage == Storage::bf16) return widen_half<Storage::bf16>(source, target, count);
  }
  __builtin_memcpy(target, source, static_cast<size_t>(count) * sizeof(Real));
}

template <Storage storage, class Real>
KRONSPARSE_INLINE void widen_runs_as(const void* source, int64_t source_step, int64_t steps, int vectors,
                                     Real* target, int64_t target_step, int64_t vector_step) {
  constexpr int64_t bytes = storage == Storage::same ? static_cast<int64_t>(sizeof(Real)) : 2;
  const auto* run = static_cast<const unsigned char*>(source);
  for (int64_t t = 0; t < steps; ++t) {
    for (int v = 0; v < vectors; ++v) {
      store(target + v * vector_step, widen_vector<storage, Real>(run + v * lanes<Real> * bytes));
    }
    run += source_step * bytes;
    target += target_step;
  }
}

template <class Real>
void widen_runs(const void* source, Storage storage, int64_t source_step, int64_t steps, int vectors,
                Real* target, int64_t target_step, int64_t vector_step) {
  if constexpr (sizeof(Real) == 4) {
    if (storage == Storage::f16) {
      return widen_runs_as<Storage::f16>(source, source_step, steps, vectors, target, target_step,
                                         vector_step);
    }
    if (storage == Storage::bf16) {
      return widen_runs_as<Storage::bf16>(source, source_step, steps, vectors, target, target_step,
                                          vector_step);
    }
  }
  widen_runs_as<Storage::same>(source, source_step, steps, vectors, target, target_step, vector_step);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
