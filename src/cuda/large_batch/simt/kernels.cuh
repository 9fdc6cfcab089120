// The kernel `simt`: the tiles that are compiled, how a problem is cut for one of them, and the arguments of
// its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/host/product.hpp"
#include "cuda/large_batch/simt/grid.hpp"
#include "cuda/large_batch/simt/kernel.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::simt {

template <class K>
[[nodiscard]] Kernel kernel() {
  return kernel_of<K>(reinterpret_cast<const void*>(&multiply_simt<K>));
}

/// The tiles of f32, made for speed. A thread has 64 (48) sums. For every small d there is a tile as wide as
/// d, because rows of d floats are contiguous. Tiles of 6 columns per thread are there for b = 48, 96, 144,
/// ...
[[nodiscard]] inline std::span<const Kernel> f32_kernels() {
  static const Kernel kernels[] = {
      // d = 1: chunks of 16 l if registers allow, so that a sample's part of a chunk is 64 bytes.
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 8>, 16, true>>(),  // 128 x 128
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 8>, 8, true>>(),   // 256 x 64
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 6>, 16, true>>(),  // 128 x 96
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 6>, 8, true>>(),   // 256 x 48
      kernel<MultiplySimt<Tile<float, 2, 4, 1, 8, 8>, 16, true>>(),
      kernel<MultiplySimt<Tile<float, 2, 4, 1, 8, 6>, 16, true>>(),
      kernel<MultiplySimt<Tile<float, 3, 2, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 3, 2, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 4, 2, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 4, 2, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 6, 1, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 6, 1, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 8, 1, 1, 8, 8>, 8, true>>(),  // 32 x 64
      kernel<MultiplySimt<Tile<float, 8, 1, 1, 8, 6>, 8, true>>(),  // 32 x 48
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 8>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 8>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 6>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 6>, 16, false>>(),
  };
  return kernels;
}

/// The other dtypes: one tile for d = 1 and batch_last, one for larger d.
template <class Single, class Grouped>
[[nodiscard]] std::span<const Kernel> plain_kernels() {
  static const Kernel kernels[] = {
      kernel<MultiplySimt<Single, 8, true>>(),
      kernel<MultiplySimt<Grouped, 8, true>>(),
      kernel<MultiplySimt<Single, 8, false>>(),
  };
  return kernels;
}

/// The tiles of a problem, and the shared memory of a block.
struct Cut {
  std::int64_t groups = 1, inner_groups = 1, output_tiles = 1, sample_tiles = 1;
  int stages = 2;
  std::size_t shared_bytes = 0;

  [[nodiscard]] std::uint64_t tiles(const Product& p) const {
    return static_cast<std::uint64_t>(output_tiles) * groups * sample_tiles * p.a;
  }
};

[[nodiscard]] inline Cut cut_of(const Product& p, const Kernel& kernel, std::size_t weight_bytes,
                                const GpuFacts& facts) {
  Cut cut{.groups = tiles_of(p.d, kernel.j),
          .output_tiles = tiles_of(p.b, kernel.n),
          .sample_tiles = tiles_of(p.batch, kernel.m)};
  // As many groups of j run side by side as leave their weights in L2.
  const double group_bytes = static_cast<double>(weight_bytes) / static_cast<double>(p.a * cut.groups);
  const double room = std::max(0.4 * static_cast<double>(facts.l2_bytes), 1.0);
  if (kernel.batch_first)
    cut.inner_groups = std::clamp<std::int64_t>(static_cast<std::int64_t>(room / group_bytes), 1, cut.groups);
  while (cut.groups % cut.inner_groups != 0) --cut.inner_groups;

  cut.stages = kernel.depth * kernel.j <= 16 ? 4 : 3;
  const auto bytes = [&](int stages) {
    return target_bytes +
           std::max(static_cast<std::size_t>(stages) * kernel.stage_bytes, kernel.staging_bytes);
  };
  while (cut.stages > 2 && bytes(cut.stages) > facts.shared_bytes) --cut.stages;
  cut.shared_bytes = bytes(cut.stages);
  return cut;
}

[[nodiscard]] inline MultiplySimtArgs arguments_of(const Problem& problem, const Product& p,
                                                   const Kernel& kernel, const Cut& cut,
                                                   const Operands& operands, const void* weights) {
  const std::int64_t chunks = tiles_of(p.c, kernel.depth);
  MultiplySimtArgs args{.x = operands.x,
                        .y = operands.y,
                        .bias = problem.bias ? operands.bias : nullptr,
                        .weights = weights,
                        .batch = p.batch,
                        .b = p.b,
                        .c = p.c,
                        .d = p.d,
                        .x_sample = p.x_sample,
                        .x_feature = p.x_feature,
                        .y_sample = p.y_sample,
                        .y_feature = p.y_feature,
                        .x_step = p.d * p.x_feature,
                        .output_tiles = static_cast<std::uint32_t>(cut.output_tiles),
                        .inner_groups = static_cast<std::uint32_t>(cut.inner_groups),
                        .sample_tiles = static_cast<std::uint32_t>(cut.sample_tiles),
                        .outer_groups = static_cast<std::uint32_t>(cut.groups / cut.inner_groups),
                        .chunks = static_cast<int>(chunks),
                        .last_chunk = static_cast<int>(p.c - (chunks - 1) * kernel.depth),
                        .stages = cut.stages,
                        .activation = problem.activation};
  // Vectors of four: samples in batch_last; j in batch_first, or outputs if there is one j (neighbouring l
  // of x are then scattered one by one).
  const bool batch_first = kernel.batch_first;
  args.x_vectors = !batch_first && aligned_16(operands.x) && p.x_feature % 4 == 0;
  args.y_vectors = aligned_16(operands.y) && (batch_first ? p.y_sample : p.y_feature) % 4 == 0;
  if (batch_first && kernel.j == 1) args.y_vectors = args.y_vectors && p.d == 1 && p.b % 4 == 0;
  if (batch_first && kernel.j > 1) args.y_vectors = args.y_vectors && p.d % 4 == 0;
  return args;
}

}  // namespace kronsparse::cuda::simt
