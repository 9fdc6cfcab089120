// Sorts features by j, and back: what `staged` does to samples before and after it multiplies them.
//
// In batch_first the features of the d products of a block i lie side by side, j fastest. Sorted, the
// features of each product are contiguous, as a plain matrix product needs them, and padded with zeros to a
// multiple of 8. Eight features with all their j ("a run") are contiguous in the one order; in the other they
// are d pieces of 16 bytes.
//
// A block keeps a tile of runs in shared memory as it lies in memory, with the same offset from a multiple of
// 16 bytes. So whole aligned vectors are read and written there, wherever rows begin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/ptx.cuh"
#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/shift.cuh"
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
  std::int64_t sample_elements = 0;             ///< of a sample that is not sorted
  std::uint32_t runs = 0;                       ///< runs of a sample
  std::uint32_t length = 0;                     ///< features of a product
  Divisor length_runs;                          ///< their runs, the last of which may be shorter
  Divisor sample_tiles;
  std::uint32_t tiles = 0;  ///< tiles of all samples
  bool in_pairs = false;    ///< two neighbouring j are a word, where samples are not sorted
};

struct SortArguments {
  SortJob unsort;  ///< results on their way out
  SortJob sort;    ///< the next samples
  Divisor d;
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
    first_feature_ = feature(0);
    bytes_ = (feature(runs_ - 1) + features_of(runs_ - 1) - first_feature_) * p.d.value() * 2;
  }

  [[nodiscard]] __device__ std::int64_t sample() const { return sample_; }
  [[nodiscard]] __device__ std::uint32_t runs() const { return runs_; }
  [[nodiscard]] __device__ std::uint32_t bytes() const { return bytes_; }
  /// The offset of the tile in its sample, not sorted.
  [[nodiscard]] __device__ std::int64_t unsorted() const {
    return static_cast<std::int64_t>(first_feature_) * p_.d.value();
  }
  /// The first feature of a run, all blocks i counted on.
  [[nodiscard]] __device__ std::uint32_t feature(std::uint32_t run) const {
    const std::uint32_t i = job_.length_runs.quotient(first_run_ + run);
    return i * job_.length + within(run, i) * kRunFeatures;
  }
  /// The features of a run: eight, or fewer at the end of a product.
  [[nodiscard]] __device__ std::uint32_t features_of(std::uint32_t run) const {
    const std::uint32_t first = within(run, job_.length_runs.quotient(first_run_ + run)) * kRunFeatures;
    return min(job_.length - first, std::uint32_t{kRunFeatures});
  }
  /// The offset in the sorted sample of the features of product j of a run.
  [[nodiscard]] __device__ std::int64_t sorted(std::uint32_t run, std::uint32_t j) const {
    const std::uint32_t i = job_.length_runs.quotient(first_run_ + run);
    const std::int64_t product = static_cast<std::int64_t>(i) * p_.d.value() + j;
    return (product * job_.length_runs.value() + within(run, i)) * kRunFeatures;
  }
  /// From one product to the next, sorted.
  [[nodiscard]] __device__ std::uint32_t sorted_step() const {
    return job_.length_runs.value() * kRunFeatures;
  }
  [[nodiscard]] __device__ std::uint32_t first_feature() const { return first_feature_; }

 private:
  [[nodiscard]] __device__ std::uint32_t within(std::uint32_t run, std::uint32_t i) const {
    return first_run_ + run - i * job_.length_runs.value();
  }

  const SortArguments& p_;
  const SortJob& job_;
  std::uint32_t sample_, first_run_ = 0, runs_ = 0, first_feature_ = 0, bytes_ = 0;
};

/// A tile in shared memory. If d is even, 16 unused bytes follow each 16·d, so that 8 runs lie in different
/// banks; if it is odd, they do so anyway.
class Image {
 public:
  /// `begin`: the address of the tile in memory.
  __device__ Image(const SortArguments& p, std::uint32_t shared, const void* begin)
      : d_(p.d),
        shared_(shared),
        gap_(p.d.value() % 2 == 0 ? 16 : 0),
        offset_(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(begin) % 16)) {}

  /// By how many bytes the tile begins after a multiple of 16.
  [[nodiscard]] __device__ std::uint32_t offset() const { return offset_; }
  [[nodiscard]] __device__ std::uint32_t vector(std::uint32_t number) const {
    return shared_ + number * 16 + d_.quotient(number) * gap_;
  }

  /// A run: where its element (feature, j) lies.
  class Run {
   public:
    __device__ Run(const Image& image, std::uint32_t byte) : gap_(image.gap_) {
      byte += image.offset_;
      const std::uint32_t gaps = image.d_.quotient(byte / 16);
      begin_ = image.shared_ + byte + gaps * gap_;
      before_gap_ = (gaps + 1) * image.d_.value() * 16 - byte;
    }
    [[nodiscard]] __device__ std::uint32_t at(std::uint32_t byte) const {
      return begin_ + byte + (byte >= before_gap_ ? gap_ : 0);
    }

   private:
    std::uint32_t gap_, begin_, before_gap_;
  };

 private:
  Divisor d_;
  std::uint32_t shared_, gap_, offset_;
};

/// Two neighbouring products of a run, or one of odd d or at odd addresses. The lanes of a warp have 8 runs
/// of 4 such: 128 bytes of each product.
template <int products>
struct Few {
  std::uint32_t run, j;
  bool is_there;
  __device__ Few(const SortArguments& p, const Tile& tile, std::uint32_t step)
      : run((step & ((1u << p.eights_log2) - 1)) * 8 + threadIdx.x % 8),
        j((step >> p.eights_log2) * 4 * products + threadIdx.x % 32 / 8 * products),
        is_there(run < tile.runs() && j < p.d.value()) {}

  [[nodiscard]] __device__ static std::uint32_t steps(const SortArguments& p) {
    return (p.d.value() + 4 * products - 1) / (4 * products) << p.eights_log2;
  }
};

/// A word of two numbers: the first (or second) number of each of two words.
__device__ inline std::uint32_t firsts(std::uint32_t one, std::uint32_t other) {
  return __byte_perm(one, other, 0x5410);
}
__device__ inline std::uint32_t seconds(std::uint32_t one, std::uint32_t other) {
  return __byte_perm(one, other, 0x7632);
}

/// Loads an aligned vector. Elements outside of [begin, end) are not read.
__device__ inline uint4 load_vector(const std::uint16_t* from, const std::uint16_t* begin,
                                    const std::uint16_t* end) {
  if (from >= begin && from + 8 <= end) return __ldcs(reinterpret_cast<const uint4*>(from));
  std::uint32_t words[4] = {};
#pragma unroll
  for (int at = 0; at < 8; ++at)
    if (from + at >= begin && from + at < end)
      words[at / 2] |= static_cast<std::uint32_t>(from[at]) << at % 2 * 16;
  return {words[0], words[1], words[2], words[3]};
}

template <int products>
__device__ inline void sort_tile(const SortArguments& p, const SortJob& job, std::uint32_t number,
                                 std::uint32_t shared) {
  const Tile tile(p, job, number);
  const std::uint16_t* sample = job.from + tile.sample() * job.from_sample;
  const std::uint16_t* sample_end = sample + job.sample_elements;
  const Image image(p, shared, sample + tile.unsorted());
  const std::uint16_t* from = sample + tile.unsorted() - image.offset() / 2;
  const std::uint32_t vectors = (image.offset() + tile.bytes() + 15) / 16;
  constexpr int at_once = kSortPieces / kSortThreads;
  for (std::uint32_t first = threadIdx.x; first < vectors; first += at_once * kSortThreads) {
    uint4 some[at_once];
#pragma unroll
    for (int at = 0; at < at_once; ++at)
      if (const std::uint32_t vector = first + at * kSortThreads; vector < vectors)
        some[at] = load_vector(from + vector * 8, sample, sample_end);
#pragma unroll
    for (int at = 0; at < at_once; ++at)
      if (const std::uint32_t vector = first + at * kSortThreads; vector < vectors)
        ptx::store_shared_16(image.vector(vector), some[at].x, some[at].y, some[at].z, some[at].w);
  }
  __syncthreads();
  std::uint16_t* to = job.to + tile.sample() * job.to_sample;
  const std::uint32_t d = p.d.value();
  for (std::uint32_t step = threadIdx.x / 32; step < Few<products>::steps(p); step += kSortThreads / 32) {
    const Few<products> few(p, tile, step);
    if (!few.is_there) continue;
    const Image::Run run(image, (tile.feature(few.run) - tile.first_feature()) * d * 2);
    const std::uint32_t features = tile.features_of(few.run);
    std::uint32_t some[kRunFeatures];
#pragma unroll
    for (std::uint32_t feature = 0; feature < kRunFeatures; ++feature) {
      some[feature] = 0;
      const std::uint32_t at = run.at((feature * d + few.j) * 2);
      if (feature < features) some[feature] = products == 2 ? ptx::load_shared_4(at) : ptx::load_shared_2(at);
    }
    std::uint16_t* first = to + tile.sorted(few.run, few.j);
    *reinterpret_cast<uint4*>(first) = {firsts(some[0], some[1]), firsts(some[2], some[3]),
                                        firsts(some[4], some[5]), firsts(some[6], some[7])};
    if constexpr (products == 2)
      *reinterpret_cast<uint4*>(first + tile.sorted_step()) = {
          seconds(some[0], some[1]), seconds(some[2], some[3]), seconds(some[4], some[5]),
          seconds(some[6], some[7])};
  }
}

template <int products>
__device__ inline void unsort_tile(const SortArguments& p, const SortJob& job, std::uint32_t number,
                                   std::uint32_t shared) {
  const Tile tile(p, job, number);
  const std::uint16_t* from = job.from + tile.sample() * job.from_sample;
  std::uint16_t* begin = job.to + tile.sample() * job.to_sample + tile.unsorted();
  const Image image(p, shared, begin);
  const std::uint32_t d = p.d.value();
  constexpr std::uint32_t warps = kSortThreads / 32;
  constexpr int at_once = kSortPieces / kSortThreads / products;
  for (std::uint32_t first = threadIdx.x / 32; first < Few<products>::steps(p); first += at_once * warps) {
    uint4 pieces[at_once][products];
#pragma unroll
    for (int at = 0; at < at_once; ++at) {
      const Few<products> few(p, tile, first + at * warps);
      if (!few.is_there) continue;
      const std::uint16_t* features = from + tile.sorted(few.run, few.j);
#pragma unroll
      for (int product = 0; product < products; ++product)
        pieces[at][product] = *reinterpret_cast<const uint4*>(features + product * tile.sorted_step());
    }
#pragma unroll
    for (int at = 0; at < at_once; ++at) {
      const Few<products> few(p, tile, first + at * warps);
      if (!few.is_there) continue;
      const Image::Run run(image, (tile.feature(few.run) - tile.first_feature()) * d * 2);
      const std::uint32_t features = tile.features_of(few.run);
      const uint4 &one = pieces[at][0], &other = pieces[at][products - 1];
      const std::uint32_t ones[4] = {one.x, one.y, one.z, one.w};
      const std::uint32_t others[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (std::uint32_t feature = 0; feature < kRunFeatures; ++feature) {
        if (feature >= features) continue;
        const std::uint32_t to = run.at((feature * d + few.j) * 2);
        const std::uint32_t word = feature % 2 == 0 ? firsts(ones[feature / 2], others[feature / 2])
                                                    : seconds(ones[feature / 2], others[feature / 2]);
        if constexpr (products == 2)
          ptx::store_shared_4(to, word);
        else
          ptx::store_shared_2(to, static_cast<std::uint16_t>(word));
      }
    }
  }
  __syncthreads();
  const std::uint32_t vectors = (image.offset() + tile.bytes() + 15) / 16;
  std::uint16_t* to = begin - image.offset() / 2;
#pragma unroll 2
  for (std::uint32_t vector = threadIdx.x; vector < vectors; vector += kSortThreads) {
    const uint4 elements = ptx::load_shared_16(image.vector(vector));
    const auto over = static_cast<int>(image.offset() / 2) - static_cast<int>(vector) * 8;
    const int end = over + static_cast<int>(tile.bytes() / 2);
    if (over <= 0 && end >= 8)
      __stcs(reinterpret_cast<uint4*>(to + vector * 8), elements);
    else
      store_part(to + vector * 8, elements, over, end);
  }
}

}  // namespace sorting
}  // namespace kronsparse::cuda
