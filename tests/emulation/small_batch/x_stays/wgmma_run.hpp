// Runs a small batch by x-stays-wgmma on the CPU.
#pragma once

#include "cuda/small_batch/x_stays/wgmma/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct XStaysWgmmaCut {
  DType dtype;
  cuda::x_stays_wgmma::Cut cut;
  bool boxes;
  int x_bytes, y_vector;
};

XStaysWgmmaCut run_x_stays_wgmma(const ProductCase& one);

}  // namespace kronsparse::emulation
