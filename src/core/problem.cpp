#include "kronsparse/problem.hpp"

#include "core/checked.hpp"
#include "core/geometry.hpp"
#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

/// Bytes of all products between factors: workspaces have up to three times as many, and the values.
constexpr std::int64_t most_handed_on = std::int64_t{1} << 61;

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

const Pattern& Problem::pattern() const {
  if (chain.size() != 1)
    throw Error(ErrorCode::internal, message("problem: {} has several factors, one is wanted", to_string()));
  return chain.factors().front();
}

std::int64_t Problem::in_features() const noexcept {
  return is_transposed(operation) ? chain.rows() : chain.cols();
}

std::int64_t Problem::out_features() const noexcept {
  return is_transposed(operation) ? chain.cols() : chain.rows();
}

std::int64_t Problem::x_stride() const noexcept { return x_matrix(*this).stride; }

std::int64_t Problem::y_stride() const noexcept { return y_matrix(*this).stride; }

double Problem::flops() const noexcept {
  const double products = static_cast<double>(chain.nnz()) * static_cast<double>(batch);
  return products * (is_complex(dtype) ? 8.0 : 2.0);
}

double Problem::bytes() const {
  const double features = static_cast<double>(chain.rows()) + static_cast<double>(chain.cols());
  double elements = features * static_cast<double>(batch) + static_cast<double>(chain.nnz());
  if (bias) elements += static_cast<double>(chain.rows());
  return elements * static_cast<double>(size_of(dtype));
}

void Problem::validate() const {
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
  // Intermediates must fit. The gradient's workspace has all of them, and the largest once or twice more.
  std::int64_t handed_on = 0;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  for (std::size_t factor = 1; factor < chain.size(); ++factor) {
    const std::optional<std::int64_t> bytes = checked_product({chain[factor].rows(), batch, element});
    if (!bytes || *bytes > most_handed_on || __builtin_add_overflow(handed_on, *bytes, &handed_on) ||
        handed_on > most_handed_on)
      throw Error(ErrorCode::overflow,
                  message("batch: the intermediates of {} are too large, their bytes must fit in 61 bits",
                          to_string()));
  }
}

}  // namespace kronsparse
