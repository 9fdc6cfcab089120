// A product of a small batch by the kernel whose x stays in registers, on the CPU.
#pragma once

#include "cuda/held_config.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How the case was cut up, for counting what a list of cases covers.
struct HeldCut {
  DType dtype;
  cuda::held::Cut cut;
  bool boxes, y_vectors, is_ordinary;
};

HeldCut run_held(const ProductCase& one, const cuda::held::Cut& cut);

}  // namespace kronsparse::emulation
