// Blocks of rank 1 in lanes, against singular values in long double: every instruction set, every place that
// blocks can have.
#include "factorize/rank_one/rank_one.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <random>
#include <string>
#include <vector>

#include "factorize/reflector.hpp"

namespace kronsparse {
namespace {

using namespace factorization;
using Wide = std::complex<long double>;
using Block = std::vector<Wide>;  // row-major

template <class T>
T number(double re, double im) {
  if constexpr (is_complex_type<T>)
    return T(static_cast<RealOf<T>>(re), static_cast<RealOf<T>>(im));
  else
    return static_cast<T>(re);
}

/// Sum of the squared singular values but the largest, from Jacobi's rotations. A complex block is a real one
/// of twice the size, with each singular value twice.
long double squared_tail(const Block& block, std::int64_t rows, std::int64_t cols) {
  std::vector<std::vector<long double>> columns(static_cast<std::size_t>(2 * cols));
  for (std::int64_t col = 0; col < cols; ++col) {
    std::vector<long double>& one = columns[static_cast<std::size_t>(col)];
    std::vector<long double>& other = columns[static_cast<std::size_t>(cols + col)];
    for (std::int64_t row = 0; row < rows; ++row) {
      const Wide element = block[static_cast<std::size_t>((row * cols) + col)];
      one.insert(one.end(), {element.real(), element.imag()});
      other.insert(other.end(), {-element.imag(), element.real()});
    }
  }
  const auto product = [](const auto& x, const auto& y) {
    long double sum = 0;
    for (std::size_t t = 0; t < x.size(); ++t) sum += x[t] * y[t];
    return sum;
  };
  for (int sweep = 0; sweep < 12; ++sweep)
    for (std::size_t p = 0; p < columns.size(); ++p)
      for (std::size_t q = p + 1; q < columns.size(); ++q) {
        const long double cross = product(columns[p], columns[q]);
        if (cross == 0) continue;
        const long double zeta =
            (product(columns[q], columns[q]) - product(columns[p], columns[p])) / (2 * cross);
        const long double tangent = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::sqrt(1 + (zeta * zeta)));
        const long double cosine = 1 / std::sqrt(1 + (tangent * tangent));
        for (std::size_t t = 0; t < columns[p].size(); ++t) {
          const long double x = columns[p][t];
          columns[p][t] = cosine * (x - (tangent * columns[q][t]));
          columns[q][t] = cosine * ((tangent * x) + columns[q][t]);
        }
      }
  std::vector<long double> squares;
  squares.reserve(columns.size());
  for (const auto& column : columns) squares.push_back(product(column, column));
  std::ranges::sort(squares);
  long double sum = 0;
  for (std::size_t t = 0; t + 2 < squares.size(); ++t) sum += squares[t];
  return sum / 2;
}

struct Case {
  std::string name;
  Pattern left, right;
};
/// Blocks of a product: side by side in rows or in columns of it, apart, element by element, and both.
std::vector<Case> cases_of(std::int64_t rows, std::int64_t cols, std::int64_t blocks) {
  return {{"in rows", {1, rows, blocks, 1}, {blocks, 1, cols, 1}},
          {"in columns", {1, rows, 1, blocks}, {1, blocks, cols, 1}},
          {"apart", {blocks, rows, 1, 1}, {blocks, 1, cols, 1}},
          {"element by element", {1, rows, 1, blocks}, {1, 1, cols, blocks}},
          {"both", {1, rows, blocks, 3}, {blocks, 1, cols, 3}}};
}

template <class T>
class RankOneOf : public testing::Test {
 protected:
  /// Blocks of rank 1 and something else, `rest` times as large; the first is 0.
  static std::vector<T> product_of(const Split& split, double rest, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal;
    const auto draw = [&] { return number<T>(normal(engine), normal(engine)); };
    std::vector<T> product(static_cast<std::size_t>(split.blocks() * split.rows() * split.cols()));
    for (std::int64_t block = 1; block < split.blocks(); ++block) {
      const Place place = split.in_product(block);
      std::vector<T> right(static_cast<std::size_t>(split.cols()));
      for (T& x : right) x = draw();
      for (std::int64_t row = 0; row < split.rows(); ++row) {
        const T left = draw();
        for (std::int64_t col = 0; col < split.cols(); ++col)
          product[at(place, row, col)] =
              left * right[static_cast<std::size_t>(col)] + draw() * static_cast<RealOf<T>>(rest);
      }
    }
    return product;
  }
  static std::size_t at(const Place& place, std::int64_t row, std::int64_t col) {
    return static_cast<std::size_t>(place.first + (row * place.row_stride) + (col * place.col_stride));
  }
  static Block read(const std::vector<T>& values, const Place& place, std::int64_t rows, std::int64_t cols) {
    Block block;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < cols; ++col) block.emplace_back(values[at(place, row, col)]);
    return block;
  }
  static long double squared_norm(const Block& block) {
    long double sum = 0;
    for (const Wide element : block) sum += std::norm(element);
    return sum;
  }
  static void check(const Split& split, const std::vector<T>& product);
};

/// With every instruction set: the bound is never above the distance and close to it; left·right is as near
/// as the nearest, and one of them has unit vectors.
template <class T>
void RankOneOf<T>::check(const Split& split, const std::vector<T>& product) {
  using Values = typename RankOne<T>::Values;
  const auto rounding = static_cast<long double>(std::numeric_limits<RealOf<T>>::epsilon());
  for (std::int64_t first = 0; first < split.blocks(); first += RankOne<T>::at_once) {
    const std::int64_t last = std::min<std::int64_t>(first + RankOne<T>::at_once, split.blocks());
    long double expected = 0;
    long double norm = 0;
    for (std::int64_t block = first; block < last; ++block) {
      const Block one = read(product, split.in_product(block), split.rows(), split.cols());
      expected += squared_tail(one, split.rows(), split.cols());
      norm += squared_norm(one);
    }
    for (const RankOneKernels* kernels : rank_one_kernels()) {
      SCOPED_TRACE(std::to_string(kernels->lanes) + " lanes");
      RankOne<T> worker(split, *kernels);
      const auto bound = static_cast<long double>(worker.lower_bound(product.data(), first));
      EXPECT_LE(bound, expected + (1e-35L * norm));
      EXPECT_GE(std::sqrt(bound), (std::sqrt(expected) * (1 - 1e-11L)) - (1e-12L * std::sqrt(norm)));
      for (const Values values : {Values::to_left, Values::to_right, Values::to_both}) {
        const T hole = number<T>(std::nan(""), 0);
        std::vector<T> left(static_cast<std::size_t>(split.blocks() * split.rows()), hole);
        std::vector<T> right(static_cast<std::size_t>(split.blocks() * split.cols()), hole);
        EXPECT_EQ(static_cast<double>(bound),
                  worker.approximate(product.data(), first, left.data(), right.data(), values));
        long double distance = 0;
        for (std::int64_t block = first; block < last; ++block) {
          const Block whole = read(product, split.in_product(block), split.rows(), split.cols());
          const Block u = read(left, split.in_left(block), split.rows(), 1);
          const Block p = read(right, split.in_right(block), 1, split.cols());
          for (std::size_t row = 0; row < u.size(); ++row)
            for (std::size_t col = 0; col < p.size(); ++col)
              distance += std::norm(whole[(row * p.size()) + col] - (u[row] * p[col]));
          const long double of_u = squared_norm(u);
          const long double of_p = squared_norm(p);
          if (values == Values::to_right) {
            EXPECT_LE(std::abs(of_u - 1), 8 * rounding);
          } else if (values == Values::to_left) {
            EXPECT_LE(std::abs(of_p - 1), 8 * rounding);
          } else if (squared_norm(whole) > 1e-250L) {
            EXPECT_LE(std::abs((of_u / of_p) - 1), 16 * rounding);
          }
        }
        EXPECT_LE(std::sqrt(distance),
                  std::sqrt(expected) * (1 + rounding) + (16 * rounding * std::sqrt(norm)));
        // Nothing is written beside these blocks.
        EXPECT_EQ(std::ranges::count_if(left, [](T x) { return !std::isnan(std::real(x)); }),
                  (last - first) * split.rows());
        EXPECT_EQ(std::ranges::count_if(right, [](T x) { return !std::isnan(std::real(x)); }),
                  (last - first) * split.cols());
      }
    }
  }
}

using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(RankOneOf, Types);

TYPED_TEST(RankOneOf, BlocksAnywhere) {
  for (const auto& [rows, cols] :
       {std::pair(1, 1), {1, 5}, {5, 1}, {2, 2}, {2, 19}, {21, 2}, {3, 8}, {9, 3}, {6, 17}, {16, 10}})
    for (const std::int64_t blocks : {1, 3, 8, 11})
      for (const Case& one : cases_of(rows, cols, blocks)) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + ", " + std::to_string(blocks) +
                     " blocks " + one.name);
        const Split split(one.left, one.right);
        this->check(split, this->product_of(split, 0.5, 1));
      }
}

/// Whatever the second singular value is, from equal to the first down to rounding.
TYPED_TEST(RankOneOf, AnyDistance) {
  for (const auto& [rows, cols] : {std::pair(2, 9), {9, 2}, {3, 3}, {5, 12}, {16, 7}, {13, 12}})
    for (const double rest : {1e6, 1.0, 0.3, 0.1, 0.05, 1e-2, 1e-4, 1e-7, 1e-10, 1e-13, 0.0}) {
      SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " rest " + std::to_string(rest));
      const Split split({1, rows, 6, 1}, {6, 1, cols, 1});
      this->check(split, this->product_of(split, rest, 2));
    }
}

/// Singular values that are all the same, or none, or those of a diagonal matrix, in lanes side by side.
TYPED_TEST(RankOneOf, EqualSingularValues) {
  using T = TypeParam;
  for (const std::int64_t size : {2, 5, 16}) {
    const Split split({1, size, 8, 1}, {8, 1, size, 1});
    std::vector<T> product(static_cast<std::size_t>(8 * size * size));
    for (std::int64_t block = 0; block < 8; ++block)
      for (std::int64_t row = 0; row < size; ++row) {
        const double value = block == 0   ? 0
                             : block == 1 ? 1
                             : block == 2 ? 1e-150
                                          : 1.0 / (1.0 + static_cast<double>(row / block));
        product[this->at(split.in_product(block), row, (row * 3) % size)] += number<T>(value, value);
      }
    this->check(split, product);
  }
}

/// Lanes have nothing to do with each other: the same bits, whatever is beside.
TEST(RankOne, LanesAreApart) {
  const Split split({1, 6, 8, 1}, {8, 1, 10, 1});
  std::mt19937_64 engine(4);
  std::normal_distribution<double> normal;
  std::vector<double> product(8 * 60);
  for (double& x : product) x = normal(engine);
  for (const RankOneKernels* kernels : rank_one_kernels()) {
    RankOne<double> worker(split, *kernels);
    const auto factors = [&] {
      std::vector<double> both(8 * 16);
      worker.approximate(product.data(), 0, both.data(), both.data() + 48, RankOne<double>::Values::to_right);
      return both;
    };
    const std::vector<double> before = factors();
    const std::vector<double> kept = product;
    for (int row = 0; row < 6; ++row)
      std::fill_n(&product[static_cast<std::size_t>((row * 80) + 30)], 10, 0.0);
    const std::vector<double> after = factors();
    product = kept;
    for (std::size_t at = 0; at < 48; ++at) EXPECT_EQ(before[at] == after[at], at % 8 != 3);
    for (std::size_t at = 48; at < 128; ++at) EXPECT_EQ(before[at] == after[at], (at - 48) / 10 != 3);
  }
}

}  // namespace
}  // namespace kronsparse
