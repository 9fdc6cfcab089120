// Vectors and Householder reflectors, on contiguous elements of a real or complex type.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>

namespace kronsparse::factorization {

template <class T>
inline constexpr bool is_complex_type = false;
template <class Real>
inline constexpr bool is_complex_type<std::complex<Real>> = true;

template <class T>
using RealOf = decltype(std::abs(T{}));

template <class T>
[[nodiscard]] inline T conjugate(T x) noexcept {
  if constexpr (is_complex_type<T>)
    return std::conj(x);
  else
    return x;
}

template <class T>
[[nodiscard]] inline double squared(T x) noexcept {
  if constexpr (is_complex_type<T>) {
    const auto real = static_cast<double>(x.real());
    const auto imaginary = static_cast<double>(x.imag());
    return (real * real) + (imaginary * imaginary);
  } else {
    return static_cast<double>(x) * static_cast<double>(x);
  }
}

/// Sum of x[t]·conj(y[t]).
template <class T>
[[nodiscard]] inline T dot(const T* x, const T* y, std::int64_t size) noexcept {
  if constexpr (is_complex_type<T>) {
    RealOf<T> real = 0;
    RealOf<T> imaginary = 0;
    for (std::int64_t t = 0; t < size; ++t) {
      real += (x[t].real() * y[t].real()) + (x[t].imag() * y[t].imag());
      imaginary += (x[t].imag() * y[t].real()) - (x[t].real() * y[t].imag());
    }
    return {real, imaginary};
  } else {
    T sum = 0;
    for (std::int64_t t = 0; t < size; ++t) sum += x[t] * y[t];
    return sum;
  }
}

/// y += factor·x.
template <class T>
inline void add_multiple(T* y, T factor, const T* x, std::int64_t size) noexcept {
  if constexpr (is_complex_type<T>) {
    const auto real = factor.real();
    const auto imaginary = factor.imag();
    for (std::int64_t t = 0; t < size; ++t)
      y[t] = {y[t].real() + (real * x[t].real()) - (imaginary * x[t].imag()),
              y[t].imag() + (real * x[t].imag()) + (imaginary * x[t].real())};
  } else {
    for (std::int64_t t = 0; t < size; ++t) y[t] += factor * x[t];
  }
}

/// v and tau with (1 - tau·v·v^*) x = beta·e_1, beta real: x becomes v, whose first element is 1. The largest
/// elements are expected to be near 1, so that squares neither overflow nor vanish together.
template <class T>
struct Reflector {
  T tau;
  RealOf<T> beta;
};
template <class T>
[[nodiscard]] inline Reflector<T> make_reflector(T* x, std::int64_t size) noexcept {
  using Real = RealOf<T>;
  double rest = 0;
  for (std::int64_t t = 1; t < size; ++t) rest += squared(x[t]);
  const T alpha = x[0];
  double imaginary = 0;
  if constexpr (is_complex_type<T>) imaginary = static_cast<double>(alpha.imag());
  x[0] = T{1};
  if (rest == 0 && imaginary == 0) return {T{0}, std::real(alpha)};
  const auto norm = static_cast<Real>(std::sqrt(squared(alpha) + rest));
  const Real beta = std::real(alpha) > 0 ? -norm : norm;
  const T inverse = T{1} / (alpha - T{beta});
  for (std::int64_t t = 1; t < size; ++t) x[t] *= inverse;
  return {conjugate((T{beta} - alpha) / beta), beta};
}

/// z := (1 - conj(tau)·v·v^*) z, which undoes the reflector.
template <class T>
inline void undo_reflector(T* z, const T* v, T tau, std::int64_t size) noexcept {
  if (tau != T{0}) add_multiple(z, -conjugate(tau) * dot(z, v, size), v, size);
}

}  // namespace kronsparse::factorization
