// The places of the elements of a problem's matrices.
#pragma once

#include <cstdint>

#include "kronsparse/problem.hpp"

namespace kronsparse {

/// A row-major matrix as stored: rows start `stride` elements apart.
struct MatrixShape {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;

  /// Elements from the first to the one after the last.
  [[nodiscard]] std::int64_t extent() const noexcept {
    return rows == 0 || cols == 0 ? 0 : (rows - 1) * stride + cols;
  }
};

/// A batch of `features` as stored in a layout; stride 0 is dense.
[[nodiscard]] inline MatrixShape batch_shape(Layout layout, std::int64_t batch, std::int64_t features,
                                             std::int64_t stride) noexcept {
  const std::int64_t rows = layout == Layout::batch_first ? batch : features;
  const std::int64_t cols = layout == Layout::batch_first ? features : batch;
  return {rows, cols, stride == 0 ? cols : stride};
}

/// The matrix with K's columns: x of multiply and gradient, y of transposed and adjoint.
[[nodiscard]] inline MatrixShape cols_matrix(const Problem& problem) noexcept {
  return batch_shape(problem.layout, problem.batch, problem.chain.cols(), problem.cols_stride);
}

/// The matrix with K's rows: y of multiply, g of gradient, x of transposed and adjoint.
[[nodiscard]] inline MatrixShape rows_matrix(const Problem& problem) noexcept {
  return batch_shape(problem.layout, problem.batch, problem.chain.rows(), problem.rows_stride);
}

/// The gradient with respect to the values, without gaps.
[[nodiscard]] inline MatrixShape values_matrix(const Pattern& pattern) noexcept {
  return {pattern.a * pattern.b, pattern.c * pattern.d, pattern.c * pattern.d};
}
/// Those of all factors, one after the other.
[[nodiscard]] inline MatrixShape values_matrix(const Chain& chain) noexcept {
  if (chain.size() == 1) return values_matrix(chain.factors().front());
  return {1, chain.nnz(), chain.nnz()};
}

[[nodiscard]] inline bool is_transposed(Operation operation) noexcept {
  return operation == Operation::transposed || operation == Operation::adjoint;
}

[[nodiscard]] inline MatrixShape x_matrix(const Problem& problem) noexcept {
  return is_transposed(problem.operation) ? rows_matrix(problem) : cols_matrix(problem);
}

[[nodiscard]] inline MatrixShape y_matrix(const Problem& problem) noexcept {
  if (problem.operation == Operation::gradient) return values_matrix(problem.chain);
  return is_transposed(problem.operation) ? cols_matrix(problem) : rows_matrix(problem);
}

}  // namespace kronsparse
