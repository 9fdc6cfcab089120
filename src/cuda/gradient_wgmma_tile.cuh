// How the operands of the gradient reach Hopper's tensor cores (gradient_wgmma.cuh).
//
// For one (i, j) the gradient is G (outputs k x samples) by X (samples x inputs l), and wgmma takes both from
// shared memory, in rows along k and l, one for each sample, or in rows of samples. So where rows of memory
// are such rows, tensor copies bring them as they are:
//   rows       batch_first, d = 1: a row of k or l per sample.
//   columns    batch_last: a row of samples per k or l, one j.
//   sorted     batch_first, d = 2, 4, 8: a row of (l, j) per sample. One warpgroup sorts it by j: ldmatrix
//              transposes 8 units of 16 bytes, each some l by all j, into 8 rows of one j; stmatrix puts them
//              into the planes of their j. Nothing else is done by threads.
// In a plane, l are in the order in which they leave the sorting; so are the sums, which are put right last.
#pragma once

#include <cuda.h>

#include "cuda/gradient_store.cuh"
#include "cuda/ring.cuh"
#include "cuda/wgmma.cuh"

namespace kronsparse::cuda {

enum class GradientSource { rows, columns, sorted };

/// What a multiplying warpgroup computes; every shape is a kernel.
struct GradientWgmmaShape {
  GradientSource source;
  int block_j;   ///< neighbouring j of a block: all of d where they are sorted, else 1
  int products;  ///< j of a warpgroup: all of the block's, or half
  int n;         ///< inputs l; outputs are 64

  [[nodiscard]] constexpr bool is_sorted() const { return source == GradientSource::sorted; }
  /// Two warpgroups share the block's j, else its outputs.
  [[nodiscard]] constexpr bool splits_j() const { return products != block_j; }
  /// Few sums: several blocks share a multiprocessor.
  [[nodiscard]] constexpr bool is_light() const { return products * n <= 64; }
  [[nodiscard]] constexpr int tile_m(int warpgroups) const { return splits_j() ? 64 : 64 * warpgroups; }
  [[nodiscard]] constexpr int stage_samples() const { return is_sorted() ? 16 : 64; }
  /// Neighbouring l in a unit of 16 bytes.
  [[nodiscard]] constexpr int run() const { return is_sorted() ? 8 / block_j : 1; }

  /// From 8 rows of a plane to the next 8, for all samples: stmatrix writes 8 rows, of all j and
  /// neighbouring l, to different banks.
  [[nodiscard]] constexpr int unit_bytes() const {
    return stage_samples() * 16 + (block_j == 8 ? 0 : 16 * block_j);
  }
  [[nodiscard]] constexpr int plane_bytes(int rows) const {
    return (rows / 8 * unit_bytes() + 127) / 128 * 128 + 16;
  }
  /// Of an operand in a stage that wgmma reads, and in one that is still to be sorted.
  [[nodiscard]] constexpr int operand_bytes(int rows) const {
    return is_sorted() ? (block_j * plane_bytes(rows) + 127) / 128 * 128 : rows * 128;
  }
  [[nodiscard]] constexpr int raw_bytes(int rows) const {
    return is_sorted() ? rows * block_j * 2 * stage_samples() : 0;
  }

  /// The k or l at a place of a plane.
  [[nodiscard]] __host__ __device__ constexpr int row_at(int place) const {
    const int group = place / (8 * run()), rest = place % (8 * run());
    return group * 8 * run() + rest % 8 * run() + rest / 8;
  }
};

/// Elements of a row that one tensor copy brings, for all samples of a stage (or rows, of columns).
constexpr int kGradientBox = 64;
constexpr int kGradientSortingThreads = 128;

/// Everything a launch is told.
struct GradientWgmmaArguments {
  CUtensorMap g_map, x_map;
  GradientOutput out;
  std::int64_t batch;
  /// Tiles in the order in which they run, after the splits; then i.
  std::uint32_t l_tiles, k_tiles, j_groups;
  int split_samples;  ///< that a block of the cluster sums
  int warpgroups;     ///< that multiply
  int stages, raw_stages;
  bool overlaps;  ///< with the kernel before (see launch.hpp)
};

namespace gradient {

/// Where things lie in shared memory: stages to be sorted, stages, barriers.
template <class Traits>
class SharedStages {
 public:
  __device__ SharedStages(const GradientWgmmaArguments& p, std::uint32_t shared) : raw_(shared) {
    constexpr GradientWgmmaShape shape = Traits::shape;
    x_raw_ = shape.raw_bytes(p.out.tile_k);
    raw_bytes_ = x_raw_ + shape.raw_bytes(shape.n);
    x_offset_ = shape.operand_bytes(p.out.tile_k);
    bytes_ = x_offset_ + shape.operand_bytes(shape.n);
    stages_ = raw_ + p.raw_stages * raw_bytes_;
    barriers_ = stages_ + p.stages * bytes_;
  }

  [[nodiscard]] __device__ std::uint32_t g(int stage) const { return stages_ + stage * bytes_; }
  [[nodiscard]] __device__ std::uint32_t x(int stage) const { return g(stage) + x_offset_; }
  [[nodiscard]] __device__ std::uint32_t raw_g(int stage) const { return raw_ + stage * raw_bytes_; }
  [[nodiscard]] __device__ std::uint32_t raw_x(int stage) const { return raw_g(stage) + x_raw_; }
  [[nodiscard]] __device__ int bytes() const { return bytes_; }
  [[nodiscard]] __device__ int raw_bytes() const { return raw_bytes_; }

  [[nodiscard]] __device__ std::uint32_t full(int stage) const { return barriers_ + stage * 24; }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  [[nodiscard]] __device__ std::uint32_t raw_full(int stage) const { return full(stage) + 16; }

  __device__ void init(const GradientWgmmaArguments& p) const {
    for (int stage = 0; stage < max(p.stages, p.raw_stages); ++stage) {
      ptx::barrier_init(full(stage), 1);
      ptx::barrier_init(empty(stage), 4 * p.warpgroups);
      ptx::barrier_init(raw_full(stage), 1);
    }
    ptx::barrier_init_fence();
  }

 private:
  int raw_bytes_, bytes_, x_raw_, x_offset_;
  std::uint32_t raw_, stages_, barriers_;
};

__device__ inline Tile block_tile(const GradientWgmmaArguments& p) {
  std::uint32_t block = ptx::block_number();
  const auto take = [&block](std::uint32_t count) {
    const std::uint32_t digit = block % count;
    block /= count;
    return digit;
  };
  Tile tile{};
  tile.split = static_cast<int>(take(p.out.splits));
  tile.l0 = std::int64_t{take(p.l_tiles)} * p.out.tile_l;
  tile.k0 = std::int64_t{take(p.k_tiles)} * p.out.tile_k;
  tile.j0 = std::int64_t{take(p.j_groups)} * p.out.block_j;
  tile.i = block;
  tile.n0 = std::int64_t{static_cast<std::uint32_t>(tile.split)} * p.split_samples;
  tile.samples =
      static_cast<int>(max(std::int64_t{0}, min(p.batch - tile.n0, std::int64_t{p.split_samples})));
  return tile;
}

/// Asks for one operand of a stage. By one thread.
template <class Traits>
__device__ inline void request_operand(const CUtensorMap* map, const Tile& tile, std::int64_t first_row,
                                       int rows, int sample, std::uint32_t to, std::uint32_t barrier) {
  constexpr GradientWgmmaShape shape = Traits::shape;
  constexpr int box_bytes = kGradientBox * 2 * shape.stage_samples();
  const auto i = static_cast<int>(tile.i), first = static_cast<int>(first_row);
  for (int box = 0; box * kGradientBox < rows * shape.block_j; ++box)
    if constexpr (shape.source == GradientSource::columns)
      ptx::copy_box(to + box * box_bytes, map, sample, static_cast<int>(tile.j0), first + box * kGradientBox,
                    i, barrier);
    else
      ptx::copy_box(to + box * box_bytes, map, first * shape.block_j + box * kGradientBox, i, sample, 0,
                    barrier);
}

/// Asks for all of a stage.
template <class Traits>
__device__ inline void request_stage(const GradientWgmmaArguments& p, const Tile& tile, int step,
                                     std::uint32_t g, std::uint32_t x, std::uint32_t barrier, int bytes) {
  const int sample = static_cast<int>(tile.n0) + step * Traits::shape.stage_samples();
  ptx::barrier_arrive_expecting(barrier, bytes);
  request_operand<Traits>(&p.g_map, tile, tile.k0, p.out.tile_k, sample, g, barrier);
  request_operand<Traits>(&p.x_map, tile, tile.l0, Traits::shape.n, sample, x, barrier);
}

/// One operand of a stage, by its j: warp w takes samples 4w to 4w + 3, a matrix each.
template <class Traits>
__device__ inline void sort_operand(std::uint32_t from, std::uint32_t to, int rows) {
  constexpr GradientWgmmaShape shape = Traits::shape;
  constexpr int box_bytes = kGradientBox * 2 * shape.stage_samples();
  const int thread = static_cast<int>(threadIdx.x) % kGradientSortingThreads;
  const int sample = thread / 8, unit = thread % 8;  // of the copy, and of what it is transposed to:
  const int j = unit % shape.block_j, l = unit / shape.block_j;
  from += sample * 128 + ((unit ^ (sample % 8)) * 16);
  to += j * shape.plane_bytes(rows) + l * shape.unit_bytes() + sample * 16;
  // Several loads before their stores: a warp waits for the first of them only.
  const auto move = [&]<int count>(int box) {
    uint4 matrices[count];
#pragma unroll
    for (int at = 0; at < count; ++at)
      matrices[at] = ptx::load_matrices_transposed(from + (box + at) * box_bytes);
#pragma unroll
    for (int at = 0; at < count; ++at)
      ptx::store_matrices(to + (box + at) * (shape.run() * shape.unit_bytes()), matrices[at].x,
                          matrices[at].y, matrices[at].z, matrices[at].w);
  };
  const int boxes = rows * shape.block_j / kGradientBox;  // an even number
  int box = 0;
#pragma unroll 1
  for (; box + 4 <= boxes; box += 4) move.template operator()<4>(box);
  if (box < boxes) move.template operator()<2>(box);
}

}  // namespace gradient
}  // namespace kronsparse::cuda
