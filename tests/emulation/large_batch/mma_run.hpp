// Runs a product by the kernel `mma` on the CPU.
#pragma once

#include <cstddef>

#include "cuda/large_batch/mma/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct MmaCut {
  DType dtype;
  Layout layout;
  std::size_t shape_index;
  int x_width, y_width;  ///< elements that are loaded and stored at once
  bool is_chunked, has_passes;
};

/// Runs the case by the config that it would get.
MmaCut run_mma(const ProductCase& one);
/// Runs the case by this config.
MmaCut run_mma(const ProductCase& one, const cuda::mma::Config& config);

}  // namespace kronsparse::emulation
