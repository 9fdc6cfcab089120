// Sorts features by j, and back: what `staged` does to samples before and after it multiplies them.
//
// In batch_first the features of the d products of a block i lie side by side, j fastest. Sorted, the
// features of each product are contiguous, as a plain matrix product needs them. Eight features with all
// their j ("a run") are contiguous in the one order; in the other they are d pieces of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/ptx.cuh"
#include "cuda/device/ptx_sm90.cuh"
#include "cuda/host/divisor.hpp"

namespace kronsparse::cuda {

constexpr int kSortThreads = 256;
constexpr int kRunFeatures = 8;
/// A tile has at most this many pieces of 16 bytes, unless 8 runs have more.
constexpr int kSortPieces = 1024;

/// Samples of half types to be brought from one order to the other.
struct SortJob {
  const std::uint16_t* from = nullptr;
  std::uint16_t* to = nullptr;
  std::int64_t from_sample = 0, to_sample = 0;  ///< elements
  std::uint32_t runs = 0;                       ///< runs of a sample
  Divisor length_runs;                          ///< runs of a block i
  Divisor sample_tiles;
  std::uint32_t tiles = 0;  ///< tiles of all samples
  bool in_pieces = true;    ///< whether the unsorted side lies at multiples of 16 bytes
};

struct SortArguments {
  SortJob unsort;       ///< results on their way out
  SortJob sort;         ///< the next samples
  Divisor d;            ///< even
  int eights_log2 = 0;  ///< log2 of the number of eights of runs in a tile
};

using SortKernel = void (*)(SortArguments);

/// The kernel has a block for each tile of either job (sort_by_j.cu).
[[nodiscard]] SortKernel sort_by_j_kernel();

namespace sorting {

/// A tile: some runs of one sample.
class Tile {
 public:
  __device__ Tile(const SortArguments& p, const SortJob& job, std::uint32_t tile)
      : p_(p), job_(job), sample_(job.sample_tiles.quotient(tile)) {
    const std::uint32_t most = 8u << p.eights_log2;
    first_run_ = (tile - sample_ * job.sample_tiles.value()) * most;
    runs_ = min(most, job.runs - first_run_);
  }

  [[nodiscard]] __device__ std::int64_t sample() const { return sample_; }
  [[nodiscard]] __device__ std::uint32_t runs() const { return runs_; }
  [[nodiscard]] __device__ std::uint32_t pieces() const { return runs_ * p_.d.value(); }
  /// The offset of the tile in its sample, not sorted.
  [[nodiscard]] __device__ std::int64_t unsorted() const {
    return static_cast<std::int64_t>(first_run_) * kRunFeatures * p_.d.value();
  }
  /// The offset in the sorted sample of the features of product j of a run.
  [[nodiscard]] __device__ std::int64_t sorted(std::uint32_t run, std::uint32_t j) const {
    const std::uint32_t length = job_.length_runs.value();
    const std::uint32_t i = job_.length_runs.quotient(first_run_ + run);
    const std::int64_t product = static_cast<std::int64_t>(i) * p_.d.value() + j;
    return (product * length + (first_run_ + run - i * length)) * kRunFeatures;
  }
  /// From one product to the next, sorted.
  [[nodiscard]] __device__ std::uint32_t sorted_step() const {
    return job_.length_runs.value() * kRunFeatures;
  }

  /// The place of a run in shared memory. 16 unused bytes follow it, so that 8 runs lie in different banks.
  [[nodiscard]] __device__ std::uint32_t run_byte(std::uint32_t run) const {
    return run * (p_.d.value() + 1) * 16;
  }
  [[nodiscard]] __device__ std::uint32_t piece_byte(std::uint32_t piece) const {
    return (piece + p_.d.quotient(piece)) * 16;
  }

 private:
  const SortArguments& p_;
  const SortJob& job_;
  std::uint32_t sample_, first_run_ = 0, runs_ = 0;
};

/// Two neighbouring products of a run. The lanes of a warp have 8 runs of 4 such pairs: 128 bytes of each
/// product.
struct Pair {
  std::uint32_t run, j;
  bool is_there;
  __device__ Pair(const SortArguments& p, const Tile& tile, std::uint32_t step)
      : run((step & ((1u << p.eights_log2) - 1)) * 8 + threadIdx.x % 8),
        j((step >> p.eights_log2) * 8 + threadIdx.x % 32 / 8 * 2),
        is_there(run < tile.runs() && j < p.d.value()) {}

  [[nodiscard]] __device__ static std::uint32_t steps(const SortArguments& p) {
    return (p.d.value() + 7) / 8 << p.eights_log2;
  }
};

/// A word of two numbers: the first (or second) number of each of two words.
__device__ inline std::uint32_t firsts(std::uint32_t one, std::uint32_t other) {
  return __byte_perm(one, other, 0x5410);
}
__device__ inline std::uint32_t seconds(std::uint32_t one, std::uint32_t other) {
  return __byte_perm(one, other, 0x7632);
}

template <bool in_pieces>
__device__ inline uint4 load_piece(const std::uint16_t* from) {
  if constexpr (in_pieces) return __ldcs(reinterpret_cast<const uint4*>(from));
  const auto word = [&](int at) { return from[at] | static_cast<std::uint32_t>(from[at + 1]) << 16; };
  return {word(0), word(2), word(4), word(6)};
}

template <bool in_pieces>
__device__ inline void store_piece(std::uint16_t* to, const uint4& piece) {
  if constexpr (in_pieces) {
    __stcs(reinterpret_cast<uint4*>(to), piece);
  } else {
    const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
    for (int at = 0; at < kRunFeatures; ++at)
      to[at] = static_cast<std::uint16_t>(words[at / 2] >> at % 2 * 16);
  }
}

template <bool in_pieces>
__device__ inline void sort_tile(const SortArguments& p, const SortJob& job, std::uint32_t number,
                                 std::uint32_t shared) {
  const Tile tile(p, job, number);
  const std::uint16_t* from = job.from + tile.sample() * job.from_sample + tile.unsorted();
  constexpr int at_once = kSortPieces / kSortThreads;
  for (std::uint32_t first = threadIdx.x; first < tile.pieces(); first += at_once * kSortThreads) {
    uint4 pieces[at_once];
#pragma unroll
    for (int at = 0; at < at_once; ++at)
      if (const std::uint32_t piece = first + at * kSortThreads; piece < tile.pieces())
        pieces[at] = load_piece<in_pieces>(from + piece * kRunFeatures);
#pragma unroll
    for (int at = 0; at < at_once; ++at)
      if (const std::uint32_t piece = first + at * kSortThreads; piece < tile.pieces())
        ptx::store_shared_16(shared + tile.piece_byte(piece), pieces[at].x, pieces[at].y, pieces[at].z,
                             pieces[at].w);
  }
  __syncthreads();
  std::uint16_t* to = job.to + tile.sample() * job.to_sample;
  const std::uint32_t d = p.d.value();
  for (std::uint32_t step = threadIdx.x / 32; step < Pair::steps(p); step += kSortThreads / 32) {
    const Pair pair(p, tile, step);
    if (!pair.is_there) continue;
    const std::uint32_t words = shared + tile.run_byte(pair.run) + pair.j * 2;
    std::uint32_t both[kRunFeatures];
#pragma unroll
    for (int feature = 0; feature < kRunFeatures; ++feature)
      both[feature] = ptx::load_shared_4(words + feature * d * 2);
    std::uint16_t* first = to + tile.sorted(pair.run, pair.j);
    *reinterpret_cast<uint4*>(first) = {firsts(both[0], both[1]), firsts(both[2], both[3]),
                                        firsts(both[4], both[5]), firsts(both[6], both[7])};
    *reinterpret_cast<uint4*>(first + tile.sorted_step()) = {
        seconds(both[0], both[1]), seconds(both[2], both[3]), seconds(both[4], both[5]),
        seconds(both[6], both[7])};
  }
}

template <bool in_pieces>
__device__ inline void unsort_tile(const SortArguments& p, const SortJob& job, std::uint32_t number,
                                   std::uint32_t shared) {
  const Tile tile(p, job, number);
  const std::uint16_t* from = job.from + tile.sample() * job.from_sample;
  const std::uint32_t d = p.d.value();
  constexpr std::uint32_t warps = kSortThreads / 32;
  constexpr int at_once = kSortPieces / kSortThreads / 2;
  for (std::uint32_t first = threadIdx.x / 32; first < Pair::steps(p); first += at_once * warps) {
    uint4 pieces[at_once][2];
#pragma unroll
    for (int at = 0; at < at_once; ++at) {
      const Pair pair(p, tile, first + at * warps);
      if (!pair.is_there) continue;
      const std::uint16_t* features = from + tile.sorted(pair.run, pair.j);
      pieces[at][0] = *reinterpret_cast<const uint4*>(features);
      pieces[at][1] = *reinterpret_cast<const uint4*>(features + tile.sorted_step());
    }
#pragma unroll
    for (int at = 0; at < at_once; ++at) {
      const Pair pair(p, tile, first + at * warps);
      if (!pair.is_there) continue;
      const std::uint32_t words = shared + tile.run_byte(pair.run) + pair.j * 2;
      const uint4 &one = pieces[at][0], &other = pieces[at][1];
      ptx::store_shared_4(words, firsts(one.x, other.x));
      ptx::store_shared_4(words + 2 * d, seconds(one.x, other.x));
      ptx::store_shared_4(words + 4 * d, firsts(one.y, other.y));
      ptx::store_shared_4(words + 6 * d, seconds(one.y, other.y));
      ptx::store_shared_4(words + 8 * d, firsts(one.z, other.z));
      ptx::store_shared_4(words + 10 * d, seconds(one.z, other.z));
      ptx::store_shared_4(words + 12 * d, firsts(one.w, other.w));
      ptx::store_shared_4(words + 14 * d, seconds(one.w, other.w));
    }
  }
  __syncthreads();
  std::uint16_t* to = job.to + tile.sample() * job.to_sample + tile.unsorted();
#pragma unroll 2
  for (std::uint32_t piece = threadIdx.x; piece < tile.pieces(); piece += kSortThreads)
    store_piece<in_pieces>(to + piece * kRunFeatures, ptx::load_shared_16(shared + tile.piece_byte(piece)));
}

}  // namespace sorting
}  // namespace kronsparse::cuda
