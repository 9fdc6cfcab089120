// A chain with its values: an operator that is multiplied, added, transposed and fused as a matrix is.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kronsparse/chain.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/factorize.hpp"
#include "kronsparse/multiply.hpp"

namespace kronsparse {

/// The product of Kronecker-sparse factors with elements of type T, in the memory of the CPU. What is
/// computed of operators is an operator again, with factors of its own; T is then a real or complex type of
/// C++.
///
///     using kronsparse::Chain, kronsparse::Operator;
///     const Operator<double> ones(Chain::butterfly(4), {std::vector<double>(8, 1.0),
///     std::vector<double>(8, 1.0)}); const std::vector<double> x{1, 2, 3, 4}; assert((ones * x)[0] == 10);
///     assert(((2.0 * ones - ones) * x)[3] == 10);
///     assert((ones * ones.transposed()).chain().size() == 4);
///     assert(ones.fuse(0).chain().to_string() == "1x4x4x1");
template <class T>
class Operator {
 public:
  /// An array of chain[f].nnz() elements for each factor f, left factor first.
  Operator(Chain chain, std::vector<std::vector<T>> factors)
      : chain_(std::move(chain)), factors_(std::move(factors)) {
    bool fits = factors_.size() == chain_.size();
    for (std::size_t index = 0; fits && index < chain_.size(); ++index)
      fits = static_cast<std::int64_t>(factors_[index].size()) == chain_[index].nnz();
    if (!fits)
      throw Error(ErrorCode::size_mismatch, "factors: must be an array for each factor of the chain " +
                                                chain_.to_string() +
                                                ", with as many elements as its pattern");
  }
  /// The factors that `factorize` has found; Error size_mismatch where they are of another type.
  explicit Operator(const Factorization& found) : chain_(found.chain) {
    for (std::size_t index = 0; index < chain_.size(); ++index) {
      const auto values = found.factor<T>(index);
      factors_.emplace_back(values.begin(), values.end());
    }
  }

  [[nodiscard]] const Chain& chain() const noexcept { return chain_; }
  [[nodiscard]] const std::vector<std::vector<T>>& factors() const noexcept { return factors_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return chain_.rows(); }
  [[nodiscard]] std::int64_t cols() const noexcept { return chain_.cols(); }

  /// y = W x, or what the options say. For many products with the same values make a Plan.
  void multiply(ConstMatrix x, Matrix y, const MultiplyOptions& options = {}) const {
    std::vector<ConstVector> values;
    for (const std::vector<T>& factor : factors_)
      values.emplace_back(factor.data(), static_cast<std::int64_t>(factor.size()));
    kronsparse::multiply(chain_, values, x, y, options);
  }
  /// W x for one vector.
  [[nodiscard]] std::vector<T> operator*(const std::vector<T>& x) const {
    std::vector<T> y(static_cast<std::size_t>(rows()));
    multiply({x.data(), 1, static_cast<std::int64_t>(x.size())}, {y.data(), 1, rows()});
    return y;
  }
  /// The matrix, row-major.
  [[nodiscard]] std::vector<T> to_dense() const {
    std::vector<T> unit(static_cast<std::size_t>(cols() * cols()));
    for (std::int64_t col = 0; col < cols(); ++col)
      unit[static_cast<std::size_t>(col * (cols() + 1))] = T(1.0F);
    std::vector<T> matrix(static_cast<std::size_t>(rows() * cols()));
    multiply({unit.data(), cols(), cols()}, {matrix.data(), rows(), cols()}, {.layout = Layout::batch_last});
    return matrix;
  }

  /// The Frobenius norm of the matrix, from blocks of its columns that are at most square.
  ///
  ///     const kronsparse::Operator<double> two(kronsparse::Chain::dense(1, 2), {{3.0, 4.0}});
  ///     assert(two.norm() == 5);
  [[nodiscard]] double norm() const {
    double squares = 0;  // over largest²: squares of large elements would overflow
    double largest = 0;
    const std::int64_t at_once = std::min(rows(), cols());
    for (std::int64_t first = 0; first < cols(); first += at_once) {
      const std::int64_t count = std::min(at_once, cols() - first);
      std::vector<T> unit(static_cast<std::size_t>(count * cols()));
      for (std::int64_t col = 0; col < count; ++col)
        unit[static_cast<std::size_t>((col * cols()) + first + col)] = T(1.0F);
      std::vector<T> columns(static_cast<std::size_t>(count * rows()));
      multiply({unit.data(), count, cols()}, {columns.data(), count, rows()});
      for (const T& element : columns) {
        const auto size = static_cast<double>(std::abs(element));
        if (size > largest) {
          squares *= (largest / size) * (largest / size);
          largest = size;
        }
        if (largest > 0) squares += (size / largest) * (size / largest);
      }
    }
    return largest * std::sqrt(squares);
  }

  /// The operator of the product of both matrices.
  [[nodiscard]] Operator operator*(const Operator& right) const {
    std::vector<std::vector<T>> factors = factors_;
    factors.insert(factors.end(), right.factors_.begin(), right.factors_.end());
    return {chain_ * right.chain_, std::move(factors)};
  }
  [[nodiscard]] Operator transposed() const {
    std::vector<std::vector<T>> factors;
    for (std::size_t index = chain_.size(); index-- > 0;) {
      const Pattern& p = chain_[index];
      std::vector<T>& turned = factors.emplace_back(factors_[index].size());
      for (std::int64_t i = 0; i < p.a; ++i)
        for (std::int64_t k = 0; k < p.b; ++k)
          for (std::int64_t l = 0; l < p.c; ++l)
            for (std::int64_t j = 0; j < p.d; ++j)
              turned[at(p.transposed(), i, l, k, j)] = factors_[index][at(p, i, k, l, j)];
    }
    return {chain_.transposed(), std::move(factors)};
  }
  [[nodiscard]] Operator conjugated() const {
    Operator result = *this;
    if constexpr (!std::is_floating_point_v<T>)
      for (std::vector<T>& values : result.factors_)
        for (T& value : values) value = std::conj(value);
    return result;
  }
  [[nodiscard]] Operator adjoint() const { return transposed().conjugated(); }

  [[nodiscard]] friend Operator operator*(T number, Operator op) {
    for (T& value : op.factors_.front()) value *= number;
    return op;
  }
  [[nodiscard]] Operator operator-() const { return T(-1.0F) * *this; }
  /// The sum with an operator of the same chain, which has two factors more.
  [[nodiscard]] Operator operator+(const Operator& other) const {
    const Operator both = block_diag(other);
    return side_by_side(rows()) * both * side_by_side(cols()).transposed();
  }
  [[nodiscard]] Operator operator-(const Operator& other) const { return *this + (-other); }
  /// Both along a diagonal, side by side, and one below the other; the chains must be equal.
  [[nodiscard]] Operator block_diag(const Operator& other) const {
    if (other.chain_ != chain_)
      throw Error(ErrorCode::size_mismatch, "operators: chains " + chain_.to_string() + " and " +
                                                other.chain_.to_string() + " given, must be equal");
    std::vector<Pattern> patterns = chain_.factors();
    for (Pattern& pattern : patterns) pattern.a *= 2;
    std::vector<std::vector<T>> factors = factors_;
    for (std::size_t index = 0; index < factors.size(); ++index)
      factors[index].insert(factors[index].end(), other.factors_[index].begin(), other.factors_[index].end());
    return {Chain(std::move(patterns)), std::move(factors)};
  }
  [[nodiscard]] Operator hstack(const Operator& other) const {
    return side_by_side(rows()) * block_diag(other);
  }
  [[nodiscard]] Operator vstack(const Operator& other) const {
    return block_diag(other) * side_by_side(cols()).transposed();
  }

  /// The inverse: blocks are inverted one by one, by elimination with pivots. Error invalid_argument where a
  /// factor's blocks are not square, or one is singular.
  ///
  ///     const kronsparse::Operator<double> op(kronsparse::Chain::dense(2, 2), {{0, 2, 4, 0}});
  ///     assert((op.inverse() * std::vector<double>{2, 4})[0] == 1);
  [[nodiscard]] Operator inverse() const {
    std::vector<Pattern> patterns;
    std::vector<std::vector<T>> factors;
    for (std::size_t index = chain_.size(); index-- > 0;) {
      const Pattern& p = chain_[index];
      if (p.b != p.c)
        throw Error(ErrorCode::invalid_argument, "factors: factor " + std::to_string(index) + " (" +
                                                     p.to_string() + ") must have square blocks");
      patterns.push_back(p);
      factors.push_back(inverse_of(index));
    }
    return {Chain(std::move(patterns)), std::move(factors)};
  }

  /// The same operator with factors `index` and `index` + 1 made one: Chain::fuse.
  [[nodiscard]] Operator fuse(std::size_t index) const {
    const Chain fused = chain_.fuse(index);
    const Pattern& left = chain_[index];
    const Pattern& right = chain_[index + 1];
    const Pattern& product = fused[index];
    std::vector<T> values(static_cast<std::size_t>(product.nnz()));
    // Each value of the left factor meets a row of the right one, in the column that the value stands in.
    for (std::int64_t i = 0; i < left.a; ++i)
      for (std::int64_t k = 0; k < left.b; ++k)
        for (std::int64_t l = 0; l < left.c; ++l)
          for (std::int64_t j = 0; j < left.d; ++j) {
            const std::int64_t row = (((i * left.b) + k) * left.d) + j;
            const std::int64_t middle = (((i * left.c) + l) * left.d) + j;
            const std::int64_t block = middle / (right.b * right.d);
            for (std::int64_t m = 0; m < right.c; ++m) {
              const std::int64_t col = (((block * right.c) + m) * right.d) + (middle % right.d);
              values[in_pattern(product, row, col)] +=
                  factors_[index][at(left, i, k, l, j)] *
                  factors_[index + 1][at(right, block, middle / right.d % right.b, m, middle % right.d)];
            }
          }
    std::vector<std::vector<T>> factors = factors_;
    factors[index] = std::move(values);
    factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(index) + 1);
    return {fused, std::move(factors)};
  }

 private:
  [[nodiscard]] static std::size_t at(const Pattern& p, std::int64_t i, std::int64_t k, std::int64_t l,
                                      std::int64_t j) {
    return static_cast<std::size_t>((((((i * p.b) + k) * p.c) + l) * p.d) + j);
  }
  /// The place of a matrix' element among the values of its pattern.
  [[nodiscard]] static std::size_t in_pattern(const Pattern& p, std::int64_t row, std::int64_t col) {
    return at(p, row / (p.b * p.d), row / p.d % p.b, col / p.d % p.c, col % p.d);
  }
  /// The values of a factor with square blocks, each of them inverted (Gauss and Jordan).
  [[nodiscard]] std::vector<T> inverse_of(std::size_t index) const {
    const Pattern& p = chain_[index];
    std::vector<T> values(factors_[index].size());
    const std::int64_t width = 2 * p.b;
    std::vector<T> rows(static_cast<std::size_t>(p.b * width));  // the block, and what becomes its inverse
    const auto element = [&](std::int64_t row, std::int64_t col) -> T& {
      return rows[static_cast<std::size_t>((row * width) + col)];
    };
    for (std::int64_t i = 0; i < p.a; ++i)
      for (std::int64_t j = 0; j < p.d; ++j) {
        for (std::int64_t k = 0; k < p.b; ++k)
          for (std::int64_t l = 0; l < p.b; ++l) {
            element(k, l) = factors_[index][at(p, i, k, l, j)];
            element(k, p.b + l) = T(k == l ? 1.0F : 0.0F);
          }
        for (std::int64_t k = 0; k < p.b; ++k) {
          std::int64_t pivot = k;
          for (std::int64_t row = k + 1; row < p.b; ++row)
            if (std::abs(element(row, k)) > std::abs(element(pivot, k))) pivot = row;
          if (element(pivot, k) == T(0.0F))
            throw Error(ErrorCode::invalid_argument, "factors: factor " + std::to_string(index) + " (" +
                                                         p.to_string() + ") has a singular block");
          for (std::int64_t l = 0; l < width; ++l) std::swap(element(k, l), element(pivot, l));
          const T scale = T(1.0F) / element(k, k);
          for (std::int64_t l = 0; l < width; ++l) element(k, l) *= scale;
          for (std::int64_t row = 0; row < p.b; ++row) {
            if (row == k) continue;
            const T part = element(row, k);
            for (std::int64_t l = 0; l < width; ++l) element(row, l) -= part * element(k, l);
          }
        }
        for (std::int64_t k = 0; k < p.b; ++k)
          for (std::int64_t l = 0; l < p.b; ++l) values[at(p, i, k, l, j)] = element(k, p.b + l);
      }
    return values;
  }
  /// [1 1], 1 being the identity of this size.
  [[nodiscard]] static Operator side_by_side(std::int64_t size) {
    return {Pattern{1, 1, 2, size}, {std::vector<T>(static_cast<std::size_t>(2 * size), T(1.0F))}};
  }

  Chain chain_;
  std::vector<std::vector<T>> factors_;
};

namespace detail {

/// `first` combines the three real products of each product of complex numbers, (x + iy)(u + iv) from xu, yv
/// and (x + y)(u + v), into the part that is wanted.
template <class Real>
[[nodiscard]] Operator<Real> part_of(const Operator<std::complex<Real>>& op, const std::vector<Real>& first) {
  std::vector<Pattern> patterns;
  std::vector<std::vector<Real>> factors;
  // A small matrix (x) the identity of a size.
  const auto add = [&](std::int64_t rows, std::int64_t cols, const std::vector<Real>& matrix,
                       std::int64_t size) {
    patterns.push_back({1, rows, cols, size});
    std::vector<Real>& values = factors.emplace_back();
    for (const Real element : matrix) values.insert(values.end(), static_cast<std::size_t>(size), element);
  };
  add(1, 3, first, op.rows());
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

}  // namespace detail

/// The real part of a complex operator, of 2·L + 1 real factors.
///
///     using kronsparse::Operator, kronsparse::Pattern;
///     const Operator<std::complex<double>> i(Pattern{1, 1, 1, 2}, {{{0, 1}, {3, 1}}});
///     assert((kronsparse::real_part(i) * std::vector<double>{1, 1})[1] == 3);
template <class Real>
[[nodiscard]] Operator<Real> real_part(const Operator<std::complex<Real>>& op) {
  return detail::part_of<Real>(op, {1, -1, 0});
}
/// The imaginary part, in the same way.
template <class Real>
[[nodiscard]] Operator<Real> imaginary_part(const Operator<std::complex<Real>>& op) {
  return detail::part_of<Real>(op, {-1, -1, 1});
}

}  // namespace kronsparse
