// The config of `fused_wgmma` for a chain: how it is cut into tiles and items. Host code only.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/implementation.hpp"
#include "cuda/chain/fused_wgmma/tiles.cuh"
#include "cuda/chain/links.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/chain.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::fused_wgmma {

struct Config {
  std::size_t shape_index = 0;
  Shape shape{};
  int shared_bytes = 0;
  Arguments arguments{};  ///< without addresses and strides
  double seconds = 0;     ///< predicted
};

/// Why the kernel cannot compute these products, whatever the GPU; empty when it can.
[[nodiscard]] std::string refusal_of(std::span<const Link> links);
/// Every config that the GPU can hold, in no order.
[[nodiscard]] std::vector<Config> all_configs(const Problem& problem, std::span<const Link> links,
                                              const GpuFacts& gpu);
/// A way to multiply neighbours together, with its config.
struct Cut {
  std::vector<Link> links;
  Config config;
};
/// Every config of the ways that are not refused.
[[nodiscard]] std::vector<Cut> all_cuts(const Problem& problem, std::span<const std::vector<Link>> ways,
                                        const GpuFacts& gpu);
/// The one with the smallest prediction; none if no tile fits.
[[nodiscard]] std::optional<Cut> best_cut(const Problem& problem, std::span<const std::vector<Link>> ways,
                                          const GpuFacts& gpu);

/// The amounts that the time of a run is predicted from, of the multiprocessor that has most of them.
using CostTerms = std::array<double, tuning::fused_wgmma_terms.size()>;
[[nodiscard]] CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu);

/// x as the copy engine sees it.
[[nodiscard]] TensorView x_view(const Problem& problem, const Shape& shape, const void* x);
/// The arguments of a launch. `weights` are packed as chain_parts() says.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                                     const void* weights);

/// The parts of the packed values: the weights of each link, one after the other.
[[nodiscard]] std::vector<ChainPart> chain_parts(const Problem& problem, std::span<const Link> links);
[[nodiscard]] PackedOrder packed_order(const Problem& problem, std::span<const Link> links);

/// An executor by this config, for programs that measure configs.
[[nodiscard]] std::unique_ptr<Executor> make_executor(const Problem& problem, Device device,
                                                      std::span<const Link> links, const Config& config);

}  // namespace kronsparse::cuda::fused_wgmma
