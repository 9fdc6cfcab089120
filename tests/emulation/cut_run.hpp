// A product by one of the kernels for small batches on the CPU, cut up as the caller wants.
#pragma once

#include <cstdint>
#include <memory>

#include "product_run.hpp"

namespace kronsparse::emulation {

/// The order of values as they are given.
inline PackedOrder order_as_given(const Problem& problem) {
  const cuda::Product p = cuda::product_of(problem);
  const bool transposed = is_transposed(problem.operation);
  return {p.a * p.b * p.c * p.d, [=](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
            return ((transposed ? (i * p.c + l) * p.b + k : (i * p.b + k) * p.c + l)) * p.d + j;
          }};
}

/// Runs the case and returns what the kernel was told. The functions of the cut are those that stand beside
/// it.
template <class Cut, class Arguments>
Arguments run_cut(const ProductCase& one, const Cut& cut, void (*kernel)(Arguments), std::int64_t blocks,
                  int threads, int cluster_blocks = 1) {
  const cuda::Product p = cuda::product_of(one.problem);
  const auto arguments = std::make_shared<Arguments>();
  const PackedOrder order = packed_order(cut).is_as_given()
                                ? order_as_given(one.problem)
                                : PackedOrder::of(p, weight_bytes(cut, p) / 2, [&](std::int64_t index) {
                                    return packed_place(cut, index);
                                  });
  run_product(one, order, false, [&](const Operands& operands, const void* weights) {
    *arguments = with_operands(arguments_of(one.problem, cut, weights), p, operands);
    // Two clusters more where they idle: they have no place in the product.
    std::int64_t launched = blocks;
    if constexpr (requires { arguments->blocks; }) launched += 2 * std::int64_t{cluster_blocks};
    return Launch{static_cast<int>(launched), threads, shared_layout(cut).total,
                  [arguments, kernel] { kernel(*arguments); }, cluster_blocks};
  });
  return *arguments;
}

}  // namespace kronsparse::emulation
