// Runs a small batch by weights-stay on the CPU.
#pragma once

#include "cuda/small_batch/weights_stay/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct WeightsStayCut {
  DType dtype;
  cuda::weights_stay::Cut cut;
  bool boxes, y_vectors, is_plain;
};

WeightsStayCut run_weights_stay(const ProductCase& one, const cuda::weights_stay::Cut& cut);

}  // namespace kronsparse::emulation
