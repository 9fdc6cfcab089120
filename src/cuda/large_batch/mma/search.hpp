// The config of `mma` that a problem gets. Host code only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/mma/loads.cuh"

namespace kronsparse::cuda {

/// How a problem is divided: all that a launch needs besides pointers.
struct MmaConfig {
  Arithmetic arithmetic = Arithmetic::f16;
  XForm form = XForm::planes;
  int warp_k = 64;
  int warp_n = 32;
  int words = 1;  ///< words of j in a block
  int warps_k = 1;
  int warps_n = 1;
  int sub_chunks = 1;
  bool resident = false;  ///< the weights of a group stay in shared memory
  WeightOrder order{};

  int plane_bytes = 0;
  int x_stage_bytes = 0;
  int w_stage_bytes = 0;
  int out_pitch = 0;
  int out_bytes = 0;
  int shared_bytes = 0;

  [[nodiscard]] int threads() const noexcept { return 32 * words * warps_k * warps_n; }
  [[nodiscard]] int tile_n() const noexcept { return warps_n * warp_n; }
};

[[nodiscard]] MmaConfig mma_config(const Problem& problem, const GpuFacts& gpu);

/// Seconds, by the cost model: the slowest of memory, L2 and tensor cores.
[[nodiscard]] double mma_seconds(const Problem& problem, const MmaConfig& config, const GpuFacts& gpu);

}  // namespace kronsparse::cuda
