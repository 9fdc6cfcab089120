// Runs a small batch by the narrow kernel on the CPU.
#pragma once

#include "cuda/small_batch/narrow/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct NarrowCut {
  DType dtype;
  cuda::narrow::Cut cut;
  bool boxes, y_vectors, y_direct, is_plain;
};

NarrowCut run_narrow(const ProductCase& one, const cuda::narrow::Cut& cut);

}  // namespace kronsparse::emulation
