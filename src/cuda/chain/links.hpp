// The products of a kernel for chains: factors alone, or neighbours that are multiplied together when their
// values are packed. Host code only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cuda/chain/limits.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

/// One product of the kernel: with a factor of the chain, or with several that are multiplied together.
struct Link {
  std::size_t factor;  ///< the first, of the problem's chain
  std::size_t factors;
  Pattern pattern;  ///< of their product
  Product product;  ///< its sizes, as the problem's operation has them; strides do not count
  /// Weights that are multiplied with each x: 2 where they are rounded products and what rounding left.
  int repeats = 1;
};

/// The ways to multiply neighbours together, as the products in the order in which they are computed: the
/// cheapest of those with as many products each, the cheapest first. None has more than most_links products,
/// or in f32 sums of fewer than 16 terms.
[[nodiscard]] std::vector<std::vector<Link>> ways_of(const Problem& problem);

/// The predicted seconds of multiplying neighbours together, once.
[[nodiscard]] double merging_seconds(const GpuFacts& facts, const Problem& problem,
                                     std::span<const Link> links);

}  // namespace kronsparse::cuda
