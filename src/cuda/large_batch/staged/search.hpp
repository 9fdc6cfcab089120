// The chunks of `staged`: samples that stay in L2 from step to step. Host code only.
#pragma once

#include <cstdint>

#include "cuda/large_batch/gemm/search.hpp"
#include "cuda/large_batch/staged/sort_by_j.cuh"

namespace kronsparse::cuda {

/// All samples are multiplied chunk by chunk, and each chunk in parts of `blocks_i` blocks i.
struct StagedConfig {
  std::int64_t chunk = 0;     ///< samples; the last chunk may have fewer. 0: not even one tile fits into L2
  std::int64_t blocks_i = 1;  ///< divides a
};

[[nodiscard]] StagedConfig staged_config(const Problem& problem, const GpuFacts& gpu);

/// Features of a product, sorted: whole runs.
[[nodiscard]] std::int64_t sorted_length(std::int64_t length);

/// The places of a sorted chunk and of the bias in the workspace. Those of x come first.
struct StagedScratch {
  std::int64_t y = 0;
  std::int64_t bias = 0;
  std::int64_t bytes = 0;
};
[[nodiscard]] StagedScratch staged_scratch(const Problem& problem, const StagedConfig& config);

/// The multiplication of a sorted chunk: every (i, j) is a block of its own.
[[nodiscard]] Problem staged_part(const Problem& problem, std::int64_t samples, std::int64_t blocks_i);

/// The order of weights that gemm reads for the products (i, j) of the whole problem, one after the other.
/// `gemm` is the config of any part of it.
[[nodiscard]] WgmmaOrder staged_order(const Problem& problem, const GemmConfig& gemm);

/// log2 of the number of eights of runs in a tile of sort_by_j.
[[nodiscard]] int sort_eights_log2(std::int64_t d);
/// The shared memory of a tile.
[[nodiscard]] std::size_t sort_shared_bytes(std::int64_t d);
/// A job for `samples` samples of `blocks_i` blocks of `length` features with all their j, without addresses.
[[nodiscard]] SortJob sort_job(std::int64_t samples, std::int64_t blocks_i, std::int64_t length,
                               std::int64_t d);

/// Seconds of all chunks, by a cost model fitted to measurements.
[[nodiscard]] double staged_seconds(const Problem& problem, const StagedConfig& config, const GpuFacts& gpu);

}  // namespace kronsparse::cuda
