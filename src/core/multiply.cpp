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

// Factors of a chain in the order they are applied.
std::vector<std::size_t> application_order(std::size_t factors, Operation operation) {
  std::vector<std::size_t> order(factors);
  for (std::size_t step = 0; step < factors; ++step)
    order[step] = is_transposed(operation) ? step : factors - 1 - step;
  return order;
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
    const std::string argument = chain.size() == 1 ? "values" : message("values[{}]", factor);
    check_vector(argument, values[factor], dtype, chain[factor].nnz(),
                 message("the values of {}", chain[factor].to_string()));
    check_pointer(argument, values[factor].data, dtype);
  }
  if (options.bias) check_vector("bias", *options.bias, dtype, chain.rows(), rows_text);
}

// Of the whole chain: a plan sees only its own factor's operands.
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

// Plans every factor before anything is computed, so that y is untouched on error.
std::vector<Plan> make_plans(const Chain& chain, std::span<const ConstVector> values, const ConstMatrix& x,
                             const Matrix& y, const MultiplyOptions& options) {
  std::vector<Plan> plans;
  plans.reserve(chain.size());
  for (std::size_t factor : application_order(chain.size(), options.operation)) {
    const bool is_first = plans.empty();
    const bool is_last = plans.size() + 1 == chain.size();
    const std::int64_t in_stride = is_first ? problem_stride(x) : 0;
    const std::int64_t out_stride = is_last ? problem_stride(y) : 0;
    Problem problem;
    problem.pattern = chain[factor];
    problem.batch = batch_of(x, options.layout);
    problem.dtype = x.dtype;
    problem.layout = options.layout;
    problem.operation = options.operation;
    problem.mode = options.mode;
    problem.bias = is_last && options.bias.has_value();
    problem.activation = is_last ? options.activation : Activation::none;
    problem.cols_stride = is_transposed(options.operation) ? out_stride : in_stride;
    problem.rows_stride = is_transposed(options.operation) ? in_stride : out_stride;
    plans.emplace_back(problem, values[factor].data, options.device);
  }
  return plans;
}

// What the steps of a chain hand on: step s writes one of these and reads the other.
std::array<Buffer, 2> make_intermediates(const std::vector<Plan>& plans, const Chain& chain,
                                         const ConstMatrix& x, const MultiplyOptions& options) {
  std::size_t widest = 0;
  for (std::size_t step = 0; step + 1 < plans.size(); ++step)
    widest = std::max(widest, static_cast<std::size_t>(plans[step].problem().out_features()));
  const std::int64_t batch = batch_of(x, options.layout);
  const std::size_t bytes = widest * static_cast<std::size_t>(batch) * size_of(x.dtype);
  try {
    return {Buffer(bytes, options.device), Buffer(plans.size() > 2 ? bytes : 0, options.device)};
  } catch (const Error& error) {
    throw Error(error.code(), message("multiply: no intermediate results of {} with batch {}, {}",
                                      chain.to_string(), batch, error.what()));
  }
}

void run_plans(const std::vector<Plan>& plans, const std::array<Buffer, 2>& intermediates,
               const ConstMatrix& x, const Matrix& y, const MultiplyOptions& options) {
  for (std::size_t step = 0; step < plans.size(); ++step) {
    const bool is_last = step + 1 == plans.size();
    Operands operands;
    operands.x = step == 0 ? x.data : intermediates[(step - 1) % 2].data();
    operands.y = is_last ? y.data : intermediates[step % 2].data();
    operands.bias = is_last && options.bias ? options.bias->data : nullptr;
    operands.stream = options.stream;
    plans[step].run(operands);
  }
  // Plans and intermediate results are about to go.
  synchronise(options.device, options.stream);
}

}  // namespace

void multiply(const Pattern& pattern, ConstVector values, ConstMatrix x, Matrix y,
              const MultiplyOptions& options) {
  multiply(Chain{pattern}, std::span<const ConstVector>(&values, 1), x, y, options);
}

void multiply(const Chain& chain, std::span<const ConstVector> values, ConstMatrix x, Matrix y,
              const MultiplyOptions& options) {
  check_arguments(chain, values, x, y, options);
  const std::vector<Plan> plans = make_plans(chain, values, x, y, options);
  check_pointers(x, y, options);
  run_plans(plans, make_intermediates(plans, chain, x, options), x, y, options);
}

void gradient(const Pattern& pattern, ConstMatrix x, ConstMatrix g, Matrix grad_values,
              const GradientOptions& options) {
  pattern.validate();
  const DType dtype = x.dtype;
  Problem problem;
  problem.pattern = pattern;
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
