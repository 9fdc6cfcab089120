// Runs a staged product on the CPU: all its launches except those of the remaining samples.
#pragma once

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How a case was cut, to count what a list of cases covers.
struct StagedCut {
  std::size_t levels;
  bool splits_i;     ///< a chunk has only some blocks i
  bool has_shorter;  ///< the last chunk has fewer samples
  bool x_in_pieces, y_in_pieces;
};

/// The implementation must take the problem, except for its remaining samples.
StagedCut run_staged(const ProductCase& one);

}  // namespace kronsparse::emulation
