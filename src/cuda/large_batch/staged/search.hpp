// How the staged product goes through a problem: in chunks of samples that stay in L2 from step to step. Host
// code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/large_batch/gemm/search.hpp"
#include "cuda/large_batch/staged/sort_by_j.cuh"

namespace kronsparse::cuda {

/// Samples that are multiplied with later rows of y as the memory in between: chunk by chunk, and each of the
/// chunks in parts of `blocks_i` blocks i.
struct StagedLevel {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t chunk = 0;     ///< samples, fewer in the last
  std::int64_t blocks_i = 1;  ///< divides a
};

/// The levels, one after the other, and the samples that are left: another kernel's.
struct StagedConfig {
  std::vector<StagedLevel> levels;
  std::int64_t rest_first = 0;
};

[[nodiscard]] StagedConfig staged_config(const Problem& problem, const GpuFacts& gpu);

/// Where a level's chunks, sorted, and the bias lie: bytes from the row behind its last, at a multiple of
/// kScratchAlignment.
struct StagedScratch {
  std::int64_t y = 0;
  std::int64_t bias = 0;
  std::int64_t bytes = 0;
};
inline constexpr std::int64_t kScratchAlignment = 128;
[[nodiscard]] StagedScratch staged_scratch(const Problem& problem, const StagedLevel& level);

/// The multiplication of a chunk, sorted by j: every (i, j) is a block of its own.
[[nodiscard]] Problem staged_part(const Problem& problem, std::int64_t samples, std::int64_t blocks_i);
/// The problem of the samples that are left.
[[nodiscard]] Problem staged_rest(const Problem& problem, const StagedConfig& config);

/// Weights as gemm reads them for the products (i, j) of a whole problem, one after the other; `gemm` is how
/// any part of it is cut up.
[[nodiscard]] WgmmaOrder staged_order(const Problem& problem, const GemmConfig& gemm);

/// A tile of sort_by_j has 8 runs times two to the power of this.
[[nodiscard]] int sort_eights_log2(std::int64_t d);
/// Its shared memory.
[[nodiscard]] std::size_t sort_shared_bytes(std::int64_t d);
/// A job for `samples` samples of `blocks_i` blocks of `length` features with all their j; addresses are
/// missing.
[[nodiscard]] SortJob sort_job(std::int64_t samples, std::int64_t blocks_i, std::int64_t length,
                               std::int64_t d);

/// Seconds of all levels, by a cost model fitted to measurements.
[[nodiscard]] double staged_seconds(const Problem& problem, const StagedConfig& config, const GpuFacts& gpu);

}  // namespace kronsparse::cuda
