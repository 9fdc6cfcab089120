// A multiplication as the kernels see it: transposition and layout resolved into sizes and strides.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/geometry.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

/// y[n,i,k,j] = activation(sum over l < c of w[i,k,l,j] · x[n,i,l,j] + bias[i,k,j]).
///
/// x[n,i,l,j] lies n·x_sample + ((i·c + l)·d + j)·x_feature elements from the start of x; y and g alike. The
/// transposed product has b and c exchanged; the packed weights hold w as written here.
struct Product {
  std::int64_t batch = 0;
  std::int64_t a = 1, b = 1, c = 1, d = 1;
  std::int64_t x_sample = 0, x_feature = 0;
  std::int64_t y_sample = 0, y_feature = 0;  ///< for the gradient: those of g
};

[[nodiscard]] inline Product product_of(const Problem& problem) noexcept {
  const bool transposed = is_transposed(problem.operation);
  const bool batch_first = problem.layout == Layout::batch_first;
  const std::int64_t x_stride = x_matrix(problem).stride;
  const std::int64_t y_stride = transposed ? cols_matrix(problem).stride : rows_matrix(problem).stride;
  const Pattern& p = problem.pattern();
  return {.batch = problem.batch,
          .a = p.a,
          .b = transposed ? p.c : p.b,
          .c = transposed ? p.b : p.c,
          .d = p.d,
          .x_sample = batch_first ? x_stride : 1,
          .x_feature = batch_first ? 1 : x_stride,
          .y_sample = batch_first ? y_stride : 1,
          .y_feature = batch_first ? 1 : y_stride};
}

/// The product that a plan is made for. A plan for no samples is made as for one.
[[nodiscard]] inline Product planned_product_of(const Problem& problem) noexcept {
  Product p = product_of(problem);
  p.batch = std::max<std::int64_t>(p.batch, 1);
  return p;
}

}  // namespace kronsparse::cuda
