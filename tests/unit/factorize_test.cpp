// Blocks of one rank, against their definition; factors of matrices in C++. Python's tests have the rest.
#include "kronsparse/factorize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "factorize/bidiagonal.hpp"
#include "factorize/low_rank.hpp"
#include "factorize/reflector.hpp"

namespace kronsparse {
namespace {

using namespace factorization;

template <class T>
std::vector<T> random_values(std::int64_t count, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    value = static_cast<RealOf<T>>(normal(engine));
    if constexpr (is_complex_type<T>) value += T(0, static_cast<RealOf<T>>(normal(engine)));
  }
  return values;
}

/// rows x cols of this rank, its singular values from 1 down to 1/rank³.
template <class T>
std::vector<T> matrix_of_rank(std::int64_t rows, std::int64_t cols, std::int64_t rank) {
  const std::vector<T> left = random_values<T>(rows * rank, 1);
  const std::vector<T> right = random_values<T>(rank * cols, 2);
  std::vector<T> matrix(static_cast<std::size_t>(rows * cols));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t t = 0; t < rank; ++t)
      for (std::int64_t col = 0; col < cols; ++col)
        matrix[static_cast<std::size_t>((row * cols) + col)] +=
            left[static_cast<std::size_t>((row * rank) + t)] *
            right[static_cast<std::size_t>((t * cols) + col)] /
            static_cast<RealOf<T>>((t + 1) * (t + 1) * (t + 1));
  return matrix;
}

template <class T>
class LowRankOf : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LowRankOf, Types);

/// left·right is as far from the block as tail() says, left is orthonormal, and no other basis that is tried
/// is nearer.
TYPED_TEST(LowRankOf, BlocksOfAnySize) {
  using T = TypeParam;
  const double rounding = std::numeric_limits<RealOf<T>>::epsilon() * 64;
  for (const auto& [rows, cols] :
       {std::pair(1, 7), {7, 1}, {5, 9}, {9, 5}, {6, 6}, {24, 24}, {3, 40}, {40, 33}})
    for (const std::int64_t rank : {1, 2, 3, 8})
      for (const std::int64_t true_rank : {1, 2, 50}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " rank " + std::to_string(rank) +
                     " of " + std::to_string(true_rank));
        const std::vector<T> matrix = matrix_of_rank<T>(rows, cols, true_rank);
        LowRank<T> low_rank(rows, cols, rank);
        std::ranges::copy(matrix, low_rank.block());
        const double tail = low_rank.tail();
        const double distance = low_rank.approximate();
        double norm = 0;
        double residual = 0;
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t col = 0; col < cols; ++col) {
            T rest = matrix[static_cast<std::size_t>((row * cols) + col)];
            norm += squared(rest);
            for (std::int64_t t = 0; t < rank; ++t)
              rest -= low_rank.left()[(row * rank) + t] * low_rank.right()[(t * cols) + col];
            residual += squared(rest);
          }
        EXPECT_NEAR(std::sqrt(distance / norm), std::sqrt(residual / norm), rounding);
        EXPECT_NEAR(std::sqrt(tail / norm), std::sqrt(residual / norm), rounding);
        EXPECT_TRUE(true_rank > rank || std::sqrt(residual / norm) < rounding);
        for (std::int64_t one = 0; one < std::min<std::int64_t>({rank, rows, cols}); ++one)
          for (std::int64_t other = 0; other <= one; ++other) {
            std::complex<double> product = 0;
            for (std::int64_t row = 0; row < rows; ++row)
              product += std::complex<double>(low_rank.left()[(row * rank) + one] *
                                              conjugate(low_rank.left()[(row * rank) + other]));
            EXPECT_NEAR(std::abs(product - (one == other ? 1.0 : 0.0)), 0, rounding);
          }
        // The best of the transposed block is as good.
        LowRank<T> turned(cols, rows, rank);
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t col = 0; col < cols; ++col)
            turned.block()[(col * rows) + row] = matrix[static_cast<std::size_t>((row * cols) + col)];
        EXPECT_NEAR(std::sqrt(turned.approximate() / norm), std::sqrt(distance / norm), rounding);
      }
}

/// Blocks that are large enough to be shared by threads: the same bits from one thread and from all, and an
/// error that is that of the product.
TYPED_TEST(LowRankOf, LargeBlocksOnAllThreads) {
  using T = TypeParam;
  for (const auto& [rows, cols, rank] :
       {std::array{300, 300, 20}, {300, 300, 70}, {330, 420, 9}, {420, 330, 1}, {420, 260, 260}}) {
    SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " rank " + std::to_string(rank));
    const std::vector<T> matrix = random_values<T>(std::int64_t{rows} * cols, 3);
    LowRank<T> alone(rows, cols, rank);
    std::ranges::copy(matrix, alone.block());
    const double distance = alone.approximate();
    std::vector<double> told;
    LowRank<T> shared(rows, cols, rank);
    shared.take_threads([&](double share) { told.push_back(share); });
    std::ranges::copy(matrix, shared.block());
    EXPECT_EQ(shared.tail(), alone.tail());
    told.clear();
    EXPECT_EQ(shared.approximate(), distance);
    EXPECT_TRUE(std::equal(alone.left(), alone.left() + (rows * rank), shared.left()));
    EXPECT_TRUE(std::equal(alone.right(), alone.right() + (rank * cols), shared.right()));
    EXPECT_TRUE(std::ranges::is_sorted(told) && (told.empty() || (told.front() > 0 && told.back() <= 1)));
    EXPECT_EQ(told.empty(), rank == std::min(rows, cols));
    double norm = 0;
    double kept = 0;  // of right = left^*·block, which is as long as the projection where left is orthonormal
    for (const T& element : matrix) norm += squared(element);
    for (std::int64_t at = 0; at < std::int64_t{rank} * cols; ++at) kept += squared(shared.right()[at]);
    EXPECT_NEAR(distance / norm, 1 - (kept / norm), std::numeric_limits<RealOf<T>>::epsilon() * 64);
  }
}

/// What the caller is told in the middle of a block may end it: Ctrl-C.
TEST(Factorize, EndsWithinALargeBlock) {
  const std::vector<double> w = random_values<double>(400 * 400, 6);
  FactorizeOptions options;
  int calls = 0;
  options.progress = [&](double) {
    if (++calls == 2) throw Error(ErrorCode::invalid_argument, "enough");
  };
  expect_error(ErrorCode::invalid_argument, "enough", [&] {
    (void)factorize({w.data(), 400, 400}, Chain::low_rank(400, 400, 5), options);
  });
  EXPECT_EQ(calls, 2);
}

TEST(Bidiagonal, LargestValuesAreThoseOfAll) {
  for (const std::int64_t k : {16, 33, 64, 200}) {
    const std::vector<double> d = random_values<double>(k, 3);
    const std::vector<double> e = random_values<double>(k, 4);
    std::vector<double> all = d;
    std::vector<double> scratch = e;
    ASSERT_TRUE(diagonalise(all.data(), scratch.data(), k, nullptr));
    for (double& value : all) value = std::abs(value);
    std::ranges::sort(all, std::ranges::greater{});
    std::vector<double> some = d;
    scratch = e;
    if (!diagonalise_largest(some.data(), scratch.data(), k, 2, nullptr)) continue;
    EXPECT_NEAR(std::abs(some[static_cast<std::size_t>(k - 1)]), all[0], 1e-13);
    EXPECT_NEAR(std::abs(some[static_cast<std::size_t>(k - 2)]), all[1], 1e-13);
  }
}

TEST(Bidiagonal, ZerosOnEitherDiagonal) {
  // Singular values are those of the parts it falls into: squares sum up, and so do their squares.
  for (const int hole : {0, 1, 2, 3}) {
    std::vector<double> d{1, 2, 3, 4};
    std::vector<double> e{1, 1, 1, 0};
    d[static_cast<std::size_t>(hole)] = 0;
    double squares = 0;
    double determinant = 1;
    for (const double x : d) squares += x * x;
    for (const double x : e) squares += x * x;
    ASSERT_TRUE(diagonalise(d.data(), e.data(), 4, nullptr));
    double found = 0;
    for (const double x : d) {
      found += x * x;
      determinant *= x;
    }
    EXPECT_NEAR(found, squares, 1e-13);
    EXPECT_NEAR(determinant, 0, 1e-13);
  }
}

TEST(Factorize, ButterflyAndItsBounds) {
  const Chain chain = Chain::butterfly({2, 3, 2}, {2, 3, 2});
  const std::vector<double> w = random_values<double>(12 * 12, 5);
  for (const SplitOrder order : {SplitOrder::left, SplitOrder::right, SplitOrder::balanced}) {
    FactorizeOptions options;
    options.order = order;
    const Factorization found = factorize({w.data(), 12, 12}, chain, options);
    EXPECT_LE(found.lower_bound, found.error + 1e-15);
    EXPECT_LE(found.error, found.upper_bound + 1e-15);
    EXPECT_EQ(found.split_errors.size(), 2U);
    options.polish = 3;
    EXPECT_LT(factorize({w.data(), 12, 12}, chain, options).error, found.error);
  }
}

TEST(Factorize, WrongCalls) {
  std::vector<double> w(64, 1.0);
  const Chain chain = Chain::butterfly(8);
  const auto call = [&](ConstMatrix matrix, const Chain& patterns, const FactorizeOptions& options = {}) {
    return [=] { (void)factorize(matrix, patterns, options); };
  };
  const ConstMatrix matrix(w.data(), 8, 8);
  expect_error(ErrorCode::bad_pointer, "w: the pointer is null",
               call({static_cast<double*>(nullptr), 8, 8}, chain));
  expect_error(ErrorCode::size_mismatch,
               "w: sizes 4 x 8 given, must be those of the chain 1x2x2x4*2x2x2x2*4x2x2x1, 8 x 8",
               call({w.data(), 4, 8}, chain));
  expect_error(ErrorCode::size_mismatch, "w: a stride of 7 given, must be at least cols, 8",
               call({w.data(), 8, 8, 7}, chain));
  expect_error(ErrorCode::unsupported, "w: dtype f16 given, must be f32, f64, complex64 or complex128",
               call({w.data(), DType::f16, 8, 8}, chain));
  expect_beginning(
      ErrorCode::unsupported,
      "chain: factor 2 (4x2x2x1) and factor 3 (2x2x2x2) are not chainable, so there may be no best",
      call(matrix, Chain{{1, 2, 2, 4}, {2, 2, 2, 2}, {4, 2, 2, 1}, {2, 2, 2, 2}, {1, 2, 2, 4}}));
  expect_error(ErrorCode::invalid_argument, "polish: -1 given, must be at least 0",
               call(matrix, chain, {.polish = -1}));
  expect_error(ErrorCode::invalid_argument,
               "splits: 2 given, must be each of 1 to 2 once, those of the reduced chain",
               call(matrix, chain, {.splits = {2, 2}}));
  w[19] = std::numeric_limits<double>::infinity();
  expect_error(ErrorCode::invalid_argument, "w: the element at row 2, column 3 is not finite",
               call(matrix, chain));
  w[19] = 1;
  const Factorization found = factorize(matrix, chain);
  expect_error(ErrorCode::size_mismatch, "factor: elements of f32 asked for, must be those of f64",
               [&] { (void)found.factor<float>(0); });
  expect_error(ErrorCode::invalid_argument, "index: 3 given, must be below the number of factors, 3",
               [&] { (void)found.factor<double>(3); });
}

TEST(Factorize, WhatProgressThrowsEndsIt) {
  const std::vector<double> w = random_values<double>(64 * 64, 6);
  FactorizeOptions options;
  options.progress = [](double) { throw std::runtime_error("enough"); };
  EXPECT_THROW((void)factorize({w.data(), 64, 64}, Chain::butterfly(64), options), std::runtime_error);
}

}  // namespace
}  // namespace kronsparse
