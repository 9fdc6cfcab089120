// A gradient by the tensor-core kernel on the CPU.
#pragma once

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How the case was cut up, for counting what a list of cases covers.
struct GradientCut {
  DType dtype;
  std::size_t shape_index;
  int splits, warps, stages;
  int g_width, x_width;
  bool y_vectors;
};

/// Operands whose results are exact, compared with a plain loop; an EmulationError says which differs, or
/// what the kernel did that a GPU would not allow.
GradientCut run_gradient(const ProductCase& one);

}  // namespace kronsparse::emulation
