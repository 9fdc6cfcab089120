// Runs a product by the wgmma kernel on the CPU.
#pragma once

#include "cuda/large_batch/wgmma/kernels.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct WgmmaCut {
  cuda::Arithmetic arithmetic;
  std::size_t shape_index;
  bool resident;
  int x_copy, y_store;
};

WgmmaCut run_wgmma(const ProductCase& one);

}  // namespace kronsparse::emulation
