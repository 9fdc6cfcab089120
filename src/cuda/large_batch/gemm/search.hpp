// The shapes of `gemm`, and the config that a problem gets. Host code only.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/large_batch/gemm/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

// Every shape has its own kernel. Sums take up to 128 registers: few outputs leave room for more samples.
inline constexpr std::array gemm_shapes = {
    GemmShape{.columns = true, .n = 256, .sample_boxes = 1, .round = 64},
    GemmShape{.columns = true, .n = 192, .sample_boxes = 1, .round = 64},
    GemmShape{.columns = true, .n = 128, .sample_boxes = 2, .round = 64},
    GemmShape{.columns = true, .n = 96, .sample_boxes = 2, .round = 48},
    GemmShape{.columns = true, .n = 64, .sample_boxes = 2, .round = 64},
    GemmShape{.columns = true, .n = 48, .sample_boxes = 2, .round = 48},
    GemmShape{.columns = true, .n = 32, .sample_boxes = 2, .round = 32},
    GemmShape{.columns = false, .n = 256, .sample_boxes = 1, .round = 64},
    GemmShape{.columns = false, .n = 192, .sample_boxes = 1, .round = 64},
    GemmShape{.columns = false, .n = 128, .sample_boxes = 2, .round = 64},
    GemmShape{.columns = false, .n = 64, .sample_boxes = 2, .round = 64},
};

/// How a problem is divided: all that a launch needs besides pointers.
struct GemmConfig {
  std::size_t shape_index = 0;
  GemmShape shape{};
  WgmmaOrder order{};
  int w_slots = 0;  ///< 0: weights are streamed
  int stages = 0;
  std::int64_t n_tiles = 1;
  std::int64_t passes = 1;
  std::int64_t team_blocks = 1;
  std::int64_t crew_teams = 1;
  std::int64_t crews = 1;

  int w_offset = 0;
  int stages_offset = 0;
  int out_offset = 0;
  int shared_bytes = 0;

  [[nodiscard]] std::int64_t units() const { return passes * order.a * order.d * n_tiles; }
  [[nodiscard]] int blocks() const { return static_cast<int>(crews * crew_teams * team_blocks); }
  /// Samples of a unit of work: of one warpgroup, or of both.
  [[nodiscard]] int unit_samples() const { return shape.samples() * (w_slots != 0 ? 1 : 2); }
};

[[nodiscard]] GemmConfig gemm_config(const Problem& problem, const GpuFacts& gpu);
/// The same for a product; its strides do not count.
[[nodiscard]] GemmConfig gemm_config(const Product& p, bool columns, const GpuFacts& gpu);
/// Which block computes which tiles, of so many samples: all of a config that depends on the batch.
void share_out(GemmConfig& config, std::int64_t batch, std::int64_t multiprocessors);

/// x and y as the copy engine sees them.
[[nodiscard]] TensorView gemm_x_view(const Problem& problem, const void* x);
[[nodiscard]] TensorView gemm_y_view(const Problem& problem, const GemmConfig& config, const void* y);

/// The arguments for the kernel of `config`. `weights` are packed in its order.
[[nodiscard]] GemmArguments gemm_arguments(const Problem& problem, const GemmConfig& config,
                                           const Operands& operands, const void* weights);

/// Seconds, by a cost model fitted to measurements.
[[nodiscard]] double gemm_seconds(const Problem& problem, const GemmConfig& config, const GpuFacts& gpu);

}  // namespace kronsparse::cuda
