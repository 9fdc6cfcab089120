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

/// The configs that a case may have.
[[nodiscard]] std::vector<cuda::fused::Config> fused_configs(const ProductCase& one);
[[nodiscard]] FusedCut run_fused(const ProductCase& one, const cuda::fused::Config& config);

}  // namespace kronsparse::emulation
