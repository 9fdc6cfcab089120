// The way of x into shared memory in the kernel `fused`: as rows of features, or as lines.
#pragma once

#include "cuda/chain/fused/block.cuh"

namespace kronsparse::cuda::fused {

/// Writes zeros to lines that no product writes: terms that do not exist, up to a step of the tensor core.
template <class Traits>
__device__ inline void clear_padding(const Step& step, int terms, std::uint32_t from) {
  const int padding = step.terms - terms;
  if (padding == 0) return;
  const int count = step.blocks * padding * Traits::units;
  for (int at = static_cast<int>(threadIdx.x); at < count; at += static_cast<int>(blockDim.x)) {
    const int line = at / Traits::units, block = line / padding;
    const Entry entry =
        line_entry(Traits::line(), block * step.terms + terms + line % padding, step.in_shift);
    ptx::store_shared_16((from + address_of(entry)) ^ (at % Traits::units * 16), 0, 0, 0, 0);
  }
}

/// Copies `count` elements, of 16 bytes at most, and zeros after them. Units that begin anywhere are copied
/// by elements.
template <class Traits, bool is_vector>
__device__ inline void copy_unit(std::uint32_t to, const std::byte* from, int count) {
  if constexpr (is_vector) {
    ptx::copy_async_16(to, from, count * Traits::element);
  } else if constexpr (Traits::half) {
    mma::store_elements(to, from, count);
  } else {
#pragma unroll 1
    for (int e = 0; e < 4; ++e)
      ptx::store_shared_4(to + e * 4, e < count ? reinterpret_cast<const std::uint32_t*>(from)[e] : 0u);
  }
}

/// Copies a tile of x as rows of the rank's features (batch_first). A warp takes a row.
template <class Traits, bool is_vector>
__device__ inline void copy_rows(const Arguments& p, std::int64_t tile, int rank, std::uint32_t to, int pitch,
                                 const Lane& at) {
  const int first = rank * p.x_features;
  const int features = min(p.x_features, p.x_all - first);
  const std::int64_t sample = tile * Traits::samples;
  const int there = samples_there<Traits>(p, sample);
  const std::byte* const x = p.x + (sample * p.x_sample + first) * Traits::element;
  for (int row = at.warp; row < Traits::samples; row += at.warps) {
    // Rows past the batch become zeros; the address must be one that exists.
    const bool exists = row < there;
    const std::byte* const from = x + (exists ? row * p.x_sample * Traits::element : 0) + at.lane * 16;
    const std::uint32_t row_at = to + row * pitch;
#pragma unroll(is_vector ? 4 : 1)
    for (int unit = at.lane; unit * Traits::unit_elements < features; unit += 32) {
      const int count = exists ? min(Traits::unit_elements, features - unit * Traits::unit_elements) : 0;
      copy_unit<Traits, is_vector>(row_at + (unit ^ (row & 7)) * 16, from + (unit - at.lane) * 16, count);
    }
  }
}

/// Copies a tile of x as the lines that the first step reads (batch_last). A warp takes an (i, j).
template <class Traits, bool is_vector>
__device__ inline void copy_lines(const Arguments& p, std::int64_t tile, int rank, std::uint32_t to,
                                  const Lane& at) {
  const Step& step = p.step[0];
  const int terms = p.terms[0];
  const int i_first = rank / step.ranks_j * step.i_count,
            j_first = rank % step.ranks_j * static_cast<int>(step.j_count.value());
  const std::int64_t sample = tile * Traits::samples;
  const int there = samples_there<Traits>(p, sample);
  constexpr int lines = 32 / Traits::units;
  const int unit = at.lane % Traits::units;
  const int in_unit = max(0, min(Traits::unit_elements, there - unit * Traits::unit_elements));
  const std::byte* const x = p.x + sample * Traits::element;
  for (int block = at.warp; block < step.blocks; block += at.warps) {
    const auto i = static_cast<int>(step.j_count.quotient(static_cast<std::uint32_t>(block)));
    const int j = j_first + block - i * static_cast<int>(step.j_count.value());
    const std::int64_t feature = static_cast<std::int64_t>(i_first + i) * terms * step.d + j;
    const std::byte* const from =
        x + (feature * p.x_feature + unit * Traits::unit_elements) * Traits::element;
    const std::int64_t to_next = step.d * p.x_feature * Traits::element;
#pragma unroll(is_vector ? 2 : 1)
    for (int l = at.lane / Traits::units; l < step.terms; l += lines) {
      const int count = l < terms ? in_unit : 0;
      const Entry entry = line_entry(Traits::line(), block * step.terms + l, step.in_shift);
      copy_unit<Traits, is_vector>((to + address_of(entry)) ^ (unit * 16),
                                   count > 0 ? from + l * to_next : p.x, count);
    }
  }
}

/// Makes lines of rows, in the blocks where the first step reads them.
template <class Traits>
__device__ inline void rows_to_lines(const Arguments& p, int rank, int parity, std::uint32_t shared,
                                     const Lane& at) {
  const int features = min(p.x_features, p.x_all - rank * p.x_features);
  const std::uint32_t from = shared + p.staging, to = shared + p.space[0].place.of_tile(parity),
                      table = shared + p.x_table;
  if constexpr (Traits::half) {
    // Each load takes four squares of 8 samples and 8 features.
    constexpr int squares_of_8 = Traits::samples / 8;
    const int squares = (features + 7) / 8 * squares_of_8;
    for (int first = at.warp * 4; first < squares; first += at.warps * 4) {
      const int mine = min(first + at.lane / 8, squares - 1);
      const uint4 words = ptx::load_matrices_transposed(
          from + row_unit_at(mine % squares_of_8 * 8 + at.lane % 8, p.staging_pitch, mine / squares_of_8));
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int square = first + n;
        const int feature = square / squares_of_8 * 8 + at.g;
        if (square >= squares || feature >= features) continue;
        const Entry entry = ptx::load_shared_4(table + feature * 4);
        store_word(p.ranks > 1, ((to + address_of(entry)) ^ (square % squares_of_8 * 16)) + at.t * 4,
                   rank_of(entry), word[n]);
      }
    }
  } else {
    const int quads = (features + 3) / 4;
    for (int one = static_cast<int>(threadIdx.x); one < quads * Traits::samples;
         one += static_cast<int>(blockDim.x)) {
      const int sample = one % Traits::samples, quad = one / Traits::samples;
      const uint4 words = ptx::load_shared_16(from + row_unit_at(sample, p.staging_pitch, quad));
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (quad * 4 + n >= features) continue;
        const Entry entry = ptx::load_shared_4(table + (quad * 4 + n) * 4);
        store_word(p.ranks > 1, (to + address_of(entry)) ^ (sample * 4), rank_of(entry), word[n]);
      }
    }
  }
  clear_padding<Traits>(p.step[0], p.terms[0], to);
}

template <class Traits, bool is_vector>
__device__ inline void copy_tile(const Arguments& p, std::int64_t tile, int rank, int parity,
                                 std::uint32_t shared, const Lane& at) {
  const std::uint32_t to = shared + p.step[0].in.of_tile(parity);
  if (!p.samples_first)
    copy_lines<Traits, is_vector>(p, tile, rank, to, at);
  else
    copy_rows<Traits, is_vector>(p, tile, rank, p.x_rows ? to : shared + p.staging,
                                 p.x_rows ? p.step[0].rows_pitch : p.staging_pitch, at);
}

/// Begins to copy the x of a tile, if there is one.
template <class Traits>
__device__ inline void copy_x(const Arguments& p, std::int64_t tile, int rank, int parity,
                              std::uint32_t shared, const Lane& at) {
  if (tile < p.tiles) {
    if (p.x_vectors)
      copy_tile<Traits, true>(p, tile, rank, parity, shared, at);
    else
      copy_tile<Traits, false>(p, tile, rank, parity, shared, at);
  }
  ptx::commit_copies();
}

}  // namespace kronsparse::cuda::fused
