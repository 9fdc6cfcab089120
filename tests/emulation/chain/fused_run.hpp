// Runs a chain by the kernel `fused` on the CPU, and compares with plain loops.
#pragma once

#include "cuda/chain/fused/search.hpp"
#include "cuda/device/tensor_core.cuh"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut.
struct FusedCut {
  cuda::Arithmetic arithmetic;
  int samples, ranks, parts, x_buffers, threads;
  bool x_rows, samples_first, x_vectors, y_vectors;
};

/// Powers of two that numbers are multiplied by, which leave results exact.
struct Exponents {
  int first = 0, second = 0;  ///< the first two of the factors that are multiplied together first
  /// The outputs of their product, if it is the last: by -this, 0 and this in turn.
  int outputs = 0;
  int x = 0;
  bool infinite_weight = false;  ///< one of the first factor's weights is an infinity
};

/// The products of a case: the cheapest way to multiply factors together.
[[nodiscard]] std::vector<cuda::fused::Link> links_of(const Problem& problem);
/// The configs that a case may have.
[[nodiscard]] std::vector<cuda::fused::Config> fused_configs(const ProductCase& one);
[[nodiscard]] FusedCut run_fused(const ProductCase& one, const cuda::fused::Config& config,
                                 const Exponents& exponents = {});
/// Weights between `least` and `most` in size, evenly among powers of ten. The largest error against double
/// precision, over the bound of the factors one by one: what rounding each intermediate and y may change.
[[nodiscard]] double worst_error(const ProductCase& one, const cuda::fused::Config& config, double least,
                                 double most);

/// Multiplies the factors of a task together on the CPU.
void run_merging(const cuda::MergeTask& task, Timing timing);

}  // namespace kronsparse::emulation
