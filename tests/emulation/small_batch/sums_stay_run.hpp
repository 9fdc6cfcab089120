// Runs a small batch by sums-stay on the CPU.
#pragma once

#include "cuda/small_batch/sums_stay/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct SumsStayCut {
  DType dtype;
  cuda::sums_stay::Cut cut;
  bool boxes, y_vectors, y_direct, is_plain;
};

SumsStayCut run_sums_stay(const ProductCase& one, const cuda::sums_stay::Cut& cut);

}  // namespace kronsparse::emulation
