// Runs a gradient by the kernel `gradient-simt` on the CPU, by blocks that are alone in their clusters.
#pragma once

#include <cstddef>

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct GradientSimtCut {
  DType dtype;
  bool flushes, g_vectors, x_vectors, y_vectors;
};

/// The tiles that are compiled for a dtype and layout.
std::size_t gradient_simt_tiles(DType dtype, Layout layout);
/// Runs the case by one of them.
GradientSimtCut run_gradient_simt(const ProductCase& one, std::size_t tile);

}  // namespace kronsparse::emulation
