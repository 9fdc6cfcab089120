#include "opencl/contraction.hpp"

#include <bit>

#include "core/geometry.hpp"

namespace kronsparse::opencl {
namespace {

/// Elements between neighbouring samples and features of a matrix.
struct Steps {
  std::int64_t sample, feature;
};

Steps steps_of(Layout layout, const MatrixShape& shape) {
  return layout == Layout::batch_first ? Steps{shape.stride, 1} : Steps{1, shape.stride};
}

}  // namespace

Args args_of(const Problem& problem, std::int64_t panel) {
  const Pattern& pattern = problem.pattern();
  const std::int64_t b = pattern.b;
  const std::int64_t c = pattern.c;
  const std::int64_t d = pattern.d;
  const Steps rows = steps_of(problem.layout, rows_matrix(problem));
  const Steps cols = steps_of(problem.layout, cols_matrix(problem));
  Args args;
  args.js = d;
  args.conjugates_b = is_complex(problem.dtype) &&
                      (problem.operation == Operation::adjoint || problem.operation == Operation::gradient);
  if (problem.operation == Operation::gradient) {
    args.m = b;
    args.n = c;
    args.depth = problem.batch;
    args.a_i = b * d * rows.feature;
    args.a_j = rows.feature;
    args.a_row = d * rows.feature;
    args.a_depth = rows.sample;
    args.b_i = c * d * cols.feature;
    args.b_j = cols.feature;
    args.b_row = d * cols.feature;
    args.b_tile = args.b_row;
    args.b_depth = cols.sample;
    args.c_i = b * c * d;
    args.c_j = 1;
    args.c_m = c * d;
    args.c_n = d;
    return args;
  }
  const bool transposed = is_transposed(problem.operation);
  const Steps x = transposed ? rows : cols;
  const Steps y = transposed ? cols : rows;
  args.m = problem.batch;
  args.n = transposed ? c : b;
  args.depth = transposed ? b : c;
  args.a_i = args.depth * d * x.feature;
  args.a_j = x.feature;
  args.a_row = x.sample;
  args.a_depth = d * x.feature;
  if (panel == 0) {
    args.b_i = b * c * d;
    args.b_j = 1;
    args.b_row = args.b_tile = transposed ? d : c * d;
    args.b_depth = transposed ? c * d : d;
  } else {
    args.b_row = 1;
    args.b_depth = panel;
    args.b_tile = panel < args.n ? args.depth : 1;
    args.b_j = tiles_of(args.n, panel) * panel * args.depth;
    args.b_i = d * args.b_j;
  }
  args.c_i = args.n * d * y.feature;
  args.c_j = y.feature;
  args.c_m = y.sample;
  args.c_n = d * y.feature;
  args.bias_i = b * d;
  args.bias_n = d;
  args.has_bias = problem.bias;
  args.activation = static_cast<std::int64_t>(problem.activation);
  return args;
}

PackedOrder given_order(const Problem& problem) {
  return {.family = {},
          .numbers = {},
          .bytes = static_cast<std::size_t>(problem.pattern().nnz()) * size_of(problem.dtype)};
}

PackedOrder packed_order(const Problem& problem, std::string_view family, std::int64_t panel) {
  const std::int64_t elements = problem.pattern().a * args_of(problem, panel).b_i;
  return {.family = family,
          .numbers = {is_transposed(problem.operation), panel},
          .bytes = static_cast<std::size_t>(elements) * size_of(problem.dtype)};
}

Problem with_rounded_batch(const Problem& problem) {
  Problem rounded = problem;
  rounded.batch = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(problem.batch, 1))));
  rounded.cols_stride = rounded.rows_stride = 0;
  return rounded;
}

}  // namespace kronsparse::opencl
