// Runs a staged product on the CPU.
#pragma once

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct StagedCut {
  bool several_chunks;
  bool splits_i;     ///< a chunk has only some blocks i
  bool has_shorter;  ///< the last chunk has fewer samples
  bool x_in_pairs, y_in_pairs;
};

/// The implementation must take the problem.
StagedCut run_staged(const ProductCase& one);

}  // namespace kronsparse::emulation
