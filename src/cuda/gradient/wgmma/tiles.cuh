// The path of the operands to the kernel `gradient-wgmma` (kernel.cuh).
//
// For one (i, j) the gradient is G (outputs k x samples) by X (samples x inputs l). wgmma takes both from
// shared memory: as rows along k and l, one for each sample, or as rows of samples. If rows of memory are
// such rows, tensor copies bring them as they are:
//   rows       batch_first, d = 1: a row of k or l for each sample.
//   columns    batch_last: a row of samples for each k or l, one j.
//   sorted     batch_first, d = 2, 4, 8: a row of (l, j) for each sample; d = 16, 32, ...: rows of 16 j. One
//              warpgroup sorts it by j: ldmatrix transposes 8 units of 16 bytes, each some l by up to 8 j,
//              into 8 rows of one j; stmatrix puts them into the planes of their j. Threads do nothing else.
// In a plane, l are in the order in which they leave the sorting. The sums have the same order, and are put
// right last.
#pragma once

#include <cuda.h>

#include "cuda/device/ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/gradient/store.cuh"

namespace kronsparse::cuda {

enum class GradientSource { rows, columns, sorted };

/// The work of a warpgroup that multiplies. Every shape has its own kernel.
struct GradientWgmmaShape {
  GradientSource source;
  int block_j;   ///< neighbouring j of a block: all of d or 16 if they are sorted, else 1
  int products;  ///< j of a warpgroup: all of the block's, or half
  int n;         ///< inputs l; outputs are 64

  [[nodiscard]] constexpr bool is_sorted() const { return source == GradientSource::sorted; }
  /// Whether two warpgroups share out the block's j; else its outputs.
  [[nodiscard]] constexpr bool splits_j() const { return products != block_j; }
  /// Few sums: several blocks share a multiprocessor.
  [[nodiscard]] constexpr bool is_light() const { return products * n <= 64; }
  [[nodiscard]] constexpr int tile_m(int warpgroups) const { return splits_j() ? 64 : 64 * warpgroups; }
  [[nodiscard]] constexpr int stage_samples() const { return is_sorted() ? 16 : 64; }
  /// Neighbouring l in a unit of 16 bytes.
  [[nodiscard]] constexpr int run() const { return is_sorted() && block_j < 8 ? 8 / block_j : 1; }
  /// Units of 16 bytes that the j of one l fill.
  [[nodiscard]] constexpr int octets() const { return block_j < 8 ? 1 : block_j / 8; }

  /// Bytes from 8 rows of a plane to the next 8, for all samples. stmatrix then writes 8 rows, of all j and
  /// neighbouring l, to different banks.
  [[nodiscard]] constexpr int unit_bytes() const {
    return stage_samples() * 16 + (block_j < 8 ? 16 * block_j : 0);
  }
  [[nodiscard]] constexpr int plane_bytes(int rows) const {
    return (rows / 8 * unit_bytes() + 127) / 128 * 128 + 16;
  }
  /// Bytes of an operand in a stage that wgmma reads, and in one that is still to be sorted.
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

/// Elements of a row that one tensor copy brings, for all samples of a stage (columns: for all rows). If the
/// block has 16 of more j, one copy brings all rows.
constexpr int kGradientBox = 64;
constexpr int kGradientSortingThreads = 128;

/// The arguments of a launch.
struct GradientWgmmaArguments {
  CUtensorMap g_map, x_map;
  GradientOutput out;
  GradientTiles tiles;
  int warpgroups;  ///< warpgroups that multiply
  int stages, raw_stages;
  bool overlaps;  ///< whether it overlaps the kernel before (launch.hpp)
};

namespace gradient {

/// The arrangement of shared memory: stages to be sorted, stages, barriers.
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

  [[nodiscard]] __device__ std::uint32_t full(int stage) const { return barriers_ + stage * 24; }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
  [[nodiscard]] __device__ std::uint32_t raw_full(int stage) const { return full(stage) + 16; }

  __device__ void init(const GradientWgmmaArguments& p) const {
    for (int stage = 0; stage < max(p.stages, p.raw_stages); ++stage) {
      ptx::barrier_init(full(stage), 1);
      ptx::barrier_init(empty(stage), 4 * p.warpgroups);
      ptx::barrier_init(raw_full(stage), kGradientSortingThreads / 32);
    }
    ptx::barrier_init_fence();
  }

 private:
  int raw_bytes_, bytes_, x_raw_, x_offset_;
  std::uint32_t raw_, stages_, barriers_;
};

/// The copies that bring an operand of a stage. Each request takes its thread some time, so several threads
/// may share them: `part` makes every `of`-th request.
template <class Traits>
struct OperandCopies {
  static constexpr GradientWgmmaShape shape = Traits::shape;
  static constexpr bool in_one = shape.octets() > 1;
  int rows, part, of;

  /// Bytes of all that this part requests.
  [[nodiscard]] __device__ int bytes() const {
    constexpr GradientWgmmaShape mine = shape;
    if constexpr (in_one) return part == 0 ? mine.raw_bytes(rows) : 0;
    return (rows * mine.block_j / kGradientBox - part + of - 1) / of * box_bytes;
  }

  __device__ void request(const CUtensorMap* map, const Tile& tile, std::int64_t first_row, int sample,
                          std::uint32_t to, std::uint32_t barrier) const {
    constexpr GradientWgmmaShape mine = shape;
    const auto i = static_cast<int>(tile.i), j = static_cast<int>(tile.j0);
    const auto first = static_cast<int>(first_row);
    if constexpr (in_one) {
      if (part == 0) ptx::copy_box(to, map, j, first, i, sample, barrier);
    } else {
      for (int box = part; box * kGradientBox < rows * mine.block_j; box += of)
        if constexpr (mine.source == GradientSource::columns)
          ptx::copy_box(to + box * box_bytes, map, sample, j, first + box * kGradientBox, i, barrier);
        else
          ptx::copy_box(to + box * box_bytes, map, first * mine.block_j + box * kGradientBox, i, sample, 0,
                        barrier);
    }
  }

 private:
  static constexpr int box_bytes = kGradientBox * 2 * shape.stage_samples();
};

/// Requests a stage, or a part of it. Called by one thread.
template <class Traits>
__device__ inline void request_stage(const GradientWgmmaArguments& p, const Tile& tile, int step,
                                     std::uint32_t g, std::uint32_t x, std::uint32_t barrier, int part = 0,
                                     int of = 1) {
  const int sample = static_cast<int>(tile.n0) + step * Traits::shape.stage_samples();
  const OperandCopies<Traits> g_copies{p.out.tile_k, part, of}, x_copies{Traits::shape.n, part, of};
  ptx::barrier_arrive_expecting(barrier, g_copies.bytes() + x_copies.bytes());
  g_copies.request(&p.g_map, tile, tile.k0, sample, g, barrier);
  x_copies.request(&p.x_map, tile, tile.l0, sample, x, barrier);
}

/// Sorts one operand of a stage by j. Warp w takes samples 4w to 4w + 3, a matrix each.
template <class Traits>
__device__ inline void sort_operand(std::uint32_t from, std::uint32_t to, int rows) {
  constexpr GradientWgmmaShape shape = Traits::shape;
  const int thread = static_cast<int>(threadIdx.x) % kGradientSortingThreads;
  const int sample = thread / 8, unit = thread % 8;  // place of the lane's row: in the loaded matrix, and in
                                                     // its transpose
  const int plane = shape.plane_bytes(rows);
  to += sample * 16;
  if constexpr (Traits::shape.octets() == 1) {
    from += sample * 128 + ((unit ^ (sample % 8)) * 16);  // as the copy engine swizzles
    to += unit % shape.block_j * plane + unit / shape.block_j * shape.unit_bytes();
  } else {
    from += (sample * rows + unit) * shape.block_j * 2;
    to += unit * plane;
  }
  // Matrix `at` of a sample: 8 units of neighbouring l, and of one octet of j.
  constexpr int octets = shape.octets();
  constexpr int next_octet = 16,
                next_rows = octets == 1 ? kGradientBox * 2 * shape.stage_samples() : 8 * shape.block_j * 2;
  const auto source = [&](int at) { return from + at / octets * next_rows + at % octets * next_octet; };
  const auto target = [&](int at) {
    return to + at / octets * (shape.run() * shape.unit_bytes()) + at % octets * (8 * plane);
  };
  // Several loads come before their stores, so that a warp waits for the first of them only.
  const auto move = [&]<int count>(int first) {
    uint4 matrices[count];
#pragma unroll
    for (int at = 0; at < count; ++at) matrices[at] = ptx::load_matrices_transposed(source(first + at));
#pragma unroll
    for (int at = 0; at < count; ++at)
      ptx::store_matrices(target(first + at), matrices[at].x, matrices[at].y, matrices[at].z, matrices[at].w);
  };
  const int count = rows * shape.block_j / kGradientBox;  // an even number
  int at = 0;
#pragma unroll 1
  for (; at + 4 <= count; at += 4) move.template operator()<4>(at);
  if (at < count) move.template operator()<2>(at);
}

}  // namespace gradient
}  // namespace kronsparse::cuda
