// Operators in C++: what is computed of them is what is computed of their matrices, exactly on small
// integers.
#include "kronsparse/operator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <random>
#include <vector>

#include "expect_error.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"
#include "kronsparse/transforms.hpp"

namespace kronsparse {
namespace {

template <class T>
class OperatorOf : public testing::Test {
 protected:
  using Matrix = std::vector<T>;

  static Operator<T> random(const Chain& chain, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::uniform_int_distribution<int> digit(-2, 2);
    std::vector<std::vector<T>> factors;
    for (const Pattern& pattern : chain.factors()) {
      auto& values = factors.emplace_back(static_cast<std::size_t>(pattern.nnz()));
      for (T& value : values) {
        value = static_cast<T>(static_cast<float>(digit(engine)));
        if constexpr (!std::is_floating_point_v<T>)
          value += T(0, static_cast<typename T::value_type>(digit(engine)));
      }
    }
    return {chain, std::move(factors)};
  }

  static Matrix product(const Matrix& left, const Matrix& right, std::int64_t middle) {
    const auto inner = static_cast<std::size_t>(middle);
    const std::size_t rows = left.size() / inner;
    const std::size_t cols = right.size() / inner;
    Matrix result(rows * cols);
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t t = 0; t < inner; ++t)
        for (std::size_t col = 0; col < cols; ++col)
          result[(row * cols) + col] += left[(row * inner) + t] * right[(t * cols) + col];
    return result;
  }
};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(OperatorOf, Types);

TYPED_TEST(OperatorOf, AlgebraIsThatOfMatrices) {
  using T = TypeParam;
  const Chain chain = Chain::butterfly({2, 3, 2}, {3, 2, 2}, {2, 1});
  const Operator<T> one = this->random(chain, 1);
  const Operator<T> other = this->random(chain, 2);
  const std::vector<T> x = one.to_dense();
  const std::vector<T> y = other.to_dense();
  const std::vector<T> sum = (one + other).to_dense();
  const std::vector<T> difference = (one - other).to_dense();
  const std::vector<T> twice = (T(2) * one).to_dense();
  const std::vector<T> wide = one.hstack(other).to_dense();
  const std::vector<T> tall = one.vstack(other).to_dense();
  const std::vector<T> adjoint = one.adjoint().to_dense();
  for (std::size_t row = 0; row < 12; ++row)
    for (std::size_t col = 0; col < 12; ++col) {
      const std::size_t at = (row * 12) + col;
      EXPECT_EQ(sum[at], x[at] + y[at]);
      EXPECT_EQ(difference[at], x[at] - y[at]);
      EXPECT_EQ(twice[at], T(2) * x[at]);
      EXPECT_EQ(wide[(row * 24) + col], x[at]);
      EXPECT_EQ(wide[(row * 24) + 12 + col], y[at]);
      EXPECT_EQ(tall[at], x[at]);
      EXPECT_EQ(tall[144 + at], y[at]);
      EXPECT_EQ(std::complex<double>(adjoint[(col * 12) + row]), std::conj(std::complex<double>(x[at])));
    }
  EXPECT_EQ((one * other).to_dense(), this->product(x, y, 12));
  for (std::size_t index = 0; index + 1 < chain.size(); ++index) EXPECT_EQ(one.fuse(index).to_dense(), x);
  EXPECT_EQ(one.fuse(0).fuse(0).chain().to_string(), "1x12x12x1");
  EXPECT_EQ(one * std::vector<T>(12, T(1)), this->product(x, std::vector<T>(12, T(1)), 12));
}

TYPED_TEST(OperatorOf, InverseTakesPivots) {
  using T = TypeParam;
  const Chain chain = Chain::butterfly({3, 4}, {3, 4});
  Operator<T> op = this->random(chain, 3);
  std::vector<std::vector<T>> factors = op.factors();
  // Zeros on every diagonal: nothing is found without an exchange of rows.
  for (std::size_t index = 0; index < chain.size(); ++index) {
    const Pattern& p = chain[index];
    for (std::int64_t at = 0; at < p.nnz(); ++at) {
      const std::int64_t row = at / (p.c * p.d) % p.b;
      const std::int64_t col = at / p.d % p.c;
      T& value = factors[index][static_cast<std::size_t>(at)];
      value = row == col ? T(0) : (row + 1) % p.b == col ? T(5) : value / T(4);
    }
  }
  op = Operator<T>(chain, factors);
  const std::vector<T> identity = (op.inverse() * op).to_dense();
  for (std::size_t at = 0; at < identity.size(); ++at)
    EXPECT_NEAR(std::abs(identity[at] - T(at % 13 == 0 ? 1 : 0)), 0, 1e-5) << at;
  EXPECT_EQ(op.inverse().chain().to_string(), "3x4x4x1*1x3x3x4");
  factors[0].assign(factors[0].size(), T(1));
  expect_error(ErrorCode::invalid_argument, "factors: factor 0 (1x3x3x4) has a singular block",
               [&] { (void)Operator<T>(chain, factors).inverse(); });
  expect_error(ErrorCode::invalid_argument, "factors: factor 0 (1x2x3x1) must have square blocks", [&] {
    (void)Operator<T>(Pattern{1, 2, 3, 1}, {std::vector<T>(6)}).inverse();
  });
}

TEST(Operator, RealAndImaginaryPart) {
  using T = std::complex<double>;
  const Chain chain = Chain::butterfly({2, 3, 2}, {3, 2, 2});
  std::vector<std::vector<T>> factors;
  for (const Pattern& pattern : chain.factors()) {
    auto& values = factors.emplace_back();
    for (std::int64_t at = 0; at < pattern.nnz(); ++at)
      values.emplace_back(static_cast<double>((at % 5) - 2), static_cast<double>((at % 3) - 1));
  }
  const Operator<T> op(chain, factors);
  const std::vector<T> matrix = op.to_dense();
  const std::vector<double> real = real_part(op).to_dense();
  const std::vector<double> imaginary = imaginary_part(op).to_dense();
  for (std::size_t at = 0; at < matrix.size(); ++at) EXPECT_EQ(matrix[at], T(real[at], imaginary[at]));
}

TEST(Operator, FactorsThatWereFound) {
  const Operator<double> hadamard = kronsparse::hadamard<double>(16);
  const std::vector<double> matrix = hadamard.to_dense();
  const Operator<double> found(factorize({matrix.data(), 16, 16}, Chain::butterfly(16)));
  const std::vector<double> product = found.to_dense();
  for (std::size_t index = 0; index < matrix.size(); ++index) {
    EXPECT_NEAR(product[index], matrix[index], 1e-14);
    const auto bits = static_cast<unsigned>((index / 16) & (index % 16));
    EXPECT_EQ(matrix[index], __builtin_popcount(bits) % 2 == 0 ? 1 : -1);
  }
}

/// Those that the cost model likes best, and those that are given.
TEST(Transforms, RadicesAreChosenOrGiven) {
  for (const std::int64_t n : {1, 7, 64, 360, 1024}) {
    const std::vector<std::int64_t> best = transform_radices(n, DType::f32);
    std::int64_t product = 1;
    for (const std::int64_t radix : best) product *= radix;
    EXPECT_EQ(product, n);
    const auto seconds = [&](const std::vector<std::int64_t>& radices) {
      Problem problem;
      problem.chain = Chain::butterfly(radices, radices);
      problem.layout = Layout::batch_last;
      problem.batch = 64;
      return predicted_seconds(problem);
    };
    if (n == 64) {
      EXPECT_LE(seconds(best), seconds({4, 4, 4}));
      EXPECT_LE(seconds(best), seconds({8, 8}));
      EXPECT_LE(seconds(best), seconds({64}));
    }
    if (n == 64 || n == 1024) {
      EXPECT_EQ(hadamard<float>(n).chain().to_string(), Chain::butterfly(best, best).to_string());
    }
  }
  std::vector<std::complex<double>> x;
  for (int t = 0; t < 12; ++t) x.emplace_back(std::cos(t * t), std::sin(3 * t));
  const auto expected = dft<double>(12) * x;
  for (const std::vector<std::int64_t>& radices :
       {std::vector<std::int64_t>{12}, {2, 6}, {6, 2}, {3, 2, 2}}) {
    const auto one = dft<double>(12, Norm::backward, {}, radices);
    EXPECT_EQ(one.op.chain().size(), radices.size());
    const auto y = one * x;
    for (std::size_t k = 0; k < y.size(); ++k) EXPECT_NEAR(std::abs(y[k] - expected[k]), 0, 1e-13);
  }
  const auto signs = hadamard<double>(16).to_dense();
  for (const std::vector<std::int64_t>& radices : {std::vector<std::int64_t>{16}, {8, 2}, {2, 2, 4}})
    EXPECT_EQ(hadamard<double>(16, Norm::backward, {}, radices).to_dense(), signs);
  expect_error(ErrorCode::invalid_argument, "radices: 2, 3 given, must multiply to n, 12", [] {
    (void)dft<float>(12, Norm::backward, {}, {2, 3});
  });
  expect_error(ErrorCode::invalid_argument, "radices: -3, -4 given, must multiply to n, 12", [] {
    (void)idft<float>(12, Norm::backward, {}, {-3, -4});
  });
  expect_error(ErrorCode::invalid_argument, "n: 12 given, must be a power of two",
               [] { (void)hadamard<float>(12); });
  expect_error(ErrorCode::unsupported, "n: 26 given, must have no prime factor but 2, 3, 5 and 7, here 13",
               [] { (void)transform_radices(26, DType::f32); });
}

TEST(Transforms, AreTheirDefinitions) {
  using std::numbers::pi;
  for (const std::int64_t n : {1, 2, 3, 5, 7, 8, 12, 30, 49, 64, 84}) {
    const auto size = static_cast<double>(n);
    std::vector<double> x;
    for (std::int64_t t = 0; t < n; ++t) x.push_back(std::cos(static_cast<double>(t * t)));
    const std::vector<std::complex<double>> z(x.begin(), x.end());
    const auto fourier = dft<double>(n) * z;
    const auto back = idft<double>(n) * fourier;
    const auto cosines = dct<double>(n) * x;
    const auto sines = dst<double>(n) * x;
    for (std::size_t k = 0; k < x.size(); ++k) {
      std::complex<double> sum = 0;
      double cosine = 0;
      double sine = 0;
      for (std::size_t t = 0; t < x.size(); ++t) {
        const auto number = static_cast<double>(k);
        const double half = (static_cast<double>(t) + 0.5) * pi / size;
        sum += std::polar(x[t], -2 * pi * static_cast<double>(t * k % x.size()) / size);
        cosine += 2 * x[t] * std::cos(number * half);
        sine += 2 * x[t] * std::sin((number + 1) * half);
      }
      EXPECT_NEAR(std::abs(fourier[k] - sum), 0, 1e-12);
      EXPECT_NEAR(std::abs(back[k] - x[k]), 0, 1e-14);
      EXPECT_NEAR(cosines[k], cosine, 1e-12);
      EXPECT_NEAR(sines[k], sine, 1e-12);
    }
  }
  expect_error(ErrorCode::unsupported, "n: 22 given, must have no prime factor but 2, 3, 5 and 7, here 11",
               [] { (void)dft<float>(22); });
  expect_error(ErrorCode::invalid_argument, "n: 0 given, must be at least 1", [] { (void)dft<float>(0); });
  expect_error(ErrorCode::size_mismatch, "x: 3 elements given, must be 4",
               [] { (void)(dct<float>(4) * std::vector<float>(3)); });
  expect_error(ErrorCode::invalid_argument, "type: 5 given, must be one of 1, 2, 3, 4",
               [] { (void)dct<float>(4, 5); });
  expect_error(ErrorCode::invalid_argument, "n: 1 given, must be at least 2 for type 1",
               [] { (void)dct<float>(1, 1); });
  expect_error(ErrorCode::invalid_argument, "n: 0 given, must be at least 1", [] { (void)dst<float>(0, 1); });
  expect_error(ErrorCode::unsupported, "n: 11 given, must have no prime factor but 2, 3, 5 and 7, here 11",
               [] { (void)dst<float>(11, 4); });
}

/// Element (k, t) of a cosine or sine transform by its definition, unnormalised.
double element_of(bool is_cosine, int type, std::size_t size, std::size_t row, std::size_t col) {
  using std::numbers::pi;
  const auto n = static_cast<double>(size);
  const auto k = static_cast<double>(row);
  const auto t = static_cast<double>(col);
  if (is_cosine) {
    if (type == 1) return (col == 0 || col + 1 == size ? 1 : 2) * std::cos(pi * k * t / (n - 1));
    if (type == 2) return 2 * std::cos(pi * k * (2 * t + 1) / (2 * n));
    if (type == 3) return (col == 0 ? 1 : 2) * std::cos(pi * (2 * k + 1) * t / (2 * n));
    return 2 * std::cos(pi * (2 * k + 1) * (2 * t + 1) / (4 * n));
  }
  if (type == 1) return 2 * std::sin(pi * (k + 1) * (t + 1) / (n + 1));
  if (type == 2) return 2 * std::sin(pi * (k + 1) * (2 * t + 1) / (2 * n));
  if (type == 3) return (col + 1 == size ? 1 : 2) * std::sin(pi * (2 * k + 1) * (t + 1) / (2 * n));
  return 2 * std::sin(pi * (2 * k + 1) * (2 * t + 1) / (4 * n));
}

/// All types at sizes with and without a dense factor for type 1, by their definition; and each of the norms:
/// `forward` divides by what `ortho` divides by twice, and `ortho` makes matrices orthogonal.
TEST(Transforms, CosinesAndSinesOfEveryType) {
  for (const std::size_t n : {2U, 3U, 5U, 8U, 12U, 14U})
    for (const bool is_cosine : {true, false})
      for (const int type : {1, 2, 3, 4}) {
        SCOPED_TRACE(std::to_string(n) + (is_cosine ? " cosine " : " sine ") + std::to_string(type));
        const auto size = static_cast<std::int64_t>(n);
        const auto made = [&](Norm norm) {
          const auto transform = is_cosine ? dct<double>(size, type, norm) : dst<double>(size, type, norm);
          EXPECT_EQ(transform.rows(), size);
          EXPECT_EQ(transform.cols(), size);
          std::vector<std::vector<double>> columns;
          for (std::size_t t = 0; t < n; ++t) {
            std::vector<double> x(n);
            x[t] = 1;
            columns.push_back(transform * x);
          }
          return columns;
        };
        const auto backward = made(Norm::backward);
        const auto ortho = made(Norm::ortho);
        const auto forward = made(Norm::forward);
        const double divisor =
            type > 1 ? 2.0 * static_cast<double>(n) : 2.0 * (static_cast<double>(n) + (is_cosine ? -1 : 1));
        for (std::size_t t = 0; t < n; ++t)
          for (std::size_t k = 0; k < n; ++k) {
            EXPECT_NEAR(backward[t][k], element_of(is_cosine, type, n, k, t), 1e-13);
            EXPECT_NEAR(forward[t][k], backward[t][k] / divisor, 1e-14);
            double product = 0;
            for (std::size_t row = 0; row < n; ++row) product += ortho[t][row] * ortho[k][row];
            EXPECT_NEAR(product, t == k ? 1 : 0, 1e-13);
          }
      }
}

TEST(Transforms, NormsOfFourierAndHadamard) {
  const std::vector<std::complex<double>> x{1, 2, {0, 3}, 4, 5, 6};
  for (const Norm norm : {Norm::backward, Norm::ortho, Norm::forward}) {
    const auto back = idft<double>(6, norm) * (dft<double>(6, norm) * x);
    for (std::size_t t = 0; t < x.size(); ++t) EXPECT_NEAR(std::abs(back[t] - x[t]), 0, 1e-14);
  }
  EXPECT_NEAR(dft<double>(6, Norm::forward).op.norm(), 1, 1e-14);
  EXPECT_NEAR(hadamard<double>(8, Norm::ortho).norm(), std::sqrt(8.0), 1e-14);
}

TEST(Operator, NormIsThatOfTheMatrix) {
  EXPECT_DOUBLE_EQ(Operator<double>(Chain::dense(3, 2), {{0, 3e200, 0, 0, 4e200, 0}}).norm(), 5e200);
  EXPECT_EQ(Operator<double>(Chain::dense(2, 2), {{0, 0, 0, 0}}).norm(), 0);
  EXPECT_NEAR(Operator<std::complex<double>>(Chain::dense(1, 5), {{{3, 4}, 0, 0, 0, 12}}).norm(), 13, 1e-14);
}

TEST(Operator, WrongCalls) {
  const Chain chain = Chain::butterfly(4);
  const std::vector<double> eight(8, 1.0);
  expect_error(
      ErrorCode::size_mismatch,
      "factors: must be an array for each factor of the chain 1x2x2x2*2x2x2x1, with as many elements as "
      "its pattern",
      [&] { (void)Operator<double>(chain, {eight}); });
  const Operator<double> op(chain, {eight, eight});
  expect_error(ErrorCode::size_mismatch, "operators: chains 1x2x2x2*2x2x2x1 and 1x4x4x1 given, must be equal",
               [&] { (void)(op + op.fuse(0)); });
  expect_beginning(ErrorCode::size_mismatch, "x: 1 x 3 given", [&] { (void)(op * std::vector<double>(3)); });
}

}  // namespace
}  // namespace kronsparse
