// A product of a small batch by the kernel whose weights stay in registers, on the CPU.
#pragma once

#include "cuda/small_batch/resident/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How the case was cut up, for counting what a list of cases covers.
struct ResidentCut {
  DType dtype;
  cuda::resident::Cut cut;
  bool boxes, y_vectors, is_plain;
};

ResidentCut run_resident(const ProductCase& one, const cuda::resident::Cut& cut);

}  // namespace kronsparse::emulation
