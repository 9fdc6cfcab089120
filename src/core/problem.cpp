#include "kronsparse/problem.hpp"

#include "core/checked.hpp"
#include "core/geometry.hpp"
#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

void validate_epilogue(const Problem& problem) {
  if (problem.operation != Operation::multiply && problem.bias)
    refuse(message("bias: given with operation {}, allowed with multiply only", name(problem.operation)));
  if (problem.activation == Activation::none) return;
  if (problem.operation != Operation::multiply)
    refuse(message("activation: {} given with operation {}, allowed with multiply only",
                   name(problem.activation), name(problem.operation)));
  if (is_complex(problem.dtype))
    refuse(message("activation: {} given with dtype {}, allowed with real dtypes only",
                   name(problem.activation), name(problem.dtype)));
}

void validate_matrix(const Problem& problem, const MatrixShape& matrix, std::string_view stride_name) {
  if (matrix.stride < matrix.cols)
    refuse(message("{}: {} given, must be 0 (dense) or at least the row length {}", stride_name,
                   matrix.stride, matrix.cols));
  const auto element = static_cast<std::int64_t>(size_of(problem.dtype));
  if (!checked_product({matrix.rows, matrix.stride, element}))
    throw Error(ErrorCode::overflow,
                message("batch: the {} x {} matrix with row stride {} of {} is too large, its bytes must fit "
                        "in 63 bits",
                        matrix.rows, matrix.cols, matrix.stride, problem.to_string()));
}

}  // namespace

std::int64_t Problem::in_features() const noexcept {
  return is_transposed(operation) ? pattern.rows() : pattern.cols();
}

std::int64_t Problem::out_features() const noexcept {
  return is_transposed(operation) ? pattern.cols() : pattern.rows();
}

std::int64_t Problem::x_stride() const noexcept { return x_matrix(*this).stride; }

std::int64_t Problem::y_stride() const noexcept { return y_matrix(*this).stride; }

double Problem::flops() const noexcept {
  const double products = static_cast<double>(pattern.nnz()) * static_cast<double>(batch);
  return products * (is_complex(dtype) ? 8.0 : 2.0);
}

double Problem::bytes() const {
  const double features = static_cast<double>(pattern.rows()) + static_cast<double>(pattern.cols());
  double elements = features * static_cast<double>(batch) + static_cast<double>(pattern.nnz());
  if (bias) elements += static_cast<double>(pattern.rows());
  return elements * static_cast<double>(size_of(dtype));
}

void Problem::validate() const {
  pattern.validate();
  // Each name() throws for a number outside its enumeration.
  static_cast<void>(name(dtype));
  static_cast<void>(name(layout));
  static_cast<void>(name(operation));
  static_cast<void>(name(activation));
  static_cast<void>(name(mode));
  if (batch < 0) refuse(message("batch: {} given, must be at least 0", batch));
  validate_epilogue(*this);
  if (mode != Mode::fp32 && dtype != DType::f32)
    refuse(message("mode: {} given with dtype {}, allowed with f32 only", name(mode), name(dtype)));
  validate_matrix(*this, cols_matrix(*this), "cols_stride");
  validate_matrix(*this, rows_matrix(*this), "rows_stride");
}

}  // namespace kronsparse
