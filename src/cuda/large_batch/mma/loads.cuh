// The path of x to the kernel `mma` (kernel.cuh): asynchronous copies bring tiles straight from x, in place,
// into shared memory.
//
// Tensor cores multiply one (i, j) at a time: W (outputs x terms) by X (terms x samples). x lies in shared
// memory in a form that makes this possible:
//   planes   batch_first, d > 1. Copies of 4 bytes ("words": a float, or two
//            neighbouring j of a half type) scatter neighbours in memory, over l
//            and j, into one plane for each word of j: (samples, 16 terms). The two
//            j of a half type's word are separated when fragments are made.
//   rows     batch_first, d = 1, half types: (samples, 16 terms).
//   columns  batch_last: (terms, samples).
// Blocks are persistent: the copies of the next tile run during the epilogue of this one. Weights that fit
// stay in shared memory; others are streamed beside x.
#pragma once

#include <cstdint>

#include "cuda/device/tensor_core.cuh"
#include "cuda/large_batch/mma/weights.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

constexpr int kStages = 4;
constexpr int kMaxThreads = 256;

/// The work of one warp, and every constant that follows from it.
template <Arithmetic A, XForm F, int WarpK>
struct MmaTraits {
  static constexpr Arithmetic arithmetic = A;
  static constexpr XForm form = F;
  static constexpr bool half = A == Arithmetic::f16 || A == Arithmetic::bf16;
  static constexpr int element_bytes = half ? 2 : 4;
  static constexpr int warp_k = WarpK;                                 ///< outputs
  static constexpr int warp_n = half && F != XForm::planes ? 64 : 32;  ///< samples
  static constexpr int products = half && F == XForm::planes ? 2 : 1;  ///< neighbouring j
  static constexpr int k_tiles = warp_k / 16;
  static constexpr int n_tiles = warp_n / 8;
  static constexpr bool compensated = A == Arithmetic::tf32x3;
  /// Bytes of 16 terms in shared memory: of one sample, or (columns) of one term's sample.
  static constexpr int row_bytes = F == XForm::planes ? 64 : 32;

  static_assert(WarpK % 16 == 0);
  static_assert(F != XForm::rows || half, "a float with d = 1 is a plane of its own");
  static_assert(products * k_tiles * n_tiles * 4 * (compensated ? 2 : 1) <= 128, "accumulators in registers");
};

/// The arguments of a launch. Offsets and sizes are in bytes of x and y if the name says so, else in
/// elements.
struct MmaArguments {
  const std::byte* x;
  std::byte* y;
  const void* bias;
  const std::byte* weights;
  std::int64_t batch, b, c, d;
  std::int64_t x_sample, x_feature, y_sample, y_feature;
  WeightOrder order;
  std::int64_t n_tiles;       ///< tiles of samples
  std::int64_t tiles;         ///< groups times tiles of samples
  std::int64_t x_row_step;    ///< bytes to the next sample, or (columns) to the next term
  std::int64_t x_chunk_step;  ///< bytes over 16 terms
  int words;                  ///< words of j in a block (planes), else 1
  int warps_k, warps_n;       ///< warps along the outputs and the samples, per word
  int tile_n;                 ///< samples of a block
  int chunks;                 ///< chunks of 16 terms
  int sub_chunks;             ///< chunks in a stage
  int planes_passes;          ///< copies of 4 bytes that a thread makes for a chunk
  int unit_passes;            ///< the same for copies of 16 bytes
  int plane_bytes;            ///< bytes of x for 16 terms
  int x_chunk_bytes;          ///< all planes of 16 terms
  int x_stage_bytes;
  int w_chunk_bytes;
  int w_stage_bytes;    ///< 0: the weights of a group stay in shared memory
  int w_region_offset;  ///< in shared memory
  int out_offset;
  int out_pitch;  ///< words between rows of results
  int out_bytes;
  int x_copy;   ///< bytes of a copy of x: 16, 4, or 2 for addresses that allow no other
  int y_store;  ///< bytes of a store of y: 16 (columns), 4 or 2
  Activation activation;
};

namespace mma {

/// The tile with this index. Indices are below 2^31, and divisions of 64 bits would take noticeable time.
__device__ inline Tile tile_at(const MmaArguments& p, std::uint32_t index) {
  const auto groups = static_cast<std::uint32_t>(p.order.groups());
  const auto n_tiles = static_cast<std::uint32_t>(p.n_tiles);
  const auto k_tiles = static_cast<std::uint32_t>(p.order.k_tiles);
  const auto j_groups = static_cast<std::uint32_t>(p.order.j_groups);
  const bool resident = p.w_stage_bytes == 0;
  // Blocks that run together share samples if weights are streamed, and weights if these are resident.
  const std::uint32_t quotient = index / (resident ? n_tiles : groups);
  const std::uint32_t remainder = index - quotient * (resident ? n_tiles : groups);
  Tile tile{};
  tile.group = resident ? quotient : remainder;
  tile.n0 = static_cast<std::int64_t>(resident ? remainder : quotient) * p.tile_n;
  const std::uint32_t ij = tile.group / k_tiles;
  tile.k0 = (tile.group - ij * k_tiles) * static_cast<std::uint32_t>(p.order.tile_k);
  tile.i = ij / j_groups;
  tile.j0 = (ij - tile.i * j_groups) * static_cast<std::uint32_t>(p.order.j_count);
  return tile;
}

/// Brings x, and weights that are not resident, into the stages, one after the other, across the borders of
/// tiles. A thread copies the same places of every chunk, so that a copy costs an addition.
template <class Traits>
class Loader {
 public:
  __device__ Loader(const MmaArguments& p, std::uint32_t shared, std::uint32_t first, std::uint32_t end,
                    std::uint32_t step)
      : p_(p), shared_(shared), next_(first), end_(end), step_(step) {
    const int thread = static_cast<int>(threadIdx.x);
    const int threads = static_cast<int>(blockDim.x);
    if constexpr (Traits::form == XForm::columns) {
      const int units = p.tile_n * Traits::element_bytes / 16;  // units of a row of samples; a power of two
      const int row_units_log = 31 - __clz(units);
      l_ = thread >> row_units_log;
      column_ = thread & (units - 1);
      rows_per_pass_ = threads >> row_units_log;
      to_ = l_ * units * 16;
    } else if (Traits::form == XForm::rows || p.x_copy == 16) {
      constexpr int units = Traits::row_bytes / 16;
      row_ = thread / units;
      l_ = thread % units * (16 / units);
      rows_per_pass_ = threads / units;
      to_ = thread * 16;
    } else {
      const int words_in_row = 16 * p.words;
      const int in_row = thread % words_in_row;
      row_ = thread / words_in_row;
      rows_per_pass_ = threads / words_in_row;
      l_ = in_row / p.words;
      column_ = in_row % p.words;
      to_ = column_ * p.plane_bytes + row_ * 64 + l_ * 4;
    }
    if (next_ < end_) enter_tile();
  }

  /// Starts the copies of the next stage; none after the last. Commits either way.
  __device__ void issue(int stage) {
    if (next_ < end_) {
      const std::uint32_t x_to = shared_ + stage * p_.x_stage_bytes;
      for (int sub = 0; sub < p_.sub_chunks && chunk_ + sub < p_.chunks; ++sub)
        load_x(x_to + sub * p_.x_chunk_bytes);
      if (p_.w_stage_bytes != 0) {
        const int bytes = min(p_.sub_chunks, p_.chunks - chunk_) * p_.w_chunk_bytes;
        load_weights(shared_ + p_.w_region_offset + stage * p_.w_stage_bytes, weights_, bytes);
        weights_ += bytes;
      }
      chunk_ += p_.sub_chunks;
      if (chunk_ >= p_.chunks) {
        next_ += step_;
        if (next_ < end_) enter_tile();
      }
    }
    ptx::commit_copies();
  }

  /// Loads all weights of the next tile's group.
  __device__ void load_group() const {
    load_weights(shared_ + p_.w_region_offset, weights_, p_.chunks * p_.w_chunk_bytes);
  }

 private:
  __device__ void enter_tile() {
    const Tile tile = tile_at(p_, next_);
    chunk_ = 0;
    weights_ = p_.weights + static_cast<std::int64_t>(tile.group) * p_.chunks * p_.w_chunk_bytes;
    // Counted up to 2^20 samples: the tile has fewer.
    source_ = source_in<Traits, Traits::products>(p_, tile, l_, column_, row_, 1 << 20);
  }

  __device__ static void load_weights(std::uint32_t to, const std::byte* from, int bytes) {
    for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += static_cast<int>(blockDim.x) * 16)
      ptx::copy_async_16(to + at, from + at, 16);
  }

  /// Loads one chunk of 16 terms and moves on to the next.
  __device__ void load_x(std::uint32_t to) {
    if constexpr (Traits::form == XForm::columns)
      load_columns(to);
    else if (Traits::form == XForm::rows || p_.x_copy == 16)
      load_lines(to + to_);
    else
      load_planes(to + to_);
    source_.from += p_.x_chunk_step;
    source_.terms_left -= 16;
  }

  /// Copies words of (l, j), contiguous in memory over j and then l, to their planes.
  __device__ void load_planes(std::uint32_t to) const {
    const bool inside = source_.terms_left > 0 && source_.j_left > 0;
    const std::byte* from = inside ? source_.from : p_.x;
    const std::int64_t step = inside ? rows_per_pass_ * p_.x_row_step : 0;
    const int passes = p_.planes_passes;
    if (p_.x_copy == 4) {
      if (source_.rows_left >= p_.tile_n) {
#pragma unroll 8
        for (int pass = 0; pass < passes; ++pass) {
          ptx::copy_async_4(to, from, inside);
          from += step;
          to += rows_per_pass_ * 64;
        }
      } else {
        for (int pass = 0; pass < passes; ++pass) {
          const bool row_inside = inside && pass * rows_per_pass_ < source_.rows_left;
          ptx::copy_async_4(to, row_inside ? from : p_.x, row_inside);
          from += step;
          to += rows_per_pass_ * 64;
        }
      }
    } else if constexpr (Traits::half) {  // addresses that are aligned to single elements
#pragma unroll 8
      for (int pass = 0; pass < passes; ++pass) {
        std::uint32_t pair = 0;
        if (inside && pass * rows_per_pass_ < source_.rows_left) {
          const auto* elements = reinterpret_cast<const std::uint16_t*>(from);
          pair = elements[0];
          if (source_.j_left > 1) pair |= std::uint32_t{elements[1]} << 16;
        }
        ptx::store_shared_4(to, pair);
        from += step;
        to += rows_per_pass_ * 64;
      }
    }
  }

  /// Copies rows of 16 neighbouring l (the block has one j), in units of 16 bytes.
  __device__ void load_lines(std::uint32_t to) const {
    constexpr int per_unit = 16 / (Traits::row_bytes / 16);  // l in a unit
    constexpr int bytes_per_term = 16 / per_unit;
    const int terms = min(max(source_.terms_left, 0), per_unit);
    const std::byte* from = source_.from;
    const std::int64_t step = rows_per_pass_ * p_.x_row_step;
    const int passes = p_.unit_passes;
    if (p_.x_copy == 16) {
#pragma unroll 4
      for (int pass = 0; pass < passes; ++pass) {
        const bool inside = terms > 0 && pass * rows_per_pass_ < source_.rows_left;
        ptx::copy_async_16(to, inside ? from : p_.x, inside ? terms * bytes_per_term : 0);
        from += step;
        to += rows_per_pass_ * Traits::row_bytes;
      }
    } else if constexpr (Traits::form == XForm::rows) {
      for (int pass = 0; pass < passes; ++pass) {
        const bool inside = pass * rows_per_pass_ < source_.rows_left;
        store_elements(to, from, inside ? terms : 0);
        from += step;
        to += rows_per_pass_ * Traits::row_bytes;
      }
    }
  }

  /// Copies a row of samples for each of 16 l, in swizzled units of 16 bytes.
  __device__ void load_columns(std::uint32_t to) const {
    constexpr int per_unit = 16 / Traits::element_bytes;
    const int samples = min(source_.rows_left, per_unit);
    const int row_bytes = p_.tile_n * Traits::element_bytes;
    const std::byte* from = source_.from;
    const std::int64_t step = rows_per_pass_ * p_.x_row_step;
    const int passes = p_.unit_passes;
    to += to_;
#pragma unroll 4
    for (int pass = 0; pass < passes; ++pass) {
      const int l = l_ + pass * rows_per_pass_;
      const bool inside = pass * rows_per_pass_ < source_.terms_left && samples > 0;
      const std::uint32_t unit_to = to + ((column_ ^ swizzle(l)) << 4);
      copy_samples<Traits>(unit_to, from, inside ? samples : 0, p_.x_copy, p_.x);
      from += step;
      to += rows_per_pass_ * row_bytes;
    }
  }

  const MmaArguments& p_;
  std::uint32_t shared_;
  std::uint32_t next_, end_, step_;
  int chunk_ = 0;
  // This thread's share of a chunk: term, word of j or unit of samples, sample; and its place in shared
  // memory.
  int l_ = 0, column_ = 0, row_ = 0, rows_per_pass_ = 1, to_ = 0;
  // Its source in this chunk, and how much of it exists.
  Source source_;
  const std::byte* weights_ = nullptr;
};

}  // namespace mma
}  // namespace kronsparse::cuda
