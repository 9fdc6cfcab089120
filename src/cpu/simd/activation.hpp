// Activations on whole vectors. Included by isa_*.cpp only.
//
// Polynomials are least-maximum fits made for this file (relative error in
// exact arithmetic 3e-9 for exp on [-ln2/2, ln2/2], 7e-9 for erfcx on [0, 9.4]),
// so float rounding, not the fit, decides the error.
#pragma once

#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// e^x, relative error about 2e-7; 0 below the normal floats, inf above them, nan stays.
KRONSPARSE_INLINE Vf exp(Vf x) {
  const Vf lowest = splat(-87.3f);
  const Vf highest = splat(88.7f);
  Vf r = x < lowest ? lowest : x;
  r = r > highest ? highest : r;
  const Vf to_integer = splat(12582912.0f);  // 1.5·2^23: the sum's last bit has weight 1
  const Vf shifted = r * 1.44269504f + to_integer;
  const Vf n = shifted - to_integer;
  r = (r - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two pieces
  Vf q = splat(0.0013814464760180045f);
  q = q * r + 0.008368780622535378f;
  q = q * r + 0.04166839425901707f;
  q = q * r + 0.16666520105542854f;
  q = q * r + 0.4999999341226142f;
  const Vf fraction = (q * r) * r + r + 1.0f;
  // 2^n in two steps: n may be 128, whose power alone is not a float.
  const Vi exponent = bits_as<Vi>(shifted) - bits_as<Vi>(to_integer);
  const Vi half = exponent >> 1;
  const Vi bias = splat(int32_t{127});
  Vf result = fraction * bits_as<Vf>((half + bias) << 23) * bits_as<Vf>((exponent - half + bias) << 23);
  result = x < lowest ? Vf{} : result;
  result = x > highest ? splat(__builtin_inff()) : result;
  return is_number(x) ? result : x;
}

/// The normal distribution function, accurate also in its lower tail:
/// erfc(z) = e^(-z^2) · t·P(t) with t = 1/(1 + 0.35 z).
KRONSPARSE_INLINE Vf normal_cdf(Vf x) {
  const Vf zero = {};
  Vf z = (x < zero ? -x : x) * 0.70710678118654752f;
  const Vf far = splat(9.4f);  // e^(-z^2) counts as 0 from here on
  z = z > far ? far : z;
  const Vf t = 1.0f / (1.0f + 0.35f * z);
  Vf p = splat(0.03743378938904767f);
  p = p * t + -0.15348765892235317f;
  p = p * t + 0.16816263494997322f;
  p = p * t + -0.009195388885754061f;
  p = p * t + 0.07087722866418895f;
  p = p * t + 0.15517217519375492f;
  p = p * t + 0.14784203335132287f;
  p = p * t + 0.18866615372274942f;
  p = p * t + 0.1970397892111136f;
  p = p * t + 0.19748924981075103f;
  const Vf tail = 0.5f * exp(-z * z) * (p * t);
  return x < zero ? tail : 1.0f - tail;
}

KRONSPARSE_INLINE Vf activate(Act activation, Vf x) {
  const Vf zero = {};
  switch (activation) {
    case Act::none:
      return x;
    case Act::relu:
      return x < zero ? zero : x;
    case Act::gelu:
      return x * normal_cdf(x);
    // x/2 (1 + tanh u) = x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)
    case Act::gelu_tanh:
      return x / (1.0f + exp(-1.5957691216057308f * x * (1.0f + 0.044715f * x * x)));
    case Act::silu:
      return x / (1.0f + exp(-x));
  }
  return x;
}

/// Double precision has no users in a hurry: the C library, element by element.
KRONSPARSE_INLINE double activate(Act activation, double x) {
  switch (activation) {
    case Act::none:
      return x;
    case Act::relu:
      return x < 0 ? 0 : x;
    case Act::gelu:
      return 0.5 * x * __builtin_erfc(-x * 0.70710678118654752440);
    case Act::gelu_tanh:
      return x / (1.0 + __builtin_exp(-1.5957691216057307117 * x * (1.0 + 0.044715 * x * x)));
    case Act::silu:
      return x / (1.0 + __builtin_exp(-x));
  }
  return x;
}
KRONSPARSE_INLINE Vector<double> activate(Act activation, Vector<double> x) {
  for (int lane = 0; lane < lanes<double>; ++lane)
    x[lane] = activate(activation, static_cast<double>(x[lane]));
  return x;
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
