// A gradient by the tensor-core kernels on the CPU.
#pragma once

#include <optional>

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

/// The same of the kernel for Hopper.
struct GradientWgmmaCut {
  DType dtype;
  std::size_t shape_index;
  int warpgroups, splits, stages, raw_stages;
  bool y_vectors;
};

/// Operands whose results are exact, compared with a plain loop; an EmulationError says which differs, or
/// what the kernel did that a GPU would not allow.
GradientCut run_gradient(const ProductCase& one);
/// The same by the kernel for Hopper, in one of its shapes or in the one it would choose.
GradientWgmmaCut run_gradient_wgmma(const ProductCase& one, std::optional<std::size_t> shape_index = {});

}  // namespace kronsparse::emulation
