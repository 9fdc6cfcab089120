// The right answers, straight from the definition
//   K[i·b·d + k·d + j, i·c·d + l·d + j] = values[i,k,l,j],
// in integers (exact) or in double. No code of the library is involved.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "kronsparse/problem.hpp"
#include "scalars.hpp"

namespace conformance {

/// Operands of a problem without their layout: element (feature f, sample n) of
/// x and g is at f·batch + n.
template <class S>
struct Data {
  std::vector<S> values;
  std::vector<S> x;
  std::vector<S> g;
  std::vector<S> bias;
};

/// The sums before the activation, laid out like x (like values for the gradient).
template <class S>
std::vector<S> evaluate(const kronsparse::Problem& problem, const Data<S>& data) {
  using kronsparse::Operation;
  const auto [a, b, c, d] = problem.pattern();
  const std::int64_t batch = problem.batch;
  const bool gradient = problem.operation == Operation::gradient;
  const bool forward = problem.operation == Operation::multiply;
  std::vector<S> y(static_cast<std::size_t>(gradient  ? problem.pattern().nnz()
                                            : forward ? problem.pattern().rows() * batch
                                                      : problem.pattern().cols() * batch));
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t k = 0; k < b; ++k)
      for (std::int64_t l = 0; l < c; ++l)
        for (std::int64_t j = 0; j < d; ++j, ++at) {
          const std::int64_t row = i * b * d + k * d + j;
          const std::int64_t col = i * c * d + l * d + j;
          if (gradient) {
            S sum{};
            for (std::int64_t n = 0; n < batch; ++n)
              sum += data.g[static_cast<std::size_t>(row * batch + n)] *
                     conjugate(data.x[static_cast<std::size_t>(col * batch + n)]);
            y[static_cast<std::size_t>(at)] = sum;
            continue;
          }
          S value = data.values[static_cast<std::size_t>(at)];
          if (problem.operation == Operation::adjoint) value = conjugate(value);
          S* to = y.data() + (forward ? row : col) * batch;
          const S* from = data.x.data() + (forward ? col : row) * batch;
          for (std::int64_t n = 0; n < batch; ++n) to[n] += value * from[n];
        }
  if (problem.bias)
    for (std::size_t at_y = 0; at_y < y.size(); ++at_y)
      y[at_y] += data.bias[at_y / static_cast<std::size_t>(batch)];
  return y;
}

/// Real terms in one output's sum: a complex product contributes two to each part.
inline std::int64_t terms(const kronsparse::Problem& problem) {
  using kronsparse::Operation;
  const std::int64_t products = problem.operation == Operation::multiply   ? problem.pattern().c
                                : problem.operation == Operation::gradient ? problem.batch
                                                                           : problem.pattern().b;
  return products * (kronsparse::is_complex(problem.dtype) ? 2 : 1);
}

inline double activate(kronsparse::Activation activation, double z) {
  using kronsparse::Activation;
  switch (activation) {
    case Activation::none:
      return z;
    case Activation::relu:
      return z < 0 ? 0 : z;  // NaN stays NaN
    case Activation::gelu:
      return 0.5 * z * std::erfc(-z * std::numbers::sqrt2 / 2);
    case Activation::gelu_tanh: {
      const double scale = std::sqrt(2 * std::numbers::inv_pi);
      return 0.5 * z * (1 + std::tanh(scale * (z + 0.044715 * z * z * z)));
    }
    case Activation::silu:
      return z / (1 + std::exp(-z));
  }
  return z;
}
/// Complex problems have no activation.
inline Cx<double> activate(kronsparse::Activation, Cx<double> z) { return z; }

inline bool exact_activation(kronsparse::Activation activation) {
  return activation == kronsparse::Activation::none || activation == kronsparse::Activation::relu;
}

/// `value` rounded to nearest even at `digits` significant bits: what one
/// rounding at the end makes of an exact sum.
inline double round_to(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  // 2^(its exponent), and what the last digit is worth. No number here is small enough to have another
  // exponent.
  const auto power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & 0x7ff0000000000000u);
  const double unit = power * std::bit_cast<double>(static_cast<std::uint64_t>(1024 - digits) << 52u);
  return std::nearbyint(value / unit) * unit;
}
inline Cx<double> round_to(Cx<double> value, int digits) {
  return {round_to(value.re, digits), round_to(value.im, digits)};
}

inline double magnitude(double value) { return std::abs(value); }
inline double magnitude(Cx<double> value) { return std::hypot(value.re, value.im); }

/// Absolute values of everything: evaluating these gives S, the sum of the
/// absolute values of an output's terms, which rounding errors scale with.
template <class S>
Data<double> magnitudes(const Data<S>& data) {
  const auto of = [](const std::vector<S>& from) {
    std::vector<double> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](S value) { return magnitude(value); });
    return to;
  };
  return {of(data.values), of(data.x), of(data.g), of(data.bias)};
}

/// The larger part bounds what storing either part may lose.
inline double scale_of(double z) { return z; }
inline double scale_of(Cx<double> z) { return std::fmax(std::abs(z.re), std::abs(z.im)); }

/// The largest error of a (part of a) correct output, given z (before the
/// activation, from the double oracle) and the sum S of absolute terms:
/// - K real terms and a bias, added in any order and with or without fused
///   multiplication, err by at most gamma_(K+1) S, and gamma_(K+1) <= (K+4) u
///   for every K u here; u is half an ulp of the accumulator. (A part of a
///   complex product has |re·re| + |im·im| <= |p||q|, so S may use moduli.)
///   The oracle's own double sum errs in the same way.
/// - an activation changes a difference by at most max |act'| < 1.13 (gelu);
///   gelu and silu are z·p(z) with p in [0,1], and an implementation may err by
///   4 ulps = 8 u in p, hence by 8 u |z|.
/// - TF32, where it was asked for, keeps 11 bits of either operand.
/// - storing rounds once: u_storage |y|, or half the smallest number.
/// `brought` is how far the exact sum may be off because its operands are.
template <class T>
double error_bound(const kronsparse::Problem& problem, double z, double absolute_sum, double brought = 0) {
  const double u = std::ldexp(1.0, -traits<T>.accumulator_digits);
  const double sum_length = static_cast<double>(terms(problem)) + 4;
  double error = sum_length * (u + std::ldexp(1.0, -53)) * absolute_sum;
  if (problem.mode == kronsparse::Mode::tf32) error += std::ldexp(2.01, -11) * absolute_sum;
  error += brought;
  if (!exact_activation(problem.activation)) error = 1.13 * error + 8 * u * (std::abs(z) + brought);
  const double y = std::abs(activate(problem.activation, z));
  return error + std::ldexp(1.0, -traits<T>.digits) * (y + error) +
         std::ldexp(0.5, traits<T>.subnormal_exponent);
}

}  // namespace conformance
