// The fitted constants of the cost models in chain/. Every member is a double, so that a program can try
// others (tools/sweeps).
#pragma once

#include <array>

namespace kronsparse::cuda::tuning {

/// The terms of a prediction, in the order of fused::cost_terms(). "Far" is in other blocks of a cluster.
inline constexpr std::array fused_terms = {
    "start",
    "half types: products",
    "half types: loads",
    "half types: stores",
    "half types: stores far",
    "floats: products",
    "floats: loads",
    "floats: stores",
    "floats: stores far",
    "items",
    "units of x",
    "units of y",
    "units of x that become lines",
    "weights: 100,000 units",
    "meetings of a block",
    "meetings of a cluster",
    "turns",
};

/// The same for fused_wgmma::cost_terms().
inline constexpr std::array fused_wgmma_terms = {
    "start",
    "products: 1000 clocks",
    "rounds of slabs",
    "stores: 1000 lines",
    "x: 1000 features of 64 samples",
    "y: 1000 features of 64 samples",
    "weights: 100,000 bytes",
    "meetings",
    "turns",
};

struct Fused {
  std::array<double, fused_terms.size()> microseconds;  ///< for each of the terms
  double start;                                         ///< seconds besides the time of memory
  double merging;                                       ///< seconds of multiplying neighbours, once
  double merged_terms;                                  ///< terms of products of neighbours in a second
};

struct FusedWgmma {
  std::array<double, fused_wgmma_terms.size()> microseconds;  ///< for each of the terms
  double start;                                               ///< seconds besides the time of memory
};

}  // namespace kronsparse::cuda::tuning
