// Runs a small batch by the stream kernel on the CPU.
#pragma once

#include "cuda/small_batch/stream/search.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct StreamCut {
  DType dtype;
  cuda::stream::Cut cut;
  bool boxes;
  int x_bytes, y_vector;
};

StreamCut run_stream(const ProductCase& one);

}  // namespace kronsparse::emulation
