// Runs a gradient by the tensor-core kernels on the CPU.
#pragma once

#include <functional>
#include <optional>

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct GradientCut {
  DType dtype;
  std::size_t shape_index;
  int splits, warps, stages;
  int g_width, x_width;
  bool y_vectors;
};

/// The same for the kernel for Hopper.
struct GradientWgmmaCut {
  DType dtype;
  std::size_t shape_index;
  int warpgroups, splits, stages, raw_stages;
  bool y_vectors;
};

/// Makes operands, runs the launch of `launch_of`, and compares with a plain loop.
void run_gradient_launch(const ProductCase& one, const std::function<Launch(const Operands&)>& launch_of);
/// Runs a case with operands whose results are exact, and compares with a plain loop. An EmulationError says
/// which result differs, or what the kernel did that a GPU would not allow.
GradientCut run_gradient(const ProductCase& one);
/// The same by the kernel for Hopper, in the given shape or in the one it would choose.
GradientWgmmaCut run_gradient_wgmma(const ProductCase& one, std::optional<std::size_t> shape_index = {});

}  // namespace kronsparse::emulation
