// One product by the wgmma kernel on the CPU, compared with a plain loop.
#pragma once

#include <string>

#include "block.hpp"
#include "cuda/multiply_wgmma.hpp"

namespace kronsparse::emulation {

/// A problem, where its operands lie, and the GPU that it is cut up for.
struct WgmmaCase {
  Problem problem;
  int x_offset = 0;         ///< elements from an address that 16 divides
  int y_offset = 0;         ///< alike
  int multiprocessors = 3;  ///< few, so that a block computes several tiles
  bool infinite = false;    ///< one x is an infinity
  Timing timing = Timing::late;

  [[nodiscard]] std::string text() const;
};

/// How the case was cut up, for counting what a list of cases covers.
struct WgmmaCut {
  cuda::Arithmetic arithmetic;
  std::size_t shape_index;
  bool resident;
  int x_copy, y_store;
};

/// Runs it; an EmulationError says which result differs, or what the kernel did that a GPU would not allow.
WgmmaCut run_case(const WgmmaCase& one);

}  // namespace kronsparse::emulation
