// Runs a small batch by the resident kernel on the CPU.
#pragma once

#include "cuda/small_batch/resident/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct ResidentCut {
  DType dtype;
  cuda::resident::Cut cut;
  bool boxes, y_vectors, is_plain;
};

ResidentCut run_resident(const ProductCase& one, const cuda::resident::Cut& cut);

}  // namespace kronsparse::emulation
