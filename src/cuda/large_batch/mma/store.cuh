// The way of y from lines to memory in the kernel `mma`: that of x (loads.cuh), backwards.
#pragma once

#include "cuda/large_batch/mma/loads.cuh"

namespace kronsparse::cuda::mma {

/// Sample `at` of a unit, in the low bits. `at` is known to the compiler.
template <class Traits>
[[nodiscard]] __device__ inline std::uint32_t sample_of(const uint4& unit, int at) {
  return Traits::half ? word_of(unit, at / 2) >> at % 2 * 16 : word_of(unit, at);
}

/// Stores one sample of a feature.
template <class Traits>
__device__ inline void store_sample(std::byte* to, std::uint32_t bits) {
  *reinterpret_cast<Word<Traits::element>*>(to) = static_cast<Word<Traits::element>>(bits);
}

/// One sample of `width` neighbouring features.
template <class Traits, int width>
[[nodiscard]] __device__ inline Word<Traits::element * width> sample_of_all(const uint4 (&units)[width],
                                                                            int at) {
  if constexpr (width == 1) {
    return static_cast<Word<Traits::element>>(sample_of<Traits>(units[0], at));
  } else if constexpr (Traits::half) {
    const auto pair = [&](int feature) {
      return __byte_perm(word_of(units[feature], at / 2), word_of(units[feature + 1], at / 2),
                         at % 2 == 0 ? 0x5410 : 0x7632);
    };
    if constexpr (width == 2)
      return pair(0);
    else
      return {pair(0), pair(2)};
  } else {
    if constexpr (width == 2)
      return {word_of(units[0], at), word_of(units[1], at)};
    else
      return {word_of(units[0], at), word_of(units[1], at), word_of(units[2], at), word_of(units[3], at)};
  }
}

/// Stores the lines of a tile in batch_first, `width` neighbouring features at once.
template <class Traits, int width>
__device__ inline void store_rows(const Arguments& p, std::byte* y, int there, std::uint32_t lines,
                                  std::uint32_t table) {
  const Side& side = p.to;
  const auto pieces = static_cast<int>(side.pieces.value());
  const int count = pieces * p.groups * line_units;
  const std::int64_t step = side.sample * Traits::element;
  for (int number = static_cast<int>(threadIdx.x); number < count; number += static_cast<int>(blockDim.x)) {
    const auto unit = static_cast<int>(side.pieces.quotient(static_cast<std::uint32_t>(number)));
    const int line = (number - unit * pieces) * width;
    const int samples = there - unit * Traits::unit_elements;
    Entry entries[width];
    load_entries(entries, table, line);
    if (entries[0].place == no_line) continue;
    const std::uint32_t group = lines + unit / line_units * side.lines * line_bytes;
    std::byte* const to =
        y + (std::int64_t{entries[0].feature} + unit * Traits::unit_elements * side.sample) * Traits::element;
    if (line + width <= side.lines && entries[width - 1].place != no_line) {
      uint4 units[width];
#pragma unroll
      for (int f = 0; f < width; ++f)
        units[f] = ptx::load_shared_16(group + (entries[f].place ^ unit % line_units * 16));
      std::byte* row = to;
      if (samples >= Traits::unit_elements) {
#pragma unroll
        for (int n = 0; n < Traits::unit_elements; ++n, row += step)
          *reinterpret_cast<Word<Traits::element * width>*>(row) = sample_of_all<Traits, width>(units, n);
      } else {
#pragma unroll
        for (int n = 0; n < Traits::unit_elements; ++n, row += step)
          if (n < samples)
            *reinterpret_cast<Word<Traits::element * width>*>(row) = sample_of_all<Traits, width>(units, n);
      }
    } else {  // the last features, fewer than `width`
#pragma unroll 1
      for (int f = 0; f < width && line + f < side.lines; ++f) {
        Entry one[1];
        load_entries(one, table, line + f);
        if (one[0].place == no_line) break;
        const uint4 words = ptx::load_shared_16(group + (one[0].place ^ unit % line_units * 16));
#pragma unroll
        for (int n = 0; n < Traits::unit_elements; ++n)
          if (n < samples)
            store_sample<Traits>(to + n * step + f * Traits::element, sample_of<Traits>(words, n));
      }
    }
  }
}

/// Stores the lines of a tile in batch_last as units of 16 bytes.
template <class Traits>
__device__ inline void store_units(const Arguments& p, std::byte* y, int there, std::uint32_t lines,
                                   std::uint32_t table) {
  const Side& side = p.to;
  const int shift = p.group_shift + line_unit_bits, units = 1 << shift, count = side.lines << shift;
#pragma unroll 2
  for (int number = static_cast<int>(threadIdx.x); number < count; number += static_cast<int>(blockDim.x)) {
    const int unit = number & (units - 1);
    const int samples = there - unit * Traits::unit_elements;
    Entry entry[1];
    load_entries(entry, table, number >> shift);
    if (entry[0].place == no_line || samples <= 0) continue;
    const uint4 words = ptx::load_shared_16(lines + unit / line_units * side.lines * line_bytes +
                                            (entry[0].place ^ unit % line_units * 16));
    std::byte* const to = y + entry[0].feature * side.feature * Traits::element + unit * 16;
    if (samples >= Traits::unit_elements) {
      ptx::store_words(to, {words.x, words.y, words.z, words.w});
    } else {
#pragma unroll
      for (int n = 0; n < Traits::unit_elements; ++n)
        if (n < samples) store_sample<Traits>(to + n * Traits::element, sample_of<Traits>(words, n));
    }
  }
}

/// Stores the lines of a tile in batch_last word by word, see load_words().
template <class Traits>
__device__ inline void store_line_words(const Arguments& p, std::byte* y, int there, std::uint32_t lines,
                                        std::uint32_t table) {
  const Side& side = p.to;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = side.lines << p.group_shift;
#pragma unroll 4
  for (int number = warp; number < count; number += warps) {
    const WarpPart part = warp_part<Traits>(p, number, count, table);
    if (part.entry.place == no_line) continue;
    const std::uint32_t word =
        ptx::load_shared_4(lines + sample_at<Traits>(side, part.entry.place, part.sample));
    std::byte* const to = y + (part.entry.feature * side.feature + part.sample) * Traits::element;
    const int rest = there - part.sample;
    if constexpr (!Traits::half) {
      if (rest > 0) *reinterpret_cast<std::uint32_t*>(to) = word;
    } else if (is_aligned_to_4(to)) {
      if (rest > 1)
        *reinterpret_cast<std::uint32_t*>(to) = word;
      else if (rest > 0)
        store_sample<Traits>(to, word);
    } else {
      const std::uint32_t right = __shfl_down_sync(0xffffffffu, word, 1);
      if (lane == 0 && rest > 0) store_sample<Traits>(to, word);
      if (lane < 31 && rest > 2)
        *reinterpret_cast<std::uint32_t*>(to + 2) = __byte_perm(word, right, 0x5432);
      else if (rest > 1)
        store_sample<Traits>(to + 2, word >> 16);
    }
  }
}

/// Stores the lines of a tile. Threads have to meet before.
template <class Traits>
__device__ inline void store_tile(const Arguments& p, const Position& at, std::uint32_t shared) {
  const Side& side = p.to;
  const std::int64_t feature = (static_cast<std::int64_t>(at.i) * side.height + at.k) * p.d + at.j;
  std::byte* const y = p.y + (at.n * side.sample + feature * side.feature) * Traits::element;
  const int there = samples_from(p, at.n);
  const std::uint32_t lines = shared + p.y_offset, table = shared + side.table;
  if (p.samples_first) {
    if (side.width == 4)
      store_rows<Traits, 4>(p, y, there, lines, table);
    else if (side.width == 2)
      store_rows<Traits, 2>(p, y, there, lines, table);
    else
      store_rows<Traits, 1>(p, y, there, lines, table);
  } else if (side.width == Traits::unit_elements) {
    store_units<Traits>(p, y, there, lines, table);
  } else {
    store_line_words<Traits>(p, y, there, lines, table);
  }
}

}  // namespace kronsparse::cuda::mma
