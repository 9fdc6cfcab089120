// Runs a product by the kernel `simt` on the CPU.
#pragma once

#include <cstddef>

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct SimtCut {
  DType dtype;
  std::size_t tile;
  bool has_chunks, x_vectors, y_vectors;
};

/// The tiles that are compiled for a dtype and layout.
std::size_t simt_tiles(DType dtype, Layout layout);
/// Runs the case by one of them.
SimtCut run_simt(const ProductCase& one, std::size_t tile);

}  // namespace kronsparse::emulation
