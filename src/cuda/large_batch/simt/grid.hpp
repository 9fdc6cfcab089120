// Pieces that the launchers of the FMA kernels share: tile counts, rates, alignment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/host/runtime.hpp"
#include "cuda/host/speeds.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::cuda::simt {

[[nodiscard]] inline std::int64_t tiles_of(std::int64_t size, std::int64_t tile) {
  return (size + tile - 1) / tile;
}

/// The size with its last tile filled up.
[[nodiscard]] inline double padded(std::int64_t size, std::int64_t tile) {
  return static_cast<double>(tiles_of(size, tile)) * static_cast<double>(tile);
}

[[nodiscard]] inline bool aligned_16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

/// Real multiplications and additions per second that the FMA units can do.
[[nodiscard]] inline double fma_rate(const GpuFacts& facts, DType dtype) {
  const bool wide = dtype == DType::f64 || dtype == DType::complex128;
  const double lanes = multiply_adds_per_clock(facts, wide ? Units::fma64 : Units::fma32);
  return 2 * lanes * std::max(facts.clock_hz, 1e9) * std::max(facts.multiprocessors, 1);
}

/// By how much sectors are read more than once, for runs of `j` elements in rows of d. If a run is shorter
/// than both the row and a 32-byte sector, several blocks read the same sector. 1 means none.
[[nodiscard]] inline double repeated_sectors(int j, std::int64_t d, DType dtype) {
  const double width = j * static_cast<double>(size_of(dtype));
  return j >= d || width >= 32 ? 1 : 1 + (32 - width) / 32;
}

/// A compiled kernel, as the launchers see it.
struct Kernel {
  bool batch_first;
  int j, m, n;  ///< sizes of a block's tile
  int depth, threads;
  std::size_t stage_bytes, staging_bytes;
  double cost;  ///< cost of one tile's arithmetic, relative to a tile of 8 x 8 sums per thread
  const void* function;
};

/// The kernel of a class with a Tile.
template <class K>
[[nodiscard]] Kernel kernel_of(const void* function) {
  using Tile = typename K::Tile;
  // With fewer sums per thread, more of its instructions are loads.
  const double loads = 1.0 / Tile::TM + 1.0 / Tile::TN;
  return {.batch_first = K::BatchFirst,
          .j = Tile::J,
          .m = Tile::M,
          .n = Tile::N,
          .depth = K::Depth,
          .threads = Tile::threads,
          .stage_bytes = K::stage_bytes,
          .staging_bytes = K::staging_bytes,
          .cost = 0.5 + 2.0 * loads,
          .function = function};
}

/// How long a GPU's multiprocessors are idle because blocks are few: by so much more time passes.
[[nodiscard]] inline double idle_share(const GpuFacts& facts, double blocks) {
  return std::max(1.0, std::max(facts.multiprocessors, 1) / std::max(blocks, 1.0));
}

/// The kernel of the layout with the least `cost`; of equal ones the first.
template <class Compiled, class Cost>
[[nodiscard]] const Compiled& cheapest(std::span<const Compiled> kernels, bool batch_first,
                                       const Cost& cost) {
  const Compiled* best = nullptr;
  for (const Compiled& kernel : kernels)
    if (kernel.batch_first == batch_first && (best == nullptr || cost(kernel) < cost(*best))) best = &kernel;
  return *best;
}

}  // namespace kronsparse::cuda::simt
