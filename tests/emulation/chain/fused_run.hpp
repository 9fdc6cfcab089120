// Runs a chain by the kernel `fused` on the CPU.
#pragma once

#include "chain/chain_run.hpp"
#include "cuda/chain/fused/search.hpp"
#include "cuda/device/tensor_core.cuh"

namespace kronsparse::emulation {

/// How a case was cut.
struct FusedCut {
  cuda::Arithmetic arithmetic;
  int samples, ranks, parts, x_buffers, threads;
  bool x_rows, samples_first, x_vectors, y_vectors;
};

/// The products of a case: the cheapest way to multiply factors together.
[[nodiscard]] std::vector<cuda::Link> links_of(const Problem& problem);
/// The configs that a case may have.
[[nodiscard]] std::vector<cuda::fused::Config> fused_configs(const ProductCase& one);
[[nodiscard]] FusedCut run_fused(const ProductCase& one, const cuda::fused::Config& config,
                                 const Exponents& exponents = {});
/// See worst_error() of ChainKernel.
[[nodiscard]] double worst_error(const ProductCase& one, const cuda::fused::Config& config, double least,
                                 double most);

}  // namespace kronsparse::emulation
