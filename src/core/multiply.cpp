#include "kronsparse/multiply.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/geometry.hpp"
#include "core/message.hpp"
#include "core/operand_check.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

[[noreturn]] void mismatch(const std::string& text) { throw Error(ErrorCode::size_mismatch, text); }

void check_dtype(std::string_view argument, DType given, DType expected) {
  if (given != expected)
    mismatch(message("{}: dtype {} given, must be {} as x is", argument, name(given), name(expected)));
}

void check_vector(std::string_view argument, const ConstVector& vector, DType dtype, std::int64_t size,
                  std::string_view what) {
  check_dtype(argument, vector.dtype, dtype);
  if (vector.size != size)
    mismatch(message("{}: {} elements given, must be {}, {}", argument, vector.size, size, what));
}

template <class Void>
void check_matrix(std::string_view argument, const BasicMatrix<Void>& matrix, DType dtype,
                  const MatrixShape& expected, std::string_view what) {
  check_dtype(argument, matrix.dtype, dtype);
  if (matrix.rows != expected.rows || matrix.cols != expected.cols)
    mismatch(message("{}: {} x {} given, must be {} x {}, {}", argument, matrix.rows, matrix.cols,
                     expected.rows, expected.cols, what));
  if (matrix.stride < matrix.cols)
    throw Error(ErrorCode::invalid_argument,
                message("{}: row stride {} given, must be at least the {} columns", argument, matrix.stride,
                        matrix.cols));
}

template <class Void>
std::int64_t batch_of(const BasicMatrix<Void>& matrix, Layout layout) {
  return layout == Layout::batch_first ? matrix.rows : matrix.cols;
}

// Checks a matrix of batch x features in the layout; `what` says whose features they are.
template <class Void>
void check_batch(std::string_view argument, const BasicMatrix<Void>& matrix, DType dtype, Layout layout,
                 std::int64_t batch, std::int64_t features, std::string_view what) {
  check_matrix(argument, matrix, dtype, batch_shape(layout, batch, features, 0),
               message("batch {} of {} features, {}", batch, features, what));
}

// The stride in a Problem: 0 for a matrix without gaps, so that plans and messages say no more than needed.
template <class Void>
std::int64_t problem_stride(const BasicMatrix<Void>& matrix) {
  return matrix.stride == matrix.cols ? 0 : matrix.stride;
}

template <class Void>
MatrixArgument argument_of(std::string_view argument, const BasicMatrix<Void>& matrix) {
  return {argument, matrix.data, {matrix.rows, matrix.cols, matrix.stride}};
}

void check_arguments(const Chain& chain, std::span<const ConstVector> values, const ConstMatrix& x,
                     const Matrix& y, const MultiplyOptions& options) {
  if (options.operation == Operation::gradient)
    throw Error(
        ErrorCode::invalid_argument,
        "operation: gradient given, must be multiply, transposed or adjoint; see kronsparse::gradient");
  const DType dtype = x.dtype;
  const std::int64_t batch = batch_of(x, options.layout);
  const bool transposed = is_transposed(options.operation);
  const std::string rows_text = message("the rows of {}", chain.to_string());
  const std::string cols_text = message("the columns of {}", chain.to_string());
  check_batch("x", x, dtype, options.layout, batch, transposed ? chain.rows() : chain.cols(),
              transposed ? rows_text : cols_text);
  check_batch("y", y, dtype, options.layout, batch, transposed ? chain.cols() : chain.rows(),
              transposed ? cols_text : rows_text);
  if (values.size() != chain.size())
    mismatch(message("values: {} arrays given, must be {}, one for each factor of {}", values.size(),
                     chain.size(), chain.to_string()));
  for (std::size_t factor = 0; factor < chain.size(); ++factor) {
    const ArgumentName argument("values", chain.size() == 1 ? -1 : static_cast<std::int64_t>(factor));
    check_vector(argument.text(), values[factor], dtype, chain[factor].nnz(),
                 message("the values of {}", chain[factor].to_string()));
    check_pointer(argument, values[factor].data, dtype);
  }
  if (options.bias) check_vector("bias", *options.bias, dtype, chain.rows(), rows_text);
}

// Checked for the whole chain: a plan sees only its own factor's operands.
void check_pointers(const ConstMatrix& x, const Matrix& y, const MultiplyOptions& options) {
  const MatrixArgument output = argument_of("y", y);
  if (batch_of(x, options.layout) > 0) {
    check_pointer("x", x.data, x.dtype);
    check_pointer("y", y.data, x.dtype);
    check_disjoint(output, argument_of("x", x), x.dtype);
  }
  if (options.bias) {
    const std::int64_t size = options.bias->size;
    check_pointer("bias", options.bias->data, x.dtype);
    check_disjoint(output, {"bias", options.bias->data, {1, size, size}}, x.dtype);
  }
}

// A plan that reads the values, what it needs, and the wait for it: all of it is about to go.
void run_once(const Problem& problem, const Device& device, Operands operands) {
  const Plan plan(problem, device);
  const Batch batch{problem.batch, problem.cols_stride, problem.rows_stride};
  Buffer workspace;
  try {
    workspace = Buffer(plan.workspace_bytes(batch, operands), device);
  } catch (const Error& error) {
    throw Error(error.code(),
                message("multiply: no workspace for {}, {}", problem.to_string(), error.what()));
  }
  operands.workspace = workspace.data();
  operands.workspace_bytes = workspace.bytes();
  plan.run(operands);
  synchronise(device, operands.stream);
}

std::vector<const void*> addresses_of(std::span<const ConstVector> values) {
  std::vector<const void*> all;
  for (const ConstVector& one : values) all.push_back(one.data);
  return all;
}

}  // namespace

void multiply(const Pattern& pattern, ConstVector values, ConstMatrix x, Matrix y,
              const MultiplyOptions& options) {
  multiply(Chain{pattern}, std::span<const ConstVector>(&values, 1), x, y, options);
}

void multiply(const Chain& chain, std::span<const ConstVector> values, ConstMatrix x, Matrix y,
              const MultiplyOptions& options) {
  check_arguments(chain, values, x, y, options);
  check_pointers(x, y, options);
  const bool transposed = is_transposed(options.operation);
  Problem problem;
  problem.chain = chain;
  problem.batch = batch_of(x, options.layout);
  problem.dtype = x.dtype;
  problem.layout = options.layout;
  problem.operation = options.operation;
  problem.mode = options.mode;
  problem.bias = options.bias.has_value();
  problem.activation = options.activation;
  problem.cols_stride =
      problem_stride(transposed ? ConstMatrix(y.data, y.dtype, y.rows, y.cols, y.stride) : x);
  problem.rows_stride =
      problem_stride(transposed ? x : ConstMatrix(y.data, y.dtype, y.rows, y.cols, y.stride));
  const std::vector<const void*> addresses = addresses_of(values);
  run_once(problem, options.device,
           {.x = x.data,
            .y = y.data,
            .bias = options.bias ? options.bias->data : nullptr,
            .stream = options.stream,
            .values = addresses.data()});
}

void gradient(const Pattern& pattern, ConstMatrix x, ConstMatrix g, Matrix grad_values,
              const GradientOptions& options) {
  pattern.validate();
  const DType dtype = x.dtype;
  Problem problem;
  problem.chain = pattern;
  problem.batch = batch_of(x, options.layout);
  problem.dtype = dtype;
  problem.layout = options.layout;
  problem.operation = Operation::gradient;
  problem.mode = options.mode;
  problem.cols_stride = problem_stride(x);
  problem.rows_stride = problem_stride(g);
  check_batch("x", x, dtype, options.layout, problem.batch, pattern.cols(),
              message("the columns of {}", pattern.to_string()));
  check_batch("g", g, dtype, options.layout, problem.batch, pattern.rows(),
              message("the rows of {}", pattern.to_string()));
  const MatrixShape expected = values_matrix(pattern);
  check_matrix("grad_values", grad_values, dtype, expected,
               message("(a*b) x (c*d) of {}", pattern.to_string()));
  if (grad_values.stride != expected.stride)
    throw Error(ErrorCode::invalid_argument,
                message("grad_values: row stride {} given, must be the {} columns, without gaps",
                        grad_values.stride, expected.cols));
  const Plan plan(problem, nullptr, options.device);
  // The plan checks the inputs, but calls its output y.
  check_pointer("grad_values", grad_values.data, dtype);
  const MatrixArgument output = argument_of("grad_values", grad_values);
  check_disjoint(output, argument_of("x", x), dtype);
  check_disjoint(output, argument_of("g", g), dtype);
  plan.run({.x = x.data, .y = grad_values.data, .g = g.data, .stream = options.stream});
  synchronise(options.device, options.stream);  // the plan is about to go
}

}  // namespace kronsparse
