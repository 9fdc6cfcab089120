// The tile of a block of the tensor-core gradients, and the path of its sums to y: they are added up over the
// blocks of the cluster, which split the batch, through distributed shared memory.
#pragma once

#include <cstdint>

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/tensor_core.cuh"

namespace kronsparse::cuda {

/// y, and the tiles in which it is stored.
struct GradientOutput {
  std::byte* y;
  std::int64_t b, c, d;
  int tile_k, tile_l;    ///< outputs and inputs of a block
  int block_j;           ///< neighbouring j of a block: all of d, 16, or 1
  std::uint32_t splits;  ///< blocks of the cluster, which split the batch
  int pitch;             ///< bytes between rows k of sums in shared memory
  bool vectors;          ///< whether 8-byte stores are aligned
};

/// Tiles in the order in which blocks take them: after the splits l is fastest, then k, groups of j and i.
struct GradientTiles {
  std::uint32_t l_tiles, k_tiles, j_groups;
  int split_samples;  ///< samples that a block of the cluster sums
  std::int64_t batch;

  template <class Config>
  [[nodiscard]] static GradientTiles of(const Config& config, std::int64_t batch) {
    return {static_cast<std::uint32_t>(config.l_tiles), static_cast<std::uint32_t>(config.k_tiles),
            static_cast<std::uint32_t>(config.j_groups), static_cast<int>(config.split_samples), batch};
  }
};

namespace gradient {

/// The work of a block.
struct Tile {
  std::int64_t i, j0, k0, l0;
  std::int64_t n0;  ///< first sample
  int samples;      ///< from there on
  int split;        ///< rank in the cluster
};

__device__ inline Tile block_tile(const GradientTiles& tiles, const GradientOutput& out) {
  std::uint32_t block = ptx::block_number();
  const auto take = [&block](std::uint32_t count) {
    const std::uint32_t digit = block % count;
    block /= count;
    return digit;
  };
  Tile tile{};
  tile.split = static_cast<int>(take(out.splits));
  tile.l0 = std::int64_t{take(tiles.l_tiles)} * out.tile_l;
  tile.k0 = std::int64_t{take(tiles.k_tiles)} * out.tile_k;
  tile.j0 = std::int64_t{take(tiles.j_groups)} * out.block_j;
  tile.i = block;
  tile.n0 = std::int64_t{tile.split} * tiles.split_samples;
  tile.samples =
      static_cast<int>(max(std::int64_t{0}, min(tiles.batch - tile.n0, std::int64_t{tiles.split_samples})));
  return tile;
}

/// Four neighbouring sums, added up over the blocks that split the batch.
__device__ inline uint4 added_up(const GradientOutput& p, std::uint32_t from) {
  if (p.splits == 1) return ptx::load_shared_16(from);
  uint4 sum = ptx::load_cluster_16(ptx::cluster_address(from, 0));
  for (std::uint32_t split = 1; split < p.splits; ++split) {
    const uint4 other = ptx::load_cluster_16(ptx::cluster_address(from, split));
    const auto add = [](std::uint32_t& to, std::uint32_t term) {
      to = __float_as_uint(__uint_as_float(to) + __uint_as_float(term));
    };
    add(sum.x, other.x);
    add(sum.y, other.y);
    add(sum.z, other.z);
    add(sum.w, other.w);
  }
  return sum;
}

/// Stores this block's share of the tile, four elements of a row k at a time. Called by the first warps.
template <class Traits>
__device__ inline void store_sums(const GradientOutput& p, const Tile& tile, std::uint32_t shared,
                                  int warps) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto splits = static_cast<int>(p.splits);
  const int rows = static_cast<int>(min(p.b - tile.k0, std::int64_t{p.tile_k}));
  const int columns = static_cast<int>(min(p.c - tile.l0, std::int64_t{p.tile_l}));
  const int elements = columns * p.block_j;  // elements of a row
  const bool in_groups = p.block_j != 1 && p.block_j != p.d;
  const std::int64_t step = p.block_j == 1 ? p.d : 1;
  const int row_pieces = (elements + 127) / 128;
  for (int piece = tile.split * warps + warp; piece < rows * row_pieces; piece += splits * warps) {
    const int row = piece / row_pieces;
    const int first = (piece % row_pieces * 32 + lane) * 4;
    std::int64_t offset = first * step;
    int count = min(4, elements - first);
    if (in_groups) {
      const int l = first / p.block_j, j = first % p.block_j;
      offset = l * p.d + j;
      count = min(std::int64_t{count}, p.d - tile.j0 - j);
    }
    if (count <= 0) continue;
    const uint4 sum = added_up(p, shared + row * p.pitch + first * 4);
    const std::uint32_t low = mma::pack_pair<Traits>(__uint_as_float(sum.x), __uint_as_float(sum.y));
    const std::uint32_t high = mma::pack_pair<Traits>(__uint_as_float(sum.z), __uint_as_float(sum.w));
    std::byte* const to =
        p.y + 2 * (((tile.i * p.b + tile.k0 + row) * p.c + tile.l0) * p.d + tile.j0 + offset);
    if (p.vectors && count == 4) {
      *reinterpret_cast<uint2*>(to) = uint2{low, high};
      continue;
    }
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
#pragma unroll
    for (int at = 0; at < 4; ++at)
      if (at < count) halves[at * step] = static_cast<std::uint16_t>((at < 2 ? low : high) >> (at % 2 * 16));
  }
}

}  // namespace gradient
}  // namespace kronsparse::cuda
