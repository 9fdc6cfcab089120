// The config of `mma` for a problem: how it is cut into tiles. Host code only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/implementation.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/mma/tiles.cuh"
#include "cuda/large_batch/mma/weights.cuh"
#include "cuda/tuning/large_batch.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::mma {

struct Config {
  std::size_t shape_index = 0;
  Shape shape{};
  FragmentOrder order{};
  int threads = most_threads;
  int blocks_at_once = 1;  ///< on a multiprocessor
  int shared_bytes = 0;
  std::int64_t tiles = 1;
  Arguments arguments{};  ///< without addresses, and without what depends on them
  double seconds = 0;     ///< predicted
};

[[nodiscard]] FragmentOrder order_of(const Problem& problem);
/// Every config that the search looks at, in no order.
[[nodiscard]] std::vector<Config> all_configs(const Problem& problem, const GpuFacts& gpu);
/// The config with the smallest prediction; none if no tile fits.
[[nodiscard]] std::optional<Config> best_config(const Problem& problem, const GpuFacts& gpu);

/// Seconds that no config takes less than.
[[nodiscard]] double least_seconds(const Problem& problem, const GpuFacts& gpu);

/// The amounts that the time of a run is predicted from: loads, products, stores and so on, of the
/// multiprocessor that has most of them.
using CostTerms = std::array<double, tuning::mma_terms.size()>;
[[nodiscard]] CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu);

/// The arguments of a launch. `weights` are packed in the config's order.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                                     const void* weights);

/// An executor by this config, for programs that measure configs.
[[nodiscard]] std::unique_ptr<Executor> make_executor(const Problem& problem, Device device,
                                                      const Config& config);

}  // namespace kronsparse::cuda::mma
