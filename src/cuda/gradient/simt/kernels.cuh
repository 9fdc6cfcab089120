// The kernel `gradient-simt`: the tiles that are compiled, how a problem is cut for one of them, and the
// arguments of its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/gradient/simt/kernel.cuh"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/simt/grid.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::simt::gradient {

/// Samples after which single-precision sums are added to the totals. Rounding errors then grow with the
/// square root of this, not of the batch.
inline constexpr int flush_samples = 512;
static_assert((flush_samples & (flush_samples - 1)) == 0);
/// Blocks of a cluster that every Hopper GPU can run.
inline constexpr std::uint32_t most_splits = 8;
/// A block's part of the batch is at least this long.
inline constexpr std::int64_t least_samples = 128;

/// And what gradients need beside it.
struct GradientKernel : Kernel {
  int blocks;  ///< on a multiprocessor
  std::size_t totals_bytes;
};

template <class K>
[[nodiscard]] GradientKernel kernel() {
  return {kernel_of<K>(reinterpret_cast<const void*>(&gradient_simt<K>)), K::blocks, K::totals_bytes};
}

/// f32: a large tile and one for b and c up to 64, and for d > 1 tiles of 2, 4 and 8 neighbouring j. Chunks
/// are short if J is large: the totals take up to 64 KB, and two blocks share a multiprocessor.
[[nodiscard]] inline std::span<const GradientKernel> f32_kernels() {
  static const GradientKernel kernels[] = {
      kernel<GradientSimt<Tile<float, 1, 4, 2, 8, 8>, 16, true>>(),  // 128 x 128
      kernel<GradientSimt<Tile<float, 1, 2, 2, 8, 4>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 2, 2, 1, 8, 8>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 4, 2, 1, 8, 8>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 8, 1, 1, 8, 8>, 4, true>>(),   // 32 x 64
      kernel<GradientSimt<Tile<float, 1, 4, 2, 8, 8>, 16, false>>(),
      kernel<GradientSimt<Tile<float, 1, 2, 2, 8, 4>, 8, false>>(),
  };
  return kernels;
}

/// The other dtypes: one tile for d = 1 and batch_last, one for larger d.
template <class Single, class Grouped>
[[nodiscard]] std::span<const GradientKernel> plain_kernels() {
  static const GradientKernel kernels[] = {
      kernel<GradientSimt<Single, 8, true>>(),
      kernel<GradientSimt<Grouped, 4, true>>(),
      kernel<GradientSimt<Single, 8, false>>(),
  };
  return kernels;
}

[[nodiscard]] inline double tile_count(const GradientKernel& kernel, const Product& p) {
  return static_cast<double>(p.a) * static_cast<double>(tiles_of(p.b, kernel.m)) *
         static_cast<double>(tiles_of(p.c, kernel.n)) * static_cast<double>(tiles_of(p.d, kernel.j));
}

/// Parts of the batch: the power of two that fills the GPU, as far as possible.
[[nodiscard]] inline std::uint32_t splits_of(const GradientKernel& kernel, const Product& p,
                                             const GpuFacts& facts) {
  if (!facts.has_clusters()) return 1;
  const double slots = static_cast<double>(kernel.blocks) * facts.multiprocessors;
  std::uint32_t splits = 1;
  while (splits < most_splits && tile_count(kernel, p) * splits * 2 <= slots &&
         p.batch / (splits * 2) >= least_samples)
    splits *= 2;
  return splits;
}

/// The tiles of a problem, the parts of its batch, and the shared memory of a block.
struct Cut {
  std::int64_t l_tiles = 1, k_tiles = 1, groups = 1;
  std::uint32_t splits = 1;
  int stages = 2, flush_mask = -1;
  std::size_t totals_at = 0, shared_bytes = 0;

  [[nodiscard]] std::uint64_t tiles(const Product& p) const {
    return static_cast<std::uint64_t>(p.a * groups) * static_cast<std::uint64_t>(k_tiles * l_tiles) * splits;
  }
};

[[nodiscard]] inline Cut cut_of(const Product& p, const GradientKernel& kernel, const GpuFacts& facts) {
  Cut cut{.l_tiles = tiles_of(p.c, kernel.n),
          .k_tiles = tiles_of(p.b, kernel.m),
          .groups = tiles_of(p.d, kernel.j),
          .splits = splits_of(kernel, p, facts)};
  // Two buffers hide the latency if a chunk is 8 or 16 deep; three do if it is shorter.
  cut.stages = kernel.depth >= 8 ? 2 : 3;
  const std::size_t pipeline = static_cast<std::size_t>(cut.stages) * kernel.stage_bytes;
  cut.totals_at = target_bytes + std::max(pipeline, kernel.staging_bytes);
  // A GPU with too little shared memory (sm_75) goes without totals.
  const bool totals = kernel.totals_bytes != 0 && cut.totals_at + kernel.totals_bytes <= facts.shared_bytes;
  cut.flush_mask = totals ? flush_samples / kernel.depth - 1 : -1;
  cut.shared_bytes = cut.totals_at + (totals ? kernel.totals_bytes : 0);
  return cut;
}

[[nodiscard]] inline GradientSimtArgs arguments_of(const Product& p, const GradientKernel& kernel,
                                                   const Cut& cut, const Operands& operands) {
  GradientSimtArgs args{.g = operands.g,
                        .x = operands.x,
                        .y = operands.y,
                        .batch = p.batch,
                        .b = p.b,
                        .c = p.c,
                        .d = p.d,
                        .x_sample = p.x_sample,
                        .x_feature = p.x_feature,
                        .g_sample = p.y_sample,
                        .g_feature = p.y_feature,
                        .x_row = p.d * p.x_feature,
                        .g_row = p.d * p.y_feature,
                        .splits = cut.splits,
                        .l_tiles = static_cast<std::uint32_t>(cut.l_tiles),
                        .k_tiles = static_cast<std::uint32_t>(cut.k_tiles),
                        .groups = static_cast<std::uint32_t>(cut.groups),
                        .chunks = static_cast<int>(tiles_of(tiles_of(p.batch, kernel.depth), cut.splits)),
                        .flush_mask = cut.flush_mask,
                        .stages = cut.stages,
                        .totals_at = static_cast<int>(cut.totals_at)};
  // Vectors of four: outputs or inputs of a sample if there is one j; for y also j.
  const bool alone = kernel.batch_first && p.d == 1;
  args.g_vectors = alone && aligned_16(operands.g) && p.y_sample % 4 == 0 && p.b % 4 == 0;
  args.x_vectors = alone && aligned_16(operands.x) && p.x_sample % 4 == 0 && p.c % 4 == 0;
  args.y_vectors = aligned_16(operands.y) &&
                   (kernel.j == 1 ? p.d == 1 && p.c % 4 == 0 : kernel.j % 4 == 0 && p.d % 4 == 0);
  return args;
}

}  // namespace kronsparse::cuda::simt::gradient
