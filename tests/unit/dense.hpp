// K written out in full, straight from the definition of a pattern.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "kronsparse/pattern.hpp"

namespace kronsparse {

using Complex = std::complex<double>;

struct Dense {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<Complex> entries;

  Dense(std::int64_t row_count, std::int64_t col_count)
      : rows(row_count), cols(col_count), entries(static_cast<std::size_t>(row_count * col_count)) {}

  Complex& at(std::int64_t row, std::int64_t col) {
    return entries[static_cast<std::size_t>(row * cols + col)];
  }
  [[nodiscard]] Complex at(std::int64_t row, std::int64_t col) const {
    return entries[static_cast<std::size_t>(row * cols + col)];
  }
};

template <class T>
Dense dense(const Pattern& pattern, const std::vector<T>& values) {
  Dense k(pattern.rows(), pattern.cols());
  const auto [a, b, c, d] = pattern;
  std::size_t index = 0;
  for (std::int64_t i = 0; i < a; ++i)
    for (std::int64_t kk = 0; kk < b; ++kk)
      for (std::int64_t l = 0; l < c; ++l)
        for (std::int64_t j = 0; j < d; ++j)
          k.at(i * b * d + kk * d + j, i * c * d + l * d + j) = Complex(values[index++]);
  return k;
}

inline Dense product(const Dense& left, const Dense& right) {
  Dense result(left.rows, right.cols);
  for (std::int64_t row = 0; row < left.rows; ++row)
    for (std::int64_t col = 0; col < right.cols; ++col)
      for (std::int64_t inner = 0; inner < left.cols; ++inner)
        result.at(row, col) += left.at(row, inner) * right.at(inner, col);
  return result;
}

inline Dense transposed(const Dense& matrix, bool conjugate) {
  Dense result(matrix.cols, matrix.rows);
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t col = 0; col < matrix.cols; ++col)
      result.at(col, row) = conjugate ? std::conj(matrix.at(row, col)) : matrix.at(row, col);
  return result;
}

}  // namespace kronsparse
