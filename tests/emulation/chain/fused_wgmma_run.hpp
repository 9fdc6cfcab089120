// Runs a chain by the kernel `fused_wgmma` on the CPU.
#pragma once

#include <set>
#include <vector>

#include "chain/chain_run.hpp"
#include "cuda/chain/fused_wgmma/search.hpp"

namespace kronsparse::emulation {

/// How a case was cut.
struct FusedWgmmaCut {
  DType dtype;
  std::size_t shape;
  int parts, steps;
  bool in_place, y_waits, x_boxes, y_vectors;
  std::set<int> items;  ///< the shapes of its items
  bool has_fewer_blocks, has_slabs, has_mixing, has_padding;
};

/// The ways to multiply the factors of a case together that the kernel takes.
[[nodiscard]] std::vector<std::vector<cuda::Link>> fused_wgmma_ways(const Problem& problem);
[[nodiscard]] FusedWgmmaCut run_fused_wgmma(const ProductCase& one, const std::vector<cuda::Link>& links,
                                            const cuda::fused_wgmma::Config& config,
                                            const Exponents& exponents = {});
/// See worst_error() of ChainKernel.
[[nodiscard]] double worst_error(const ProductCase& one, const std::vector<cuda::Link>& links,
                                 const cuda::fused_wgmma::Config& config, double least, double most);

}  // namespace kronsparse::emulation
