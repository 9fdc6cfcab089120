// Vectors of one instruction set. Included by isa_*.cpp only, after they have
// defined KRONSPARSE_ISA (a namespace of its own, so that no two instruction
// sets share a symbol) and KRONSPARSE_VECTOR_BYTES.
#pragma once

// The C headers: no inline functions, and their names without std::.
#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace kronsparse::simd::KRONSPARSE_ISA {

inline constexpr int vector_bytes = KRONSPARSE_VECTOR_BYTES;

#define KRONSPARSE_INLINE __attribute__((always_inline)) inline

template <class Real>
struct VectorOf {
  // NOLINTNEXTLINE(modernize-use-using): gcc takes the attribute only here
  typedef Real type __attribute__((vector_size(KRONSPARSE_VECTOR_BYTES)));
};
template <class Real>
using Vector = typename VectorOf<Real>::type;
using Vf = Vector<float>;
using Vi = Vector<int32_t>;
using Vu = Vector<uint32_t>;

template <class Real>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(Real));

/// The numbers 0 to n - 1, for the compiler.
template <int... lane>
struct Lanes {};
template <int n, int... lane>
struct FirstLanes : FirstLanes<n - 1, n - 1, lane...> {};
template <int... lane>
struct FirstLanes<0, lane...> {
  using type = Lanes<lane...>;
};

/// Reinterprets, copies: every access goes through memcpy, so any address will do.
template <class To, class From>
KRONSPARSE_INLINE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <class Real>
KRONSPARSE_INLINE Vector<Real> load(const Real* source) {
  Vector<Real> v;
  __builtin_memcpy(&v, source, sizeof v);
  return v;
}
template <class Real>
KRONSPARSE_INLINE void store(Real* target, Vector<Real> v) {
  __builtin_memcpy(target, &v, sizeof v);
}

/// A store around the caches, to an address aligned to the vector; a plain one
/// where the instruction set has none.
template <class Real>
KRONSPARSE_INLINE void stream(Real* target, Vector<Real> v) {
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  _mm512_stream_si512(reinterpret_cast<__m512i*>(target), bits_as<__m512i>(v));
#elif defined(__AVX2__) && KRONSPARSE_VECTOR_BYTES == 32
  _mm256_stream_si256(reinterpret_cast<__m256i*>(target), bits_as<__m256i>(v));
#else
  store(target, v);
#endif
}

/// False exactly in the lanes that hold a nan.
KRONSPARSE_INLINE Vi is_number(Vf v) {
  return v == v;  // NOLINT(misc-redundant-expression)
}

KRONSPARSE_INLINE Vf splat(float value) { return value - Vf{}; }
KRONSPARSE_INLINE Vi splat(int32_t value) { return value - Vi{}; }

/// G neighbouring elements repeated across a vector: one load instruction on
/// every instruction set named here.
template <int G, class Real>
KRONSPARSE_INLINE Vector<Real> load_group(const Real* source) {
  constexpr int bytes = G * static_cast<int>(sizeof(Real));
  static_assert(bytes <= vector_bytes);
  if constexpr (bytes == vector_bytes) return load(source);
#if defined(__x86_64__) || defined(__aarch64__)
  // Copied out, for a pair of floats may be aligned like one; it is still one load.
  [[maybe_unused]] float one = 0;
  [[maybe_unused]] double two = 0;
  if constexpr (bytes == 4) __builtin_memcpy(&one, source, sizeof one);
  if constexpr (bytes == 8) __builtin_memcpy(&two, source, sizeof two);
#endif
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  if constexpr (bytes == 4) return bits_as<Vector<Real>>(_mm512_set1_ps(one));
  if constexpr (bytes == 8) return bits_as<Vector<Real>>(_mm512_set1_pd(two));
  if constexpr (bytes == 16)
    return bits_as<Vector<Real>>(
        _mm512_broadcast_f32x4(_mm_loadu_ps(reinterpret_cast<const float*>(source))));
  if constexpr (bytes == 32)
    return bits_as<Vector<Real>>(
        _mm512_broadcast_f64x4(_mm256_loadu_pd(reinterpret_cast<const double*>(source))));
#elif defined(__AVX2__) && KRONSPARSE_VECTOR_BYTES == 32
  if constexpr (bytes == 4) return bits_as<Vector<Real>>(_mm256_set1_ps(one));
  if constexpr (bytes == 8) return bits_as<Vector<Real>>(_mm256_set1_pd(two));
  if constexpr (bytes == 16)
    return bits_as<Vector<Real>>(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(source)));
#elif defined(__x86_64__) && KRONSPARSE_VECTOR_BYTES == 16
  if constexpr (bytes == 4) return bits_as<Vector<Real>>(_mm_set1_ps(one));
  if constexpr (bytes == 8) return bits_as<Vector<Real>>(_mm_set1_pd(two));
#elif defined(__aarch64__) && KRONSPARSE_VECTOR_BYTES == 16
  if constexpr (bytes == 4) return bits_as<Vector<Real>>(vdupq_n_f32(one));
  if constexpr (bytes == 8) return bits_as<Vector<Real>>(vdupq_n_f64(two));
#else
  Vector<Real> v;
  for (int lane = 0; lane < lanes<Real>; ++lane) v[lane] = source[lane % G];
  return v;
#endif
}

// ---- 16-bit storage ------------------------------------------------------------

/// The 16-bit storage of one float vector.
using HalfVector = uint16_t __attribute__((vector_size(KRONSPARSE_VECTOR_BYTES / 2)));

KRONSPARSE_INLINE Vu load_half(const uint16_t* source) {
  // One or two instructions, of which gcc 12 makes five to ten.
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  return bits_as<Vu>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
#elif defined(__AVX2__) && KRONSPARSE_VECTOR_BYTES == 32
  return bits_as<Vu>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
#elif defined(__aarch64__) && KRONSPARSE_VECTOR_BYTES == 16
  return bits_as<Vu>(vmovl_u16(vld1_u16(source)));
#else
  HalfVector half;
  __builtin_memcpy(&half, source, sizeof half);
  return __builtin_convertvector(half, Vu);
#endif
}
/// The lower half of each lane.
KRONSPARSE_INLINE HalfVector lower_halves(Vu v) {
#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
  return bits_as<HalfVector>(_mm512_cvtepi32_epi16(bits_as<__m512i>(v)));
#else
  return __builtin_convertvector(v, HalfVector);
#endif
}

KRONSPARSE_INLINE Vf widen_bf16(const uint16_t* source) { return bits_as<Vf>(load_half(source) << 16); }

/// To nearest, ties to even. A nan that came from bf16 or from an instruction has zeros in its lower half,
/// where rounding adds at most half a unit: it stays a nan, as inf stays inf.
KRONSPARSE_INLINE HalfVector narrow_bf16(Vf v) {
  const Vu bits = bits_as<Vu>(v);
  return lower_halves((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if defined(__AVX512F__) && KRONSPARSE_VECTOR_BYTES == 64
KRONSPARSE_INLINE Vf widen_f16(const uint16_t* source) {
  return bits_as<Vf>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
}
KRONSPARSE_INLINE HalfVector narrow_f16(Vf v) {
  return bits_as<HalfVector>(
      _mm512_cvtps_ph(bits_as<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__) && KRONSPARSE_VECTOR_BYTES == 32
KRONSPARSE_INLINE Vf widen_f16(const uint16_t* source) {
  return bits_as<Vf>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
}
KRONSPARSE_INLINE HalfVector narrow_f16(Vf v) {
  return bits_as<HalfVector>(_mm256_cvtps_ph(bits_as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__aarch64__) && KRONSPARSE_VECTOR_BYTES == 16
KRONSPARSE_INLINE Vf widen_f16(const uint16_t* source) {
  return bits_as<Vf>(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(source))));
}
KRONSPARSE_INLINE HalfVector narrow_f16(Vf v) {
  return bits_as<HalfVector>(vcvt_f16_f32(bits_as<float32x4_t>(v)));
}
#else
// No instruction for it: integer arithmetic on whole vectors.
KRONSPARSE_INLINE Vf widen_f16(const uint16_t* source) {
  const Vu h = load_half(source);
  const Vu magnitude = (h & 0x7fffu) << 13;
  // Rescaling the exponent by a multiplication turns subnormals into normals.
  const Vf scaled = bits_as<Vf>(magnitude) * 0x1p112f;
  const Vu special = bits_as<Vu>(scaled) | 0x7f800000u;  // inf and nan keep their fraction
  const Vu wide = magnitude >= 0x0f800000u ? special : bits_as<Vu>(scaled);
  return bits_as<Vf>(wide | ((h & 0x8000u) << 16));
}
KRONSPARSE_INLINE HalfVector narrow_f16(Vf v) {
  const Vu bits = bits_as<Vu>(v);
  const Vu magnitude = bits & 0x7fffffffu;
  // Normal results: round the fraction to 10 bits in place, then rebias.
  const Vu normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 adding 0.5 aligns the last bit of a subnormal half with that of a float.
  const Vu subnormal = bits_as<Vu>(bits_as<Vf>(magnitude) + splat(0.5f)) - 0x3f000000u;
  const Vu quiet_nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  Vu half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? Vu{} + 0x7c00u : half;
  half = magnitude > 0x7f800000u ? quiet_nan : half;
  return lower_halves(half | ((bits >> 16) & 0x8000u));
}
#endif

}  // namespace kronsparse::simd::KRONSPARSE_ISA
