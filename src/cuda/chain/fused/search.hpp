// The config of `fused` for a chain: how it is cut into tiles and divided among blocks. Host code only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/implementation.hpp"
#include "cuda/chain/fused/tiles.cuh"
#include "cuda/chain/links.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/chain.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::fused {

struct Config {
  std::size_t shape_index = 0;
  Shape shape{};
  int threads = most_threads;
  int blocks_at_once = 1;  ///< on a multiprocessor
  int shared_bytes = 0;
  Arguments arguments{};  ///< without addresses and strides
  double seconds = 0;     ///< predicted

  [[nodiscard]] int ranks() const { return arguments.ranks; }
};

/// Every config that the GPU can hold, in no order.
[[nodiscard]] std::vector<Config> all_configs(const Problem& problem, std::span<const Link> links,
                                              const GpuFacts& gpu);
/// The config with the smallest prediction; none if no tile fits.
[[nodiscard]] std::optional<Config> best_config(const Problem& problem, std::span<const Link> links,
                                                const GpuFacts& gpu);
/// A way with its config.
struct Cut {
  std::vector<Link> links;
  Config config;
};
/// The first of the ways that has a config.
[[nodiscard]] std::optional<Cut> best_cut(const Problem& problem, std::span<const std::vector<Link>> ways,
                                          const GpuFacts& gpu);
/// The clusters (or blocks, if each computes for itself) that run at the same time.
[[nodiscard]] int clusters_at_once(const Config& config, const GpuFacts& gpu);

/// The amounts that the time of a run is predicted from: products, loads, stores and so on, of the
/// multiprocessor that has most of them.
using CostTerms = std::array<double, tuning::fused_terms.size()>;
[[nodiscard]] CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu);

/// The arguments of a launch. `weights` are packed as chain_parts() says.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                                     const void* weights);

/// The parts of the packed values: the weights of each link, one after the other.
[[nodiscard]] std::vector<ChainPart> chain_parts(const Problem& problem, std::span<const Link> links);
[[nodiscard]] PackedOrder packed_order(const Problem& problem, std::span<const Link> links);

/// An executor by this config, for programs that measure configs.
[[nodiscard]] std::unique_ptr<Executor> make_executor(const Problem& problem, Device device,
                                                      std::span<const Link> links, const Config& config);

}  // namespace kronsparse::cuda::fused
