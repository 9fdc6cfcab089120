// A staged product on the CPU: all its launches but those of the samples that are left.
#pragma once

#include "product_run.hpp"

namespace kronsparse::emulation {

/// How the case was cut up, for counting what a list of cases covers.
struct StagedCut {
  std::size_t levels;
  bool splits_i;     ///< a chunk has not all blocks i
  bool has_shorter;  ///< a last chunk with fewer samples
  bool x_in_pieces, y_in_pieces;
};

/// The problem must be one that the implementation takes, but for the rest's sake.
StagedCut run_staged(const ProductCase& one);

}  // namespace kronsparse::emulation
