// The shapes of `gradient-mma`, and the config that a problem gets. Host code only.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/gradient/mma/tiles.cuh"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

// Large tiles read less from shared memory and L2; many warps hide the latency better. On an H200, in f16, 8
// warps with 128 sums per lane beat 12 with 64 for vectors of 8 j (8x128x128x16: 1.48 against 3.34 ms), of 2
// j (64x64x256x2: 0.85, 1.08) and of 4 j if b and c are large (1x1024x1024x4: 1.85, 2.69). 12 warps are
// better for other vectors of 4 (48x64x64x4: 0.96, 0.76) and for d = 1 (64x48x48x1: 0.58, 0.22). Vectors of 8
// j are the widest loads there are. If a row has fewer j, shorter vectors are as free of conflicts and leave
// room for more rows.
inline constexpr std::array<GradientShape, 10> gradient_shapes = {{
    // form, vector, row_j, m, n, threads, least block; the first that fits is taken
    {GradientForm::runs, 8, 16, 16, 32, 256},      // 8 | d >= 16
    {GradientForm::runs, 8, 0, 16, 32, 256},       // d = 8, 24
    {GradientForm::runs, 4, 4, 32, 32, 256, 512},  // d = 4, large blocks
    {GradientForm::runs, 4, 4, 32, 16, 384},       // d = 4
    {GradientForm::runs, 4, 0, 32, 16, 384},       // other 4 | d
    {GradientForm::runs, 2, 2, 64, 32, 256},       // d = 2
    {GradientForm::runs, 2, 0, 64, 32, 256},       // other even d
    {GradientForm::runs, 1, 0, 64, 64, 256},       // d = 3, 5, 7
    {GradientForm::rows, 1, 1, 64, 32, 384},
    {GradientForm::columns, 1, 1, 64, 32, 384},
}};

/// The largest odd d in batch_first: each j has a warp of its own.
inline constexpr std::int64_t kGradientMaxOddJ = 7;
/// Samples that a block adds up at most. Tensor cores truncate. Simulated, truncation costs a sum of this
/// many normal or positive terms half of what rounding it to f16 does (a fifth after 25,088).
inline constexpr std::int64_t kGradientMaxSum = 65536;

/// How a problem is divided: all that a launch needs besides pointers.
struct GradientConfig {
  std::size_t shape_index = 0;
  GradientShape shape{};
  int block_j = 1;
  int warps_j = 1, warps_m = 1, warps_n = 1;
  int stage_samples = 16, stages = 3;
  int splits = 1;  ///< blocks of a cluster that split the batch
  std::int64_t j_groups = 1, k_tiles = 1, l_tiles = 1;
  std::int64_t split_samples = 0;

  int g_pitch = 0, x_pitch = 0;
  int x_offset = 0, stage_bytes = 0;
  int out_pitch = 0;
  int shared_bytes = 0;

  [[nodiscard]] int threads() const { return 32 * warps_j * warps_m * warps_n; }
  [[nodiscard]] int tile_m() const { return warps_m * shape.m; }
  [[nodiscard]] int tile_n() const { return warps_n * shape.n; }

  [[nodiscard]] std::int64_t blocks(std::int64_t a) const {
    return a * j_groups * k_tiles * l_tiles * splits;
  }
};

/// The most blocks of a cluster: 8 on GPUs that have clusters, 16 on whole GPUs of the large kinds, if asked
/// for.
[[nodiscard]] int largest_cluster(const GpuFacts& gpu);
/// Clusters that a GPU runs at once if `weights-stay` blocks share a multiprocessor. Each cluster stays
/// inside a part of the GPU.
[[nodiscard]] double clusters_at_once(const GpuFacts& gpu, int resident, int cluster_blocks);

/// The shared memory of a config that was not found.
inline constexpr int kNoGradientConfig = 1 << 30;
/// The cheapest config; one with kNoGradientConfig if the GPU has room for none.
[[nodiscard]] GradientConfig gradient_config(const Problem& problem, const GpuFacts& gpu);

/// The arguments for the kernel of `config`.
[[nodiscard]] GradientArguments gradient_arguments(const Problem& problem, const GradientConfig& config,
                                                   const Operands& operands);

/// Seconds, by the cost model: the slowest of memory, L2, shared memory and tensor cores.
[[nodiscard]] double gradient_seconds(const Problem& problem, const GradientConfig& config,
                                      const GpuFacts& gpu);

}  // namespace kronsparse::cuda
