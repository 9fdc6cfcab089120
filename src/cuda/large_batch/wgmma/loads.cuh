// The path of x and the weights to the kernel `wgmma` (kernel.cuh). The four warps of the producer copy tiles
// straight from x, in place, into a ring of stages in shared memory; the copy engine brings the weights.
//
// Samples x terms x j lie there in the form of the layout (XForm), in units of 16 bytes:
//   planes   batch_first, d > 1. A row per sample: the words of j of the first
//            term, of the second, ... A word is a float, or two neighbouring j of
//            a half type; with all j in the block that is the order of x itself.
//   rows     batch_first, d = 1, half types: (samples, 16 terms).
//   lines    batch_first, d = 3, 5, 7, half types: a row per sample, as in x.
//   columns  batch_last: (terms, samples).
// Units are permuted within a row so that the units that one instruction reads lie in different banks. The
// two halves of a 32-byte sector stay together: else a copy would fetch the sector twice.
#pragma once

#include <cstdint>

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/racecheck.cuh"
#include "cuda/device/ring.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/host/divisor.hpp"
#include "cuda/large_batch/wgmma/weights.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

constexpr int kProducerThreads = 128;
constexpr int kConsumerThreads = 256;
constexpr int kMaxStages = 8;

/// The work of a block's consumers: the products of one warpgroup, and how the two warpgroups share the tile.
struct WgmmaShape {
  XForm form;
  int products;      ///< j of one warpgroup
  bool split_words;  ///< the warpgroups share samples and split j; else they share j and split samples
  int n;             ///< outputs
  int sub_chunks;    ///< chunks of 16 terms in a stage

  friend bool operator==(const WgmmaShape&, const WgmmaShape&) = default;
};

/// The arrangement of 16 terms of x in shared memory. It follows from a shape and the bytes of an element.
struct XTile {
  int samples;
  int words;      ///< words of j in a block; for lines, j themselves; 1 for rows and columns
  int row_bytes;  ///< bytes of a sample's row (columns: of a term's)
  int bytes;
};

[[nodiscard]] constexpr XTile x_tile(const WgmmaShape& shape, int element_bytes) {
  const int samples = shape.split_words ? 64 : 128;
  if (shape.form == XForm::columns)
    return {samples, 1, samples * element_bytes, 16 * samples * element_bytes};
  if (shape.form == XForm::rows) return {samples, 1, 32, samples * 32};
  if (shape.form == XForm::lines)
    return {samples, shape.products, 32 * shape.products, samples * 32 * shape.products};
  const int words = shape.products * element_bytes / 4 * (shape.split_words ? 2 : 1);
  return {samples, words, 64 * words, samples * 64 * words};
}

/// The arguments of a launch. Sizes are in elements unless the name says bytes.
struct WgmmaArguments {
  const std::byte* x;
  std::byte* y;
  const void* bias;
  const std::byte* weights;
  std::int64_t batch, b, c, d;
  std::int64_t x_sample, x_feature, y_sample, y_feature;
  WgmmaOrder order;
  std::int64_t x_row_step;         ///< bytes to the next sample, or (columns) to the next term
  std::int64_t x_chunk_step;       ///< bytes over 16 terms
  Divisor n_tiles;                 ///< tiles of samples
  Divisor k_tiles, j_groups;       ///< as in the order of weights
  std::uint32_t tiles;             ///< groups times tiles of samples
  std::uint32_t blocks_per_group;  ///< resident weights: 0 if blocks cannot be shared out evenly
  std::uint32_t bundle_groups;     ///< streamed weights: j groups whose weights stay in L2 together
  Divisor i_tiles, bundle_tiles;   ///< tiles of one i, and of one bundle
  Divisor bundle_weights;          ///< groups of weights in a bundle, ...
  Divisor last_bundle_weights;     ///< ... and in the last one
  int chunks;                      ///< padded to whole stages
  int stages;                      ///< in the ring
  int x_stage_bytes;
  int w_chunk_bytes;
  int w_stage_bytes;    ///< 0: the weights of a group stay in shared memory
  int w_region_offset;  ///< in shared memory, as are the next two
  int stages_offset;
  int out_offset;
  int out_pitch_bytes;  ///< between rows of results
  int x_copy;           ///< bytes of a copy of x: 16, 4, or 2 for addresses that allow no other
  int y_store;          ///< bytes of a store of y, likewise
  Activation activation;
};

namespace wgmma {

/// The place of unit `unit` of a sample's row (planes). The terms that one instruction reads of two
/// neighbouring samples lie in different banks.
template <int Words>
__device__ inline int swizzled(int unit, int sample) {
  if constexpr (Words == 8) return (unit ^ (unit >> 2 & 6)) ^ (sample & 1);
  if constexpr (Words == 4) return unit ^ (unit >> 3 << 1) ^ (sample & 1);
  if constexpr (Words % 2 == 0) return unit ^ (sample & 1);
  return unit;
}

using mma::Tile;

/// Streamed weights: tiles that share samples run together, over only as many groups as leave their weights
/// in L2 until the last samples. The order is i, bundle of j groups, samples, j group of the bundle, outputs.
__device__ inline Tile streamed_tile(const WgmmaArguments& p, std::uint32_t index, int tile_n) {
  const std::uint32_t k_tiles = p.k_tiles.value();
  const std::uint32_t j_groups = p.j_groups.value();
  const std::uint32_t i = p.i_tiles.quotient(index);
  std::uint32_t rest = index - i * p.i_tiles.value();
  const std::uint32_t bundle = p.bundle_tiles.quotient(rest);
  rest -= bundle * p.bundle_tiles.value();
  const std::uint32_t first_group = bundle * p.bundle_groups;
  const Divisor& weights =
      first_group + p.bundle_groups <= j_groups ? p.bundle_weights : p.last_bundle_weights;
  const std::uint32_t n_tile = weights.quotient(rest);
  rest -= n_tile * weights.value();
  const std::uint32_t in_bundle = p.k_tiles.quotient(rest);
  const std::uint32_t j_group = first_group + in_bundle;
  const std::uint32_t k_tile = rest - in_bundle * k_tiles;
  return {(i * j_groups + j_group) * k_tiles + k_tile, i,
          j_group * static_cast<std::uint32_t>(p.order.j_count),
          k_tile * static_cast<std::uint32_t>(p.order.tile_k), static_cast<std::int64_t>(n_tile) * tile_n};
}

/// Resident weights: the tiles of a group are neighbours.
__device__ inline Tile resident_tile(const WgmmaArguments& p, std::uint32_t index, int tile_n) {
  const std::uint32_t k_tiles = p.k_tiles.value();
  const std::uint32_t j_groups = p.j_groups.value();
  const std::uint32_t group = p.n_tiles.quotient(index);
  const std::uint32_t ij = p.k_tiles.quotient(group);
  const std::uint32_t i = p.j_groups.quotient(ij);
  return {group, i, (ij - i * j_groups) * static_cast<std::uint32_t>(p.order.j_count),
          (group - ij * k_tiles) * static_cast<std::uint32_t>(p.order.tile_k),
          static_cast<std::int64_t>(index - group * p.n_tiles.value()) * tile_n};
}

__device__ inline Tile tile_at(const WgmmaArguments& p, std::uint32_t index, int tile_n) {
  return p.w_stage_bytes == 0 ? resident_tile(p, index, tile_n) : streamed_tile(p, index, tile_n);
}

/// A block's share of the tiles.
struct Share {
  std::uint32_t first, end, step;
  /// The end of the tiles that use the same resident weights as `index`.
  __device__ std::uint32_t group_end(const WgmmaArguments& p, std::uint32_t index) const {
    return p.w_stage_bytes == 0 ? min(end, (p.n_tiles.quotient(index) + 1) * p.n_tiles.value()) : end;
  }
};

__device__ inline Share share_of_block(const WgmmaArguments& p) {
  if (p.w_stage_bytes != 0) return {blockIdx.x, p.tiles, gridDim.x};
  if (p.blocks_per_group != 0) {
    // All groups go through the samples together, because they share rows of memory.
    const std::uint32_t group = blockIdx.x / p.blocks_per_group;
    return {group * p.n_tiles.value() + blockIdx.x % p.blocks_per_group, (group + 1) * p.n_tiles.value(),
            p.blocks_per_group};
  }
  const auto part = [&](std::uint32_t block) {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(p.tiles) * block / gridDim.x);
  };
  return {part(blockIdx.x), part(blockIdx.x + 1), 1};
}

/// The barriers of a block, at the start of its shared memory.
struct Barriers {
  std::uint32_t shared;
  [[nodiscard]] __device__ std::uint32_t full(int stage) const { return shared + stage * 16; }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return shared + stage * 16 + 8; }
  [[nodiscard]] __device__ std::uint32_t group_full() const { return shared + kMaxStages * 16; }
  [[nodiscard]] __device__ std::uint32_t group_empty() const { return shared + kMaxStages * 16 + 8; }
};

/// One thread of the producer. It copies the same places of every chunk, so that a copy costs an addition.
template <class Traits>
class Producer {
 public:
  __device__ Producer(const WgmmaArguments& p, std::uint32_t shared)
      : p_(p), shared_(shared), barriers_{shared} {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (Traits::form == XForm::columns) {
      constexpr int units = Traits::tile_n * Traits::element_bytes / 16;
      l_ = thread / units;
      column_ = thread % units;
      to_ = l_ * units * 16;
    } else {
      // If the units do not divide the threads, the last threads have nothing to copy.
      row_ = thread < kRows * kRowUnits ? thread / kRowUnits : Traits::tile_n;
      const int unit = thread % kRowUnits;
      if constexpr (Traits::form == XForm::rows) {
        l_ = unit * 8;
        to_ = row_ * Traits::x.row_bytes + unit * 16;
      } else if constexpr (Traits::form == XForm::lines) {
        l_ = unit * 8 / Traits::products;
        column_ = unit * 8 % Traits::products;
        to_ = row_ * Traits::x.row_bytes + unit * 16;
      } else {
        // The first word of the unit.
        l_ = unit * 4 / Traits::x.words;
        column_ = unit * 4 % Traits::x.words;
        to_ = row_ * Traits::x.row_bytes + swizzled<Traits::x.words>(unit, row_) * 16;
      }
    }
  }

  __device__ void run() {
    const Share share = share_of_block(p_);
    RingPlace place;
    int group_parity = 1;
    for (std::uint32_t index = share.first; index < share.end;) {
      const std::uint32_t group_end = share.group_end(p_, index);
      if (p_.w_stage_bytes == 0) {
        ptx::barrier_wait(barriers_.group_empty(), group_parity);
        group_parity ^= 1;
        if (threadIdx.x == 0) load_group(tile_at(p_, index, Traits::tile_n));
      }
      ptx::wait_for_earlier_kernels();  // x depends on them, packed weights do not
      for (; index < group_end; index += share.step) {
        enter_tile(tile_at(p_, index, Traits::tile_n));
        for (int chunk = 0; chunk < p_.chunks; chunk += Traits::sub_chunks) {
          ptx::barrier_wait(barriers_.empty(place.at), place.parity ^ 1);
          load_stage(place.at);
          place.advance(p_.stages);
        }
      }
    }
  }

 private:
  /// Units of 16 terms of a sample, and samples whose units the threads copy at a time.
  static constexpr int kRowUnits = Traits::x.row_bytes / 16;
  static constexpr int kRows = [] {
    int rows = 1;
    while (2 * rows * kRowUnits <= kProducerThreads) rows *= 2;
    return rows;
  }();

  __device__ void load_group(const Tile& tile) const {
    const int bytes = p_.chunks * p_.w_chunk_bytes;
    const std::byte* from = p_.weights + static_cast<std::int64_t>(tile.group) * bytes;
    ptx::barrier_arrive_expecting(barriers_.group_full(), bytes);
    ptx::copy_bulk(shared_ + p_.w_region_offset, from, bytes, barriers_.group_full());
  }

  __device__ void enter_tile(const Tile& tile) {
    weights_ = p_.weights + static_cast<std::int64_t>(tile.group) * p_.chunks * p_.w_chunk_bytes;
    source_ =
        mma::source_in<Traits, Traits::word_products>(p_, tile, l_, column_, row_, Traits::tile_n - row_);
  }

  __device__ void load_stage(int stage) {
    const std::uint32_t full = barriers_.full(stage);
    if (p_.w_stage_bytes != 0 && threadIdx.x == 0) {
      ptx::barrier_arrive_expecting(full, p_.w_stage_bytes);
      ptx::copy_bulk(shared_ + p_.w_region_offset + stage * p_.w_stage_bytes, weights_, p_.w_stage_bytes,
                     full);
      weights_ += p_.w_stage_bytes;
    }
    const std::uint32_t to = shared_ + p_.stages_offset + stage * p_.x_stage_bytes;
#pragma unroll
    for (int sub = 0; sub < Traits::sub_chunks; ++sub) {
      load_chunk(to + sub * Traits::x.bytes);
      source_.from += p_.x_chunk_step;
      source_.terms_left -= 16;
    }
    // An ordinary arrival publishes ordinary stores. (racecheck treats every arrival as one.)
    if (for_racecheck ||
        (Traits::half && (p_.x_copy == 2 || (p_.x_copy == 4 && Traits::form != XForm::planes)))) {
      ptx::commit_copies();
      ptx::wait_copies<0>();
      ptx::barrier_arrive(full);
    } else {
      ptx::barrier_arrive_after_copies(full);
    }
  }

  __device__ void load_chunk(std::uint32_t to) const {
    if constexpr (Traits::form == XForm::columns)
      load_columns(to + to_);
    else if (row_ < Traits::tile_n)
      load_units(to + to_);
  }

  /// Bytes of the thread's unit that exist, for copies of 16 bytes.
  __device__ int unit_bytes() const {
    if constexpr (Traits::form == XForm::rows) return min(max(source_.terms_left, 0), 8) * 2;
    if constexpr (Traits::x.words % 4 == 0)  // units do not cross terms
      return source_.terms_left > 0 ? min(max(source_.j_left, 0) * Traits::element_bytes, 16) : 0;
    // All j are in the block: the bytes up to the end of the last term. `many` limits the number, which might
    // overflow.
    constexpr int column_bytes = Traits::form == XForm::lines ? Traits::element_bytes : 4, many = 1 << 16;
    return min(max((min(source_.terms_left, many) * Traits::x.words - column_) * column_bytes, 0), 16);
  }

  /// Copies units of 16 bytes, one of each kRows-th sample.
  __device__ void load_units(std::uint32_t to) const {
    const std::byte* from = source_.from;
    std::int64_t step = kRows * p_.x_row_step;
    if (p_.x_copy == 16) {
      const int bytes = unit_bytes();
      if (bytes == 0) {
        from = p_.x;
        step = 0;
      }
      if (source_.rows_left == Traits::tile_n - row_) {
#pragma unroll
        for (int row = 0; row < Traits::tile_n; row += kRows) {
          ptx::copy_async_16(to + row * Traits::x.row_bytes, from, bytes);
          from += step;
        }
      } else {
        for (int row = 0; row < Traits::tile_n; row += kRows) {
          ptx::copy_async_16(to + row * Traits::x.row_bytes, row < source_.rows_left ? from : p_.x,
                             row < source_.rows_left ? bytes : 0);
          from += step;
        }
      }
      return;
    }
    for (int row = 0; row < Traits::tile_n; row += kRows, from += step) {
      const std::uint32_t unit_to = to + row * Traits::x.row_bytes;
      if constexpr (Traits::form == XForm::rows) {
        mma::store_elements(unit_to, from, row < source_.rows_left ? min(max(source_.terms_left, 0), 8) : 0);
      } else if constexpr (Traits::form == XForm::lines) {
        mma::store_elements(unit_to, from, row < source_.rows_left ? unit_bytes() / 2 : 0);
      } else {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          // Counted from the unit's first word: terms, and j.
          const int term = (column_ + word) / Traits::x.words;
          const int j = ((column_ + word) % Traits::x.words - column_) * Traits::word_products;
          load_word(unit_to + word * 4, from + (term * p_.d + j) * Traits::element_bytes,
                    row < source_.rows_left && term < source_.terms_left ? source_.j_left - j : 0);
        }
      }
    }
  }

  /// Copies one word; `elements` of its j exist.
  __device__ void load_word(std::uint32_t to, const std::byte* from, int elements) const {
    if (p_.x_copy >= 4) {
      ptx::copy_async_4(to, elements > 0 ? from : p_.x, elements > 0);
    } else if constexpr (Traits::half) {  // addresses that are aligned to single elements
      const auto* pair_from = reinterpret_cast<const std::uint16_t*>(from);
      std::uint32_t pair = 0;
      if (elements > 0) pair = pair_from[0];
      if (elements > 1) pair |= std::uint32_t{pair_from[1]} << 16;
      ptx::store_shared_4(to, pair);
    }
  }

  /// Copies a row of samples for each of 16 l, in swizzled units of 16 bytes.
  __device__ void load_columns(std::uint32_t to) const {
    constexpr int per_unit = 16 / Traits::element_bytes;
    constexpr int row_bytes = Traits::tile_n * Traits::element_bytes;
    constexpr int rows_per_pass = kProducerThreads * 16 / row_bytes;
    const int samples = min(source_.rows_left, per_unit);
    const std::byte* from = source_.from;
    const std::int64_t step = rows_per_pass * p_.x_row_step;
#pragma unroll
    for (int row = 0; row < 16; row += rows_per_pass) {
      const bool inside = row < source_.terms_left && samples > 0;
      const std::uint32_t unit_to = to + ((column_ ^ mma::swizzle(l_ + row)) << 4);
      mma::copy_samples<Traits>(unit_to, from, inside ? samples : 0, p_.x_copy, p_.x);
      from += step;
      to += rows_per_pass * row_bytes;
    }
  }

  const WgmmaArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  // This thread's share of a chunk: term, word of j or unit of samples, sample; and its place in shared
  // memory.
  int l_ = 0, column_ = 0, row_ = 0, to_ = 0;
  // Its source in this chunk, and how much of it exists.
  mma::Source source_;
  const std::byte* weights_ = nullptr;
};

}  // namespace wgmma
}  // namespace kronsparse::cuda
