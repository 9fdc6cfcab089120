// A product by one of the kernels for small batches on the CPU, cut up as the caller wants.
#pragma once

#include <cstdint>
#include <memory>

#include "product_run.hpp"

namespace kronsparse::emulation {

/// Runs the case and returns what the kernel was told. The functions of the cut are those that stand beside
/// it.
template <class Cut, class Arguments>
Arguments run_cut(const ProductCase& one, const Cut& cut, void (*kernel)(Arguments), std::int64_t blocks,
                  int threads, int cluster_blocks = 1) {
  const cuda::Product p = cuda::product_of(one.problem);
  const auto arguments = std::make_shared<Arguments>();
  const PackedOrder order = PackedOrder::of(p, weight_bytes(cut, p) / 2,
                                            [&](std::int64_t index) { return packed_place(cut, index); });
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
