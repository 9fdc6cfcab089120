// Runs a small batch by the direct kernel on the CPU.
#pragma once

#include "cuda/small_batch/direct/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct DirectCut {
  DType dtype;
  cuda::direct::Cut cut;
  bool x_vectors, y_vectors, is_plain;
};

DirectCut run_direct(const ProductCase& one, const cuda::direct::Cut& cut);

}  // namespace kronsparse::emulation
