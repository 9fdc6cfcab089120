// Fast transforms as chains: Hadamard, Fourier, cosine and sine, without factors of normalisation, as FFTW
// and scipy.fft ("backward") have them.
#pragma once

#include <complex>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kronsparse/chain.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/operator.hpp"

namespace kronsparse {

/// An operator with its inputs and outputs in an order of their own: W x = (K x[inputs])[outputs]. No chain
/// has the permutation of a Fourier transform in it.
///
///     const auto fourier = kronsparse::dft<double>(12);
///     std::vector<std::complex<double>> x(12, 1.0);
///     assert(std::abs((fourier * x)[0] - 12.0) < 1e-12);
template <class T>
struct Transform {
  Operator<T> op;
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> outputs;

  /// W x for one vector.
  [[nodiscard]] std::vector<T> operator*(const std::vector<T>& x) const {
    std::vector<T> sorted;
    for (const std::int64_t input : inputs) {
      if (input >= static_cast<std::int64_t>(x.size()))
        throw Error(
            ErrorCode::size_mismatch,
            "x: " + std::to_string(x.size()) + " elements given, must be more than " + std::to_string(input));
      sorted.push_back(x[static_cast<std::size_t>(input)]);
    }
    const std::vector<T> all = op * sorted;
    std::vector<T> y;
    for (const std::int64_t output : outputs) y.push_back(all[static_cast<std::size_t>(output)]);
    return y;
  }
};

/// The Hadamard matrix of size n = 2^L in Sylvester's order.
///
///     const auto hadamard = kronsparse::hadamard<float>(8);
///     assert((hadamard * std::vector<float>(8, 1.0f))[0] == 8);
template <class T>
[[nodiscard]] Operator<T> hadamard(std::int64_t n) {
  Chain chain = Chain::butterfly(n);
  std::vector<std::vector<T>> factors;
  for (const Pattern& p : chain.factors()) {
    std::vector<T>& values = factors.emplace_back(static_cast<std::size_t>(p.nnz()), T(1.0F));
    for (std::int64_t i = 0; i < p.a; ++i)  // the last of each block's four is negative
      for (std::int64_t j = 0; j < p.d; ++j)
        values[static_cast<std::size_t>((((i * 4) + 3) * p.d) + j)] = T(-1.0F);
  }
  return {std::move(chain), std::move(factors)};
}

/// The real part of a complex operator, of real factors: each product of complex numbers is three of real
/// ones, (x + iy)(u + iv) from xu, yv and (x + y)(u + v).
///
///     using kronsparse::Operator, kronsparse::Pattern;
///     const Operator<std::complex<double>> i(Pattern{1, 1, 1, 2}, {{{0, 1}, {3, 1}}});
///     assert((kronsparse::real_part(i) * std::vector<double>{1, 1})[1] == 3);
template <class Real>
[[nodiscard]] Operator<Real> real_part(const Operator<std::complex<Real>>& op) {
  std::vector<Pattern> patterns;
  std::vector<std::vector<Real>> factors;
  // A small matrix (x) the identity of a size.
  const auto add = [&](std::int64_t rows, std::int64_t cols, const std::vector<Real>& matrix,
                       std::int64_t size) {
    patterns.push_back({1, rows, cols, size});
    std::vector<Real>& values = factors.emplace_back();
    for (const Real element : matrix) values.insert(values.end(), static_cast<std::size_t>(size), element);
  };
  add(1, 3, {1, -1, 0}, op.rows());
  for (std::size_t index = 0; index < op.chain().size(); ++index) {
    const Pattern& pattern = op.chain()[index];
    patterns.push_back({3 * pattern.a, pattern.b, pattern.c, pattern.d});
    std::vector<Real>& values = factors.emplace_back();
    for (const auto& value : op.factors()[index]) values.push_back(value.real());
    for (const auto& value : op.factors()[index]) values.push_back(value.imag());
    for (const auto& value : op.factors()[index]) values.push_back(value.real() + value.imag());
    if (index + 1 < op.chain().size())
      add(3, 3, {1, -1, 0, -1, -1, 1, 0, -2, 1}, pattern.cols());
    else
      add(3, 1, {1, 0, 1}, pattern.cols());  // the input is real
  }
  return {Chain(std::move(patterns)), std::move(factors)};
}

namespace detail {

using Order = std::vector<std::int64_t>;

/// Prime factors in groups of up to 16, or an Error: no chain is for other primes than 2, 3, 5 and 7.
[[nodiscard]] inline std::vector<std::int64_t> radices_of(std::int64_t n) {
  if (n < 1)
    throw Error(ErrorCode::invalid_argument, "n: " + std::to_string(n) + " given, must be at least 1");
  std::vector<std::int64_t> radices;
  std::int64_t left = n;
  for (const std::int64_t prime : {7, 5, 3, 2})
    for (; left % prime == 0; left /= prime) {
      if (!radices.empty() && radices.back() * prime <= 16)
        radices.back() *= prime;
      else
        radices.push_back(prime);
    }
  if (left > 1)
    throw Error(ErrorCode::unsupported, "n: " + std::to_string(n) +
                                            " given, must have no prime factor but 2, 3, 5 and 7, here " +
                                            std::to_string(left));
  if (radices.empty()) radices.push_back(1);
  return radices;
}

template <class Real>
[[nodiscard]] std::complex<Real> unit(double turns) {
  return std::complex<Real>(std::polar(1.0, 2 * std::numbers::pi * turns));
}

[[nodiscard]] inline Order counted(std::int64_t n) {
  Order order;
  for (std::int64_t index = 0; index < n; ++index) order.push_back(index);
  return order;
}

/// diag(left) · F_n · diag(right) on inputs in the order that F_n wants: F of size p·m is a factor (blocks,
/// p, p, m) times p transforms of size m, on inputs sorted by their number mod p. `right` and `inputs` are in
/// the natural order of F_n's inputs.
template <class Real, class Left, class Right>
[[nodiscard]] Transform<std::complex<Real>> fourier(std::int64_t n, double sign, const Left& left,
                                                    const Right& right, const Order& inputs, Order outputs) {
  const std::vector<std::int64_t> radices = radices_of(n);
  std::vector<Pattern> patterns;
  std::vector<std::vector<std::complex<Real>>> factors;
  Order order = counted(n);
  std::int64_t size = n;
  std::int64_t blocks = 1;
  for (const std::int64_t p : radices) {
    const std::int64_t m = size / p;
    patterns.push_back({blocks, p, p, m});
    auto& values = factors.emplace_back();
    Order sorted;
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t q = 0; q < p; ++q)
        for (std::int64_t r = 0; r < p; ++r)
          for (std::int64_t k = 0; k < m; ++k) {
            const std::int64_t turns = r * (k + (m * q)) % size;
            values.push_back(unit<Real>(sign * static_cast<double>(turns) / static_cast<double>(size)));
          }
      for (std::int64_t r = 0; r < p; ++r)
        for (std::int64_t t = 0; t < m; ++t)
          sorted.push_back(order[static_cast<std::size_t>((block * size) + (t * p) + r)]);
    }
    order = std::move(sorted);
    size = m;
    blocks *= p;
  }
  // Rows of the first factor are outputs, columns of the last are inputs.
  const auto scale = [&](std::size_t index, bool is_left, const auto& number) {
    const Pattern& f = patterns[index];
    std::size_t at = 0;
    for (std::int64_t i = 0; i < f.a; ++i)
      for (std::int64_t k = 0; k < f.b; ++k)
        for (std::int64_t l = 0; l < f.c; ++l)
          for (std::int64_t j = 0; j < f.d; ++j)
            factors[index][at++] *=
                number(is_left ? (((i * f.b) + k) * f.d) + j : (((i * f.c) + l) * f.d) + j);
  };
  scale(0, true, left);
  scale(patterns.size() - 1, false,
        [&](std::int64_t col) { return right(order[static_cast<std::size_t>(col)]); });
  Order taken;
  for (const std::int64_t index : order) taken.push_back(inputs[static_cast<std::size_t>(index)]);
  return {{Chain(std::move(patterns)), std::move(factors)}, std::move(taken), std::move(outputs)};
}

template <class Real>
[[nodiscard]] Transform<Real> real_part_of(const Transform<std::complex<Real>>& transform) {
  return {real_part(transform.op), transform.inputs, transform.outputs};
}

}  // namespace detail

/// sum_t x[t]·exp(-2πi·t·k/n), n having the prime factors 2, 3, 5 and 7 (Error unsupported otherwise).
template <class Real>
[[nodiscard]] Transform<std::complex<Real>> dft(std::int64_t n) {
  const auto one = [](std::int64_t) { return std::complex<Real>(1); };
  return detail::fourier<Real>(n, -1, one, one, detail::counted(n), detail::counted(n));
}

/// The inverse of dft: sum_t x[t]·exp(2πi·t·k/n)/n.
template <class Real>
[[nodiscard]] Transform<std::complex<Real>> idft(std::int64_t n) {
  const auto one = [](std::int64_t) { return std::complex<Real>(1); };
  const auto part = [n](std::int64_t) { return std::complex<Real>(Real(1) / static_cast<Real>(n)); };
  return detail::fourier<Real>(n, 1, part, one, detail::counted(n), detail::counted(n));
}

/// Type 2: 2·sum_t x[t]·cos(π·k·(2t+1)/2n), of real factors.
template <class Real>
[[nodiscard]] Transform<Real> dct(std::int64_t n) {
  detail::Order inputs;  // even ones, then odd ones from behind
  for (std::int64_t t = 0; t < n; t += 2) inputs.push_back(t);
  for (std::int64_t t = n - 1 - (n % 2); t > 0; t -= 2) inputs.push_back(t);
  const auto left = [n](std::int64_t k) {
    return Real(2) * detail::unit<Real>(-static_cast<double>(k) / (4.0 * static_cast<double>(n)));
  };
  const auto one = [](std::int64_t) { return std::complex<Real>(1); };
  return detail::real_part_of(detail::fourier<Real>(n, -1, left, one, inputs, detail::counted(n)));
}

/// Type 2: 2·sum_t x[t]·sin(π·(k+1)·(2t+1)/2n), of real factors: the cosines of x with every other sign
/// changed.
template <class Real>
[[nodiscard]] Transform<Real> dst(std::int64_t n) {
  Transform<Real> transform = dct<Real>(n);
  std::vector<std::vector<Real>> factors = transform.op.factors();
  // The last factor is [1 0 1]^T (x) 1: its columns are inputs.
  for (std::size_t index = 0; index < factors.back().size(); ++index)
    if (transform.inputs[index % static_cast<std::size_t>(n)] % 2 != 0)
      factors.back()[index] = -factors.back()[index];
  detail::Order outputs(transform.outputs.rbegin(), transform.outputs.rend());
  return {{transform.op.chain(), std::move(factors)}, std::move(transform.inputs), std::move(outputs)};
}

}  // namespace kronsparse
