// The tiles of `gemm`: the arguments of a launch, and which block computes which tile, in which order.
// kernel.cuh says how it works.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/ring.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/large_batch/wgmma/weights.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

constexpr int kGemmProducerThreads = 128;
constexpr int kGemmConsumerThreads = 256;
/// A stage of the ring has this many chunks of 16 terms: 128 bytes of terms.
constexpr int kGemmStageChunks = 4;
constexpr int kGemmStageTerms = 16 * kGemmStageChunks;
/// A box of the copy engine: 64 samples x 64 terms, or x `round` outputs.
constexpr int kGemmBoxSamples = 64;
constexpr int kGemmBoxBytes = kGemmBoxSamples * kGemmStageTerms * 2;
constexpr int kGemmMaxStages = 12;
/// Where the copy engine does not take x, all warps of the producer but the first bring it (rows.cuh).
constexpr int kGemmRowWarps = kGemmProducerThreads / 32 - 1;
/// They have one stage less, whose place keeps the ends of rows of at most so many others.
constexpr int kGemmMaxRowStages = 8;

struct GemmShape {
  bool columns;      ///< batch_last: x is a row of samples for each term; else d = 1: a row of terms for each
                     ///< sample
  int n;             ///< outputs of a tile
  int sample_boxes;  ///< boxes of 64 samples of one warpgroup
  int round;         ///< outputs that are stored together; divides n

  [[nodiscard]] constexpr int samples() const { return kGemmBoxSamples * sample_boxes; }
  /// Shared memory of one warpgroup for results on their way out: two rounds.
  [[nodiscard]] constexpr int out_bytes() const { return 2 * round * samples() * 2; }

  friend bool operator==(const GemmShape&, const GemmShape&) = default;
};

/// The arguments of a launch. Sizes are in elements unless the name says bytes.
struct GemmArguments {
  CUtensorMap x_map;
  CUtensorMap y_map;
  const std::byte* x;
  std::byte* y;
  const void* bias;
  const std::byte* weights;
  std::int64_t batch, b, c;
  std::int64_t x_sample, x_feature, y_sample, y_feature;
  std::uint32_t units;    ///< passes over the outputs, times (i, j), times tiles of samples
  std::uint32_t n_tiles;  ///< tiles of samples
  std::uint32_t k_tiles;  ///< tiles of outputs
  std::uint32_t a, d;
  std::uint32_t team_blocks;  ///< blocks that share x: one for each tile of outputs
  std::uint32_t crew_teams;   ///< teams that work side by side
  std::uint32_t crews;
  int chunks;  ///< chunks of 16 terms, padded to whole stages
  int stages;
  int w_chunk_bytes;
  int w_slots;   ///< groups whose weights stay in shared memory; 0: they are streamed with x
  int w_offset;  ///< in shared memory, as are the next two
  int stages_offset;
  int out_offset;
  bool x_tensor_copies;  ///< whether the copy engine can take x; else warps copy its rows
  bool y_tensor_copies;
  Activation activation;
  bool just_packed = false;  ///< earlier kernels may write the weights: wait for them first
};

namespace gemm {

/// One tile: outputs from k0 on, of product (i, j), for samples from n0 on.
struct Tile {
  std::uint32_t group;  ///< the weights: product times tile of outputs
  std::uint32_t i, j, k0;
  std::int64_t n0;
};

/// A block's tiles, in order.
///
/// The blocks of a team go through the same samples together, each with outputs of its own. So x comes from
/// memory once, and to the other blocks from L2. The teams of a crew take neighbouring samples in turn, and
/// each crew has its share of the products. If weights stay in shared memory, a crew has one team, which uses
/// them long. If they are streamed, there is one crew, so that the weights that all blocks need are few
/// enough to stay in L2.
class Walk {
 public:
  __device__ Walk(const GemmArguments& p, int tile_outputs, int tile_samples)
      : p_(p), tile_outputs_(tile_outputs), tile_samples_(tile_samples) {
    const std::uint32_t team = blockIdx.x / p.team_blocks;
    const std::uint32_t crew = team / p.crew_teams;
    const auto share = [&](std::uint32_t one) {
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(p.units) * one / p.crews);
    };
    at_ = share(crew) + team % p.crew_teams;
    end_ = share(crew + 1);
    const std::uint32_t column = at_ / p.n_tiles;  // pass and product
    const std::uint32_t pass = column / (p.a * p.d);
    const std::uint32_t product = column % (p.a * p.d);
    n_tile_ = at_ % p.n_tiles;
    k_tile_ = pass * p.team_blocks + blockIdx.x % p.team_blocks;
    tile_.i = product / p.d;
    tile_.j = product % p.d;
    enter();
  }

  [[nodiscard]] __device__ bool done() const { return at_ >= end_; }
  [[nodiscard]] __device__ const Tile& tile() const { return tile_; }

  /// No divisions: one thread walks through all tiles of a block.
  __device__ void next() {
    at_ += p_.crew_teams;
    for (n_tile_ += p_.crew_teams; n_tile_ >= p_.n_tiles; n_tile_ -= p_.n_tiles) {
      if (++tile_.j < p_.d) continue;
      tile_.j = 0;
      if (++tile_.i < p_.a) continue;
      tile_.i = 0;
      k_tile_ += p_.team_blocks;
    }
    enter();
  }

 private:
  __device__ void enter() {
    if (k_tile_ >= p_.k_tiles) at_ = end_;  // the last pass has no tile for this block
    tile_.group = (tile_.i * p_.d + tile_.j) * p_.k_tiles + k_tile_;
    tile_.k0 = k_tile_ * static_cast<std::uint32_t>(tile_outputs_);
    tile_.n0 = static_cast<std::int64_t>(n_tile_) * tile_samples_;
  }

  const GemmArguments& p_;
  int tile_outputs_, tile_samples_;
  std::uint32_t at_ = 0, end_ = 0, n_tile_ = 0, k_tile_ = 0;
  Tile tile_{};
};

/// The barriers of a block, at the start of its shared memory.
struct Barriers {
  std::uint32_t shared;
  [[nodiscard]] __device__ std::uint32_t full(int stage) const { return shared + stage * 16; }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return shared + stage * 16 + 8; }
  [[nodiscard]] __device__ std::uint32_t weights_full(int slot) const {
    return shared + (kGemmMaxStages + slot) * 16;
  }
  [[nodiscard]] __device__ std::uint32_t weights_empty(int slot) const { return weights_full(slot) + 8; }
};

/// The offset of byte `byte` of row `row` in a box with rows of 128 bytes, with the copy engine's swizzle.
__device__ inline int swizzled(int row, int byte) { return row * 128 + (byte ^ (row % 8 << 4)); }

}  // namespace gemm
}  // namespace kronsparse::cuda
