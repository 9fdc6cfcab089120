// Tiles of the tensor-core gradient: those there are, and which of them a problem gets. Host code only.
#pragma once

#include <array>
#include <cstddef>

#include "cuda/gradient_tile.cuh"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

// Sums take 64 of the 168 registers of a thread that is one of 384: larger tiles read less of shared
// memory, but 8 warps do not hide how long it takes them. Vectors of 8 j are the widest loads there are;
// where the j of a row are fewer, shorter ones are as free of conflicts and leave room for more rows.
inline constexpr std::array gradient_shapes = {
    GradientShape{.form = GradientForm::runs, .vector = 8, .row_j = 16, .m = 16, .n = 16},  // 8 | d >= 16
    GradientShape{.form = GradientForm::runs, .vector = 8, .row_j = 0, .m = 16, .n = 16},   // d = 8, 24
    GradientShape{.form = GradientForm::runs, .vector = 4, .row_j = 4, .m = 32, .n = 16},   // d = 4
    GradientShape{.form = GradientForm::runs, .vector = 4, .row_j = 0, .m = 32, .n = 16},   // other 4 | d
    GradientShape{.form = GradientForm::runs, .vector = 2, .row_j = 2, .m = 32, .n = 32},   // d = 2
    GradientShape{.form = GradientForm::runs, .vector = 2, .row_j = 0, .m = 32, .n = 32},   // other even d
    GradientShape{.form = GradientForm::runs, .vector = 1, .row_j = 0, .m = 64, .n = 32},   // d = 3, 5, 7
    GradientShape{.form = GradientForm::rows, .vector = 1, .row_j = 1, .m = 64, .n = 32},
    GradientShape{.form = GradientForm::columns, .vector = 1, .row_j = 1, .m = 64, .n = 32},
};

/// Of odd d in batch_first: each of the j has a warp of its own.
inline constexpr std::int64_t kGradientMaxOddJ = 7;
/// Samples that a block adds up. Tensor cores truncate; simulated, that costs a sum of so many normal or
/// positive terms half of what rounding it to f16 does (a fifth after 25,088).
inline constexpr std::int64_t kGradientMaxSum = 65536;

/// How a problem is cut up; all that a launch needs besides pointers.
struct GradientConfig {
  std::size_t shape_index = 0;
  GradientShape shape{};
  int block_j = 1;
  int warps_j = 1, warps_m = 1, warps_n = 1;
  int stage_samples = 16, stages = 3;
  int splits = 1;  ///< blocks of a cluster that share the batch
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

/// The cheapest way; one whose shared memory does not fit if there is none.
[[nodiscard]] GradientConfig gradient_config(const Problem& problem, const GpuFacts& gpu);

/// What the kernel of `config` is launched with.
[[nodiscard]] GradientArguments gradient_arguments(const Problem& problem, const GradientConfig& config,
                                                   const Operands& operands);

/// Seconds, by the cost model: the slowest of memory, L2, shared memory and tensor cores.
[[nodiscard]] double gradient_seconds(const Problem& problem, const GradientConfig& config,
                                      const GpuFacts& gpu);

}  // namespace kronsparse::cuda
