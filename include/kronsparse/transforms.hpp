// Fast transforms as chains: Hadamard, Fourier, cosine and sine, with the conventions of scipy.fft.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kronsparse/chain.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/export.h"
#include "kronsparse/operator.hpp"

namespace kronsparse {

/// Which factor a transform has: for a Fourier transform of size n, 1, 1/sqrt(n) or 1/n, and the inverse of
/// that for the inverse transform. `ortho` makes all transforms orthogonal or unitary matrices.
enum class Norm : std::uint8_t { backward, ortho, forward };

/// The radices of the butterfly that a transform of size n is, those that the device's cost model likes best
/// for 64 vectors of the dtype: products of the primes of n, which are 2, 3, 5 and 7 (Error unsupported
/// otherwise). All transforms below choose theirs so.
///
///     const auto radices = kronsparse::transform_radices(6, kronsparse::DType::f32);
///     assert(radices.size() == 1 || radices[0] * radices[1] == 6);
[[nodiscard]] KRONSPARSE_API std::vector<std::int64_t> transform_radices(std::int64_t n, DType dtype,
                                                                         Device device = {});

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

  [[nodiscard]] std::int64_t rows() const noexcept { return static_cast<std::int64_t>(outputs.size()); }
  [[nodiscard]] std::int64_t cols() const noexcept { return 1 + std::ranges::max(inputs); }

  /// W x for one vector.
  [[nodiscard]] std::vector<T> operator*(const std::vector<T>& x) const {
    if (static_cast<std::int64_t>(x.size()) != cols())
      throw Error(ErrorCode::size_mismatch,
                  "x: " + std::to_string(x.size()) + " elements given, must be " + std::to_string(cols()));
    std::vector<T> sorted;
    for (const std::int64_t input : inputs) sorted.push_back(x[static_cast<std::size_t>(input)]);
    const std::vector<T> all = op * sorted;
    std::vector<T> y;
    for (const std::int64_t output : outputs) y.push_back(all[static_cast<std::size_t>(output)]);
    return y;
  }
};

namespace detail {

/// The number that the elements of a transform of this size are multiplied by.
[[nodiscard]] inline double factor_of(Norm norm, std::int64_t size) {
  const auto n = static_cast<double>(size);
  return norm == Norm::backward ? 1 : norm == Norm::ortho ? 1 / std::sqrt(n) : 1 / n;
}

}  // namespace detail

namespace detail {

using Radices = std::vector<std::int64_t>;

/// The radices given, which must multiply to n, or those chosen for the device.
[[nodiscard]] inline Radices radices_of(std::int64_t n, DType dtype, Device device, const Radices& given) {
  if (given.empty()) return transform_radices(n, dtype, device);
  std::int64_t left = n;
  for (const std::int64_t radix : given) left = radix > 0 && left % radix == 0 ? left / radix : 0;
  if (left != 1) {
    std::string text;
    for (const std::int64_t radix : given) text += (text.empty() ? "" : ", ") + std::to_string(radix);
    throw Error(ErrorCode::invalid_argument,
                "radices: " + text + " given, must multiply to n, " + std::to_string(n));
  }
  return given;
}

}  // namespace detail

/// The Hadamard matrix of size n = 2^L in Sylvester's order, a butterfly with the given radices, or with
/// those that are best for the device.
///
///     const auto hadamard = kronsparse::hadamard<float>(8);
///     assert((hadamard * std::vector<float>(8, 1.0f))[0] == 8);
///     assert(kronsparse::hadamard<float>(8, kronsparse::Norm::ortho, {}, {2, 2, 2}).chain().size() == 3);
template <class T>
[[nodiscard]] Operator<T> hadamard(std::int64_t n, Norm norm = Norm::backward, Device device = {},
                                   const std::vector<std::int64_t>& radices = {}) {
  if (n < 1 || (n & (n - 1)) != 0)
    throw Error(ErrorCode::invalid_argument, "n: " + std::to_string(n) + " given, must be a power of two");
  std::vector<Pattern> patterns;
  std::vector<std::vector<T>> factors;
  std::int64_t blocks = 1;
  for (const std::int64_t p : detail::radices_of(n, dtype_of<T>, device, radices)) {
    const Pattern& pattern = patterns.emplace_back(Pattern{blocks, p, p, n / blocks / p});
    auto& values = factors.emplace_back();
    for (std::int64_t i = 0; i < pattern.a; ++i)
      for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(p); ++k)
        for (std::uint64_t l = 0; l < static_cast<std::uint64_t>(p); ++l)
          values.insert(values.end(), static_cast<std::size_t>(pattern.d),
                        std::popcount(k & l) % 2 == 0 ? T(1.0F) : T(-1.0F));
    blocks *= p;
  }
  return static_cast<T>(detail::factor_of(norm, n)) *
         Operator<T>(Chain(std::move(patterns)), std::move(factors));
}

namespace detail {

using Order = std::vector<std::int64_t>;

/// The rest of n without the primes 2, 3, 5 and 7.
[[nodiscard]] inline std::int64_t other_primes(std::int64_t n) {
  for (const std::int64_t prime : {2, 3, 5, 7})
    while (n % prime == 0) n /= prime;
  return n;
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

/// diag(left) · op · diag(right), of functions of a row and of a column.
template <class T, class Left, class Right>
[[nodiscard]] Operator<T> with_diagonals(const Operator<T>& op, const Left& left, const Right& right) {
  std::vector<std::vector<T>> factors = op.factors();
  const auto scale = [&](std::size_t index, bool is_left, const auto& number) {
    const Pattern& f = op.chain()[index];
    std::size_t at = 0;
    for (std::int64_t i = 0; i < f.a; ++i)
      for (std::int64_t k = 0; k < f.b; ++k)
        for (std::int64_t l = 0; l < f.c; ++l)
          for (std::int64_t j = 0; j < f.d; ++j)
            factors[index][at++] *=
                number(is_left ? (((i * f.b) + k) * f.d) + j : (((i * f.c) + l) * f.d) + j);
  };
  scale(0, true, left);
  scale(factors.size() - 1, false, right);
  return {op.chain(), std::move(factors)};
}

/// diag(left) · F_n · diag(right) on inputs in the order that F_n wants: F of size p·m is a factor (blocks,
/// p, p, m) times p transforms of size m, on inputs sorted by their number mod p. `right` and `inputs` are in
/// the natural order of F_n's inputs.
template <class Real, class Left, class Right>
[[nodiscard]] Transform<std::complex<Real>> fourier(std::int64_t n, const Radices& radices, double sign,
                                                    const Left& left, const Right& right, const Order& inputs,
                                                    Order outputs) {
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
  const Operator<std::complex<Real>> plain(Chain(std::move(patterns)), std::move(factors));
  Order taken;
  for (const std::int64_t index : order) taken.push_back(inputs[static_cast<std::size_t>(index)]);
  return {with_diagonals(plain, left,
                         [&](std::int64_t col) { return right(order[static_cast<std::size_t>(col)]); }),
          std::move(taken), std::move(outputs)};
}

template <class Real>
[[nodiscard]] Radices best_radices(std::int64_t n, Device device) {
  return transform_radices(n, dtype_of<std::complex<Real>>, device);
}

template <class Real>
[[nodiscard]] Transform<Real> real_part_of(const Transform<std::complex<Real>>& transform) {
  return {real_part(transform.op), transform.inputs, transform.outputs};
}

[[nodiscard]] inline Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t index = 0; index < order.size(); ++index)
    result[static_cast<std::size_t>(order[index])] = static_cast<std::int64_t>(index);
  return result;
}

enum class Wave : std::uint8_t { cosine, sine };

/// The size of the Fourier transform that type 1 goes through; others have factors as if it were 2·n.
[[nodiscard]] inline std::int64_t period(Wave wave, std::int64_t n, int type) {
  return type > 1 ? 2 * n : wave == Wave::cosine ? 2 * (n - 1) : 2 * (n + 1);
}

/// The matrix itself: for type 1 where the size of its Fourier transform has other primes.
template <class Real>
[[nodiscard]] Transform<Real> dense_type1(Wave wave, std::int64_t n) {
  const bool is_cosine = wave == Wave::cosine;
  const std::int64_t size = period(wave, n, 1);
  std::vector<Real> values;
  for (std::int64_t k = 0; k < n; ++k)
    for (std::int64_t t = 0; t < n; ++t) {
      const std::int64_t turns = (is_cosine ? k * t : (k + 1) * (t + 1)) % size;
      const double angle = 2 * std::numbers::pi * static_cast<double>(turns) / static_cast<double>(size);
      const double number =
          is_cosine ? (t == 0 || t == n - 1 ? 1 : 2) * std::cos(angle) : 2 * std::sin(angle);
      values.push_back(static_cast<Real>(number));
    }
  return {{Pattern{1, n, n, 1}, {std::move(values)}}, counted(n), counted(n)};
}

/// A Fourier transform of the inputs and their mirror image.
template <class Real>
[[nodiscard]] Transform<Real> type1(Wave wave, std::int64_t n, Device device) {
  using Complex = std::complex<Real>;
  const std::int64_t size = period(wave, n, 1);
  if (other_primes(size) != 1) return dense_type1<Real>(wave, n);
  const Radices radices = best_radices<Real>(size, device);
  Order inputs;
  if (wave == Wave::cosine) {
    for (std::int64_t t = 0; t < size; ++t) inputs.push_back(t < n ? t : size - t);
    const auto one = [](std::int64_t) { return Complex(1); };
    return real_part_of(fourier<Real>(size, radices, -1, one, one, inputs, counted(n)));
  }
  // 0, x, 0, -x from behind: what stands for a 0 is multiplied by it.
  for (std::int64_t t = 0; t < size; ++t)
    inputs.push_back(t % (n + 1) == 0 ? 0 : t <= n ? t - 1 : size - t - 1);
  const auto sign = [n](std::int64_t t) {
    return Complex(t % (n + 1) == 0 ? Real(0) : t <= n ? Real(1) : Real(-1));
  };
  Order outputs;
  for (std::int64_t k = 0; k < n; ++k) outputs.push_back(k + 1);
  return real_part_of(fourier<Real>(
      size, radices, -1, [](std::int64_t) { return Complex(0, 1); }, sign, inputs, outputs));
}

/// 2·Re(exp(-iπk/2n)·F), on even inputs followed by odd ones from behind. Sines are the cosines of x with
/// every other sign changed, from behind.
template <class Real>
[[nodiscard]] Transform<Real> type2(Wave wave, std::int64_t n, Device device) {
  Order inputs;
  for (std::int64_t t = 0; t < n; t += 2) inputs.push_back(t);
  for (std::int64_t t = n - 1 - (n % 2); t > 0; t -= 2) inputs.push_back(t);
  const auto left = [n](std::int64_t k) {
    return Real(2) * unit<Real>(-static_cast<double>(k) / (4.0 * static_cast<double>(n)));
  };
  const auto sign = [&](std::int64_t t) {
    const bool is_odd = inputs[static_cast<std::size_t>(t)] % 2 != 0;
    return std::complex<Real>(wave == Wave::sine && is_odd ? Real(-1) : Real(1));
  };
  Order outputs = counted(n);
  if (wave == Wave::sine) std::ranges::reverse(outputs);
  return real_part_of(fourier<Real>(n, best_radices<Real>(n, device), -1, left, sign, inputs, outputs));
}

/// The transpose of type 2, one input of which counts half.
template <class Real>
[[nodiscard]] Transform<Real> type3(Wave wave, std::int64_t n, Device device) {
  const Transform<Real> transform = type2<Real>(wave, n, device);
  Order inputs = inverse(transform.outputs);
  const std::int64_t end = wave == Wave::cosine ? 0 : n - 1;
  Operator<Real> op = with_diagonals(
      transform.op.transposed(), [](std::int64_t) { return Real(1); },
      [&](std::int64_t col) { return inputs[static_cast<std::size_t>(col)] == end ? Real(0.5) : Real(1); });
  return {std::move(op), std::move(inputs), inverse(transform.inputs)};
}

/// 2·Re of a Fourier transform between two diagonals gives outputs with even numbers up to 2n; X(2n-1-k) =
/// -X(k) has the odd ones. Sines are cosines of inputs from behind, with every other output negated.
template <class Real>
[[nodiscard]] Transform<Real> type4(Wave wave, std::int64_t n, Device device) {
  const auto size = static_cast<double>(n);
  Order numbers;  // which output the m-th is
  for (std::int64_t m = 0; m < n; ++m) numbers.push_back(2 * m < n ? 2 * m : (2 * n) - 1 - (2 * m));
  const auto left = [&](std::int64_t m) {
    const bool is_odd = numbers[static_cast<std::size_t>(m)] % 2 != 0;
    const bool is_negative = (2 * m >= n) != (wave == Wave::sine && is_odd);
    return Real(is_negative ? -2 : 2) * unit<Real>(-static_cast<double>((4 * m) + 1) / (8 * size));
  };
  const auto right = [&](std::int64_t m) { return unit<Real>(-static_cast<double>(m) / (4 * size)); };
  Order inputs = counted(n);
  if (wave == Wave::sine) std::ranges::reverse(inputs);
  return real_part_of(
      fourier<Real>(n, best_radices<Real>(n, device), -1, left, right, inputs, inverse(numbers)));
}

/// With the factors of a norm; `ortho` also weighs inputs and outputs at an end of the cosines.
template <class Real>
[[nodiscard]] Transform<Real> normalised(Transform<Real> transform, Wave wave, std::int64_t n, int type,
                                         Norm norm) {
  if (norm == Norm::backward) return transform;
  const auto factor = static_cast<Real>(factor_of(norm, period(wave, n, type)));
  const std::int64_t end = wave == Wave::cosine ? 0 : n - 1;
  const bool has_two_ends = type == 1 && wave == Wave::cosine;
  const auto is_end = [&](std::int64_t index) {
    return norm == Norm::ortho && (index == end || (has_two_ends && index == n - 1));
  };
  const auto root = static_cast<Real>(std::numbers::sqrt2);
  std::vector<Real> rows(static_cast<std::size_t>(transform.op.rows()), factor);
  for (std::int64_t output = 0; output < n; ++output)
    if (is_end(output) && (type == 2 || has_two_ends))
      rows[static_cast<std::size_t>(transform.outputs[static_cast<std::size_t>(output)])] /= root;
  transform.op = with_diagonals(
      transform.op, [&](std::int64_t row) { return rows[static_cast<std::size_t>(row)]; },
      [&](std::int64_t col) {
        const std::int64_t input = transform.inputs[static_cast<std::size_t>(col)];
        return is_end(input) && (type == 3 || has_two_ends) ? root : Real(1);
      });
  return transform;
}

template <class Real>
[[nodiscard]] Transform<Real> wave_transform(Wave wave, std::int64_t n, int type, Norm norm, Device device) {
  if (type < 1 || type > 4)
    throw Error(ErrorCode::invalid_argument,
                "type: " + std::to_string(type) + " given, must be one of 1, 2, 3, 4");
  const std::int64_t least = type == 1 && wave == Wave::cosine ? 2 : 1;
  if (n < least)
    throw Error(ErrorCode::invalid_argument, "n: " + std::to_string(n) + " given, must be at least " +
                                                 std::to_string(least) + (least > 1 ? " for type 1" : ""));
  Transform<Real> transform = type == 1   ? type1<Real>(wave, n, device)
                              : type == 2 ? type2<Real>(wave, n, device)
                              : type == 3 ? type3<Real>(wave, n, device)
                                          : type4<Real>(wave, n, device);
  return normalised(std::move(transform), wave, n, type, norm);
}

}  // namespace detail

/// sum_t x[t]·exp(-2πi·t·k/n), a butterfly with the given radices, or with those that are best for the
/// device; n then has the prime factors 2, 3, 5 and 7 (Error unsupported otherwise).
template <class Real>
[[nodiscard]] Transform<std::complex<Real>> dft(std::int64_t n, Norm norm = Norm::backward,
                                                Device device = {},
                                                const std::vector<std::int64_t>& radices = {}) {
  const auto chosen = detail::radices_of(n, dtype_of<std::complex<Real>>, device, radices);
  const auto one = [](std::int64_t) { return std::complex<Real>(1); };
  const auto part = [&](std::int64_t) {
    return std::complex<Real>(static_cast<Real>(detail::factor_of(norm, n)));
  };
  return detail::fourier<Real>(n, chosen, -1, part, one, detail::counted(n), detail::counted(n));
}

/// The inverse of dft with the same norm: without one, sum_t x[t]·exp(2πi·t·k/n)/n.
template <class Real>
[[nodiscard]] Transform<std::complex<Real>> idft(std::int64_t n, Norm norm = Norm::backward,
                                                 Device device = {},
                                                 const std::vector<std::int64_t>& radices = {}) {
  const auto chosen = detail::radices_of(n, dtype_of<std::complex<Real>>, device, radices);
  const Norm opposite = norm == Norm::backward  ? Norm::forward
                        : norm == Norm::forward ? Norm::backward
                                                : Norm::ortho;
  const auto one = [](std::int64_t) { return std::complex<Real>(1); };
  const auto part = [&](std::int64_t) {
    return std::complex<Real>(static_cast<Real>(detail::factor_of(opposite, n)));
  };
  return detail::fourier<Real>(n, chosen, 1, part, one, detail::counted(n), detail::counted(n));
}

/// The cosine transform of a type from 1 to 4, as scipy.fft.dct has it, of real factors. Type 2 is
/// 2·sum_t x[t]·cos(π·k·(2t+1)/2n). n has the prime factors 2, 3, 5 and 7 (Error unsupported otherwise); for
/// type 1 it has any, and where 2·(n-1) has others, the transform is one dense factor.
///
///     using namespace kronsparse;
///     const auto cosines = dct<double>(4, 2, Norm::ortho);
///     const auto back = dct<double>(4, 3, Norm::ortho);  // the transpose, and so the inverse
///     assert(std::abs((back * (cosines * std::vector<double>{1, 2, 3, 4}))[2] - 3) < 1e-14);
template <class Real>
[[nodiscard]] Transform<Real> dct(std::int64_t n, int type = 2, Norm norm = Norm::backward,
                                  Device device = {}) {
  return detail::wave_transform<Real>(detail::Wave::cosine, n, type, norm, device);
}

/// The sine transform of a type from 1 to 4, as scipy.fft.dst has it, of real factors. Type 2 is
/// 2·sum_t x[t]·sin(π·(k+1)·(2t+1)/2n). Sizes are those of dct; type 1 goes through 2·(n+1).
///
///     const auto sines = kronsparse::dst<double>(3, 1);
///     assert(std::abs((sines * std::vector<double>{1, 0, 0})[0] - std::sqrt(2.0)) < 1e-14);
template <class Real>
[[nodiscard]] Transform<Real> dst(std::int64_t n, int type = 2, Norm norm = Norm::backward,
                                  Device device = {}) {
  return detail::wave_transform<Real>(detail::Wave::sine, n, type, norm, device);
}

}  // namespace kronsparse
