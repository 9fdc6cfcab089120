// The shapes of `gradient-wgmma`, and the config that a problem gets. Host code only.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "cuda/gradient/wgmma/tiles.cuh"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_map.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

// Large tiles read less from L2; a thread has room for 192 sums.
inline constexpr std::array<GradientWgmmaShape, 16> gradient_wgmma_shapes = {{
    // source, j of a block and of a warpgroup, inputs l
    {GradientSource::sorted, 16, 8, 32},
    {GradientSource::sorted, 16, 8, 48},
    {GradientSource::sorted, 8, 4, 64},
    {GradientSource::sorted, 8, 4, 96},
    {GradientSource::sorted, 4, 4, 96},
    {GradientSource::sorted, 4, 2, 64},
    {GradientSource::sorted, 4, 2, 128},
    {GradientSource::sorted, 4, 2, 192},
    {GradientSource::sorted, 2, 2, 128},
    {GradientSource::sorted, 2, 1, 256},
    {GradientSource::rows, 1, 1, 64},
    {GradientSource::rows, 1, 1, 128},
    {GradientSource::rows, 1, 1, 256},
    {GradientSource::columns, 1, 1, 64},
    {GradientSource::columns, 1, 1, 128},
    {GradientSource::columns, 1, 1, 256},
}};

/// How a problem is divided: all that a launch needs besides pointers.
struct GradientWgmmaConfig {
  std::size_t shape_index = 0;
  int warpgroups = 1;  ///< warpgroups that multiply
  int stages = 0, raw_stages = 0;
  int splits = 1;  ///< blocks of a cluster that split the batch
  std::int64_t j_groups = 1, k_tiles = 1, l_tiles = 1;
  std::int64_t split_samples = 0;
  int shared_bytes = 0;
  double seconds = 0;  ///< predicted: the slowest of memory, L2, shared memory and tensor cores

  [[nodiscard]] const GradientWgmmaShape& shape() const { return gradient_wgmma_shapes[shape_index]; }
  [[nodiscard]] int threads() const { return 128 * warpgroups + kGradientSortingThreads; }
  [[nodiscard]] int tile_m() const { return shape().tile_m(warpgroups); }
  [[nodiscard]] int out_pitch() const { return shape().n * shape().block_j * 4 + 16; }
  [[nodiscard]] std::int64_t blocks(std::int64_t a) const {
    return a * j_groups * k_tiles * l_tiles * splits;
  }
};

/// The cheapest config of each shape that can take the problem: d must be 1, 2, 4, 8 or a multiple of 16 in
/// batch_first, and the copy engine must take the strides.
[[nodiscard]] std::vector<GradientWgmmaConfig> gradient_wgmma_configs(const Problem& problem,
                                                                      const GpuFacts& gpu);
/// The cheapest of these, if there is any.
[[nodiscard]] std::optional<GradientWgmmaConfig> gradient_wgmma_config(const Problem& problem,
                                                                       const GpuFacts& gpu);

/// The arguments for the kernel of `config`; none if the copy engine does not take the addresses.
[[nodiscard]] std::optional<GradientWgmmaArguments> gradient_wgmma_arguments(
    const Problem& problem, const GradientWgmmaConfig& config, const Operands& operands);

}  // namespace kronsparse::cuda
