// Between stored elements and the double precision of the reference.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>

#include "kronsparse/dtype.hpp"

namespace kronsparse {

/// A double as a float, rounded to odd: an inexact result gets an odd last bit.
/// Rounding that to nearest in a format at least two bits shorter gives what
/// rounding the double at once would; rounding twice to nearest does not.
[[nodiscard]] inline float round_to_odd(double value) noexcept {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

/// How the reference computes with elements stored as T: in `Wide`.
template <class T>
struct Storage {
  using Wide = double;
  static double load(T value) noexcept { return static_cast<double>(static_cast<float>(value)); }
  static T store(double value) noexcept { return T(round_to_odd(value)); }
};
template <>
struct Storage<float> {
  using Wide = double;
  static double load(float value) noexcept { return value; }
  static float store(double value) noexcept { return static_cast<float>(value); }
};
template <>
struct Storage<double> {
  using Wide = double;
  static double load(double value) noexcept { return value; }
  static double store(double value) noexcept { return value; }
};
template <class Real>
struct Storage<std::complex<Real>> {
  using Wide = std::complex<double>;
  static Wide load(std::complex<Real> value) noexcept { return {value.real(), value.imag()}; }
  static std::complex<Real> store(Wide value) noexcept {
    return {static_cast<Real>(value.real()), static_cast<Real>(value.imag())};
  }
};

}  // namespace kronsparse
