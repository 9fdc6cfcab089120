// Runs a chain by a kernel on the CPU, and compares with plain loops.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cuda/chain/links.hpp"
#include "cuda/packing/packing.hpp"
#include "product_run.hpp"

namespace kronsparse::emulation {

/// A kernel and its config, as far as a run depends on them.
struct ChainKernel {
  std::vector<cuda::Link> links;
  std::size_t packed_bytes;
  std::vector<cuda::ChainPart> parts;
  std::function<Launch(const Operands& operands, const void* weights)> launch_of;
};

/// Powers of two that numbers are multiplied by, which leave results exact.
struct Exponents {
  int first = 0, second = 0;  ///< the first two of the factors that are multiplied together first
  /// The outputs of their product, if it is the last: by -this, 0 and this in turn.
  int outputs = 0;
  int x = 0;
  bool infinite_weight = false;  ///< one of the first factor's weights is an infinity
};

/// An EmulationError says which result differs, or what the kernel did that a GPU would not allow.
void run_chain(const ProductCase& one, const ChainKernel& kernel, const Exponents& exponents);
/// Weights between `least` and `most` in size, evenly among powers of ten. The largest error against double
/// precision, over the bound of the factors one by one: what rounding each intermediate and y may change.
[[nodiscard]] double worst_error(const ProductCase& one, const ChainKernel& kernel, double least,
                                 double most);

/// Multiplies the factors of a task together on the CPU.
void run_merging(const cuda::MergeTask& task, Timing timing);

}  // namespace kronsparse::emulation
