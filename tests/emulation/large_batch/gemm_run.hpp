// Runs a product by the gemm kernel on the CPU.
#pragma once

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct GemmCut {
  DType dtype;
  std::size_t shape_index;
  int w_slots;
  bool x_tensor_copies, y_tensor_copies;
};

GemmCut run_gemm(const ProductCase& one);

}  // namespace kronsparse::emulation
