// The butterfly chain with the twiddles of the FFT is the discrete Fourier
// transform of the bit-reversed input: F_n = [I D; I -D] (I_2 (x) F_{n/2}) P.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "apply.hpp"
#include "combination.hpp"
#include "kronsparse/chain.hpp"

namespace conformance {
namespace {

using T = std::complex<double>;

class Fft : public testing::TestWithParam<Combination> {};

Cx<double> root_of_unity(std::int64_t power, std::int64_t order) {
  const double angle =
      -2 * std::numbers::pi * static_cast<double>(power % order) / static_cast<double>(order);
  return {std::cos(angle), std::sin(angle)};
}

/// values[i,k,l,j] of the factor (a,2,2,d): 1, w^j / 1, -w^j with w of order 2d.
std::vector<Cx<double>> twiddles(const kronsparse::Pattern& factor) {
  std::vector<Cx<double>> values;
  for (std::int64_t i = 0; i < factor.a; ++i)
    for (int k = 0; k < 2; ++k)
      for (int l = 0; l < 2; ++l)
        for (std::int64_t j = 0; j < factor.d; ++j) {
          const Cx<double> w = l == 0 ? Cx<double>{1, 0} : root_of_unity(j, 2 * factor.d);
          values.push_back(k == 1 && l == 1 ? Cx<double>{-w.re, -w.im} : w);
        }
  return values;
}

std::size_t bit_reversed(std::size_t index, std::size_t size) {
  std::size_t reversed = 0;
  for (std::size_t bit = 1; bit < size; bit *= 2, index /= 2) reversed = 2 * reversed + index % 2;
  return reversed;
}

TEST_P(Fft, ButterflyChainIsTheFourierTransform) {
  const auto& [target, dtype, layout, operation] = GetParam();
  constexpr std::size_t kSize = 256;
  constexpr std::size_t kBatch = 3;
  const kronsparse::Chain chain = kronsparse::Chain::butterfly(kSize);
  const auto problem_of = [&, layout = layout](std::size_t factor, kronsparse::Operation what) {
    return kronsparse::Problem{.chain = chain[factor],
                               .batch = kBatch,
                               .dtype = kronsparse::DType::complex128,
                               .layout = layout,
                               .operation = what};
  };
  for (std::size_t factor = 0; factor < chain.size(); ++factor)
    for (const auto what : {kronsparse::Operation::multiply, kronsparse::Operation::adjoint})
      if (const std::string refusal = target.refusal(problem_of(factor, what)); !refusal.empty())
        GTEST_SKIP() << refusal;

  Random random(12);
  std::vector<Cx<double>> x(kSize * kBatch);
  for (auto& number : x) number = {random.symmetric(), random.symmetric()};
  std::vector<Cx<double>> reversed(x.size());
  for (std::size_t feature = 0; feature < kSize; ++feature)
    for (std::size_t n = 0; n < kBatch; ++n)
      reversed[feature * kBatch + n] = x[bit_reversed(feature, kSize) * kBatch + n];

  std::vector<Cx<double>> y = reversed;
  for (std::size_t factor = chain.size(); factor-- > 0;)
    y = apply<T>(target, problem_of(factor, kronsparse::Operation::multiply),
                 {twiddles(chain[factor]), y, {}, {}});

  double largest = 0;
  double error = 0;
  for (std::size_t frequency = 0; frequency < kSize; ++frequency)
    for (std::size_t n = 0; n < kBatch; ++n) {
      Cx<double> expected{};
      for (std::size_t time = 0; time < kSize; ++time)
        expected += root_of_unity(static_cast<std::int64_t>(frequency * time), kSize) * x[time * kBatch + n];
      largest = std::max(largest, magnitude(expected));
      error = std::max(error, magnitude(y[frequency * kBatch + n] - expected));
    }
  EXPECT_LE(error, 1e-12 * largest);

  // And back: F^H F = n I.
  for (std::size_t factor = 0; factor < chain.size(); ++factor)
    y = apply<T>(target, problem_of(factor, kronsparse::Operation::adjoint),
                 {twiddles(chain[factor]), y, {}, {}});
  for (std::size_t at = 0; at < y.size(); ++at) {
    const Cx<double> back{y[at].re / kSize, y[at].im / kSize};
    ASSERT_LE(magnitude(back - reversed[at]), 1e-12) << at;
  }
}

std::vector<Combination> complex128_multiplications() {
  std::vector<Combination> all;
  for (const Combination& item : combinations())
    if (item.operation == kronsparse::Operation::multiply && item.dtype == kronsparse::DType::complex128)
      all.push_back(item);
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Fft, testing::ValuesIn(complex128_multiplications()), combination_name);

}  // namespace
}  // namespace conformance
