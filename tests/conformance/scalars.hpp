// Element types as the tests see them: widths, exact ranges, and conversions
// that do not go through the library on the way back (so a wrong conversion in
// the library shows).
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kronsparse/dtype.hpp"

namespace conformance {

/// A complex number of integers or doubles; std::complex is unspecified for integers.
template <class T>
struct Cx {
  T re{};
  T im{};

  friend Cx operator+(Cx p, Cx q) { return {p.re + q.re, p.im + q.im}; }
  friend Cx operator-(Cx p, Cx q) { return {p.re - q.re, p.im - q.im}; }
  friend Cx operator*(Cx p, Cx q) { return {p.re * q.re - p.im * q.im, p.re * q.im + p.im * q.re}; }
  Cx& operator+=(Cx other) { return *this = *this + other; }
  friend bool operator==(Cx, Cx) = default;
};

template <class T>
T conjugate(T value) {
  return value;
}
template <class T>
Cx<T> conjugate(Cx<T> value) {
  return {value.re, -value.im};
}

/// Facts about an element type. `digits` are the significant bits of
/// storage, `accumulator_digits` those that sums are promised to be kept in.
/// Integer data keeps |values| <= value_limit, |x| <= operand_limit and every
/// partial sum <= sum_limit, so that sums are exact in any order.
struct ElementTraits {
  int digits;
  int accumulator_digits;
  int subnormal_exponent;  ///< the smallest positive number is 2^this
  std::int64_t value_limit;
  std::int64_t operand_limit;
  std::int64_t sum_limit;
};

template <class T>
inline constexpr ElementTraits traits{};
// f32 operands need more bits than bf16 and TF32 keep, f64 operands more than f32 keeps:
// arithmetic in the wrong precision cannot pass for exact.
template <>
inline constexpr ElementTraits traits<float>{24, 24, -149, 7, 4095, std::int64_t{1} << 24};
template <>
inline constexpr ElementTraits traits<double>{
    53, 53, -1074, 4095, std::int64_t{1} << 30, std::int64_t{1} << 53};
template <>
inline constexpr ElementTraits traits<kronsparse::Half>{11, 24, -24, 3, 2047, 65504};
template <>
inline constexpr ElementTraits traits<kronsparse::BFloat16>{8, 24, -133, 3, 255, std::int64_t{1} << 24};
template <>
inline constexpr ElementTraits traits<std::complex<float>> = traits<float>;
template <>
inline constexpr ElementTraits traits<std::complex<double>> = traits<double>;

template <class T>
inline constexpr bool complex_element = false;
template <class R>
inline constexpr bool complex_element<std::complex<R>> = true;

/// Integers and doubles that T's numbers are computed in by the oracle.
template <class T>
using IntegerOf = std::conditional_t<complex_element<T>, Cx<std::int64_t>, std::int64_t>;
template <class T>
using WideOf = std::conditional_t<complex_element<T>, Cx<double>, double>;

inline double widen(std::int64_t value) { return static_cast<double>(value); }
inline Cx<double> widen(Cx<std::int64_t> value) { return {widen(value.re), widen(value.im)}; }

/// The nearest T; through the library for the 16-bit types.
template <class T>
T encode(WideOf<T> value) {
  if constexpr (complex_element<T>) {
    using Real = typename T::value_type;
    return T(static_cast<Real>(value.re), static_cast<Real>(value.im));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

inline double decode(float value) { return static_cast<double>(value); }
inline double decode(double value) { return value; }
inline double decode(kronsparse::BFloat16 value) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16));
}
inline double decode(kronsparse::Half value) {
  const bool special = (value.bits & 0x7c00) == 0x7c00;
  double magnitude = 0;
  if (special) {
    magnitude = (value.bits & 1023) == 0 ? std::numeric_limits<double>::infinity()
                                         : std::numeric_limits<double>::quiet_NaN();
  } else {  // as the bits of a float it has the same digits, and an exponent that is 112 less
    magnitude = decode(std::bit_cast<float>((value.bits & 0x7fffu) << 13)) * 0x1p112;
  }
  return (value.bits & 0x8000) != 0 ? -magnitude : magnitude;
}
template <class R>
Cx<double> decode(std::complex<R> value) {
  return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
}

/// Calls f with a value of the element type of `dtype`: f(std::type_identity<float>{}), ...
template <class F>
auto with_element_type(kronsparse::DType dtype, F&& f) {
  switch (dtype) {
    case kronsparse::DType::f32:
      return f(std::type_identity<float>{});
    case kronsparse::DType::f64:
      return f(std::type_identity<double>{});
    case kronsparse::DType::f16:
      return f(std::type_identity<kronsparse::Half>{});
    case kronsparse::DType::bf16:
      return f(std::type_identity<kronsparse::BFloat16>{});
    case kronsparse::DType::complex64:
      return f(std::type_identity<std::complex<float>>{});
    case kronsparse::DType::complex128:
      break;
  }
  return f(std::type_identity<std::complex<double>>{});
}

}  // namespace conformance
