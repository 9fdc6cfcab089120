// The way of x into lines in the kernel `mma`.
//
// A thread takes units: 16 bytes of a line, which are neighbouring samples of one feature. In batch_last they
// are neighbours in memory as well. In batch_first they lie a row apart; the lanes of a warp then take
// neighbouring features, so that each load of the warp reads neighbours, and no address has to be aligned.
#pragma once

#include <type_traits>

#include "cuda/large_batch/mma/block.cuh"

namespace kronsparse::cuda::mma {

/// Neighbouring elements of this many bytes, as memory has them.
template <int bytes>
using Word = std::conditional_t<
    bytes == 2, std::uint16_t,
    std::conditional_t<bytes == 4, std::uint32_t, std::conditional_t<bytes == 8, uint2, uint4>>>;

/// `width` neighbouring features of a unit's samples.
template <class Traits, int width>
using Samples = Word<Traits::element * width>[Traits::unit_elements];

/// Loads `count` samples, `step` bytes apart; zeros for the others.
template <class Traits, int width>
__device__ inline void load_samples(Samples<Traits, width>& samples, const std::byte* from, std::int64_t step,
                                    int count) {
  using Elements = Word<Traits::element * width>;
  if (count >= Traits::unit_elements) {
#pragma unroll
    for (int n = 0; n < Traits::unit_elements; ++n)
      samples[n] = *reinterpret_cast<const Elements*>(from + n * step);
  } else {
#pragma unroll
    for (int n = 0; n < Traits::unit_elements; ++n)
      samples[n] = n < count ? *reinterpret_cast<const Elements*>(from + n * step) : Elements{};
  }
}

/// Word `at` of some elements. `at` is known to the compiler.
template <class Elements>
[[nodiscard]] __device__ inline std::uint32_t word_of(const Elements& elements, int at) {
  if constexpr (sizeof(Elements) <= 4)
    return elements;
  else if constexpr (sizeof(Elements) == 8)
    return at == 0 ? elements.x : elements.y;
  else
    return at == 0 ? elements.x : at == 1 ? elements.y : at == 2 ? elements.z : elements.w;
}

/// Stores the unit of one of the features.
template <class Traits, int width>
__device__ inline void store_unit(std::uint32_t to, const Samples<Traits, width>& samples, int feature) {
  std::uint32_t unit[4];
#pragma unroll
  for (int at = 0; at < 4; ++at) {
    if constexpr (Traits::half)
      unit[at] = __byte_perm(word_of(samples[2 * at], feature / 2), word_of(samples[2 * at + 1], feature / 2),
                             feature % 2 == 0 ? 0x5410 : 0x7632);
    else
      unit[at] = word_of(samples[at], feature);
  }
  ptx::store_shared_16(to, unit[0], unit[1], unit[2], unit[3]);
}

/// A thread's piece of a chunk in batch_first: a unit of `width` neighbouring features.
struct Piece {
  int unit, line;
  bool exists, is_whole;  ///< whether the first of the features exists, and all of them
};

template <int width>
[[nodiscard]] __device__ inline Piece piece_of(const Side& side, int number, int count, int lines,
                                               std::uint32_t table) {
  const auto pieces = static_cast<int>(side.pieces.value());
  const auto unit = static_cast<int>(side.pieces.quotient(static_cast<std::uint32_t>(number)));
  const int line = (number - unit * pieces) * width;
  const auto is_there = [&](int at) {
    return at < lines && ptx::load_shared_4(table + at * static_cast<int>(sizeof(Entry))) != no_line;
  };
  const bool exists = number < count && is_there(line);
  return {unit, line, exists, exists && (width == 1 || is_there(line + width - 1))};
}

/// Fills the lines of a chunk in batch_first, `width` neighbouring features at a time. `x` is the first
/// feature of the chunk, in the tile's first sample; `lines` of them exist.
template <class Traits, int width>
__device__ inline void load_rows(const Arguments& p, const std::byte* x, int there, int lines,
                                 std::uint32_t shared) {
  constexpr int at_once = (Traits::has_chunks ? 2 : 4) / (width == 4 ? 2 : 1);  // as registers allow
  const Side& side = p.from;
  const std::uint32_t table = shared + side.table;
  const int count = static_cast<int>(side.pieces.value()) * p.groups * line_units;
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t step = side.sample * Traits::element;
  const auto source = [&](const Piece& piece) {
    const std::uint32_t feature =
        ptx::load_shared_4(table + piece.line * static_cast<int>(sizeof(Entry)) + 4);
    return x + feature * Traits::element + piece.unit * Traits::unit_elements * step;
  };
  const auto place = [&](const Piece& piece, int f) {
    const std::uint32_t line = ptx::load_shared_4(table + (piece.line + f) * static_cast<int>(sizeof(Entry)));
    return shared + piece.unit / line_units * side.lines * line_bytes + (line ^ piece.unit % line_units * 16);
  };
  for (int first = static_cast<int>(threadIdx.x); first < count; first += at_once * threads) {
    Samples<Traits, width> samples[at_once];
#pragma unroll
    for (int q = 0; q < at_once; ++q) {
      const Piece piece = piece_of<width>(side, first + q * threads, count, lines, table);
      if (piece.is_whole)
        load_samples<Traits, width>(samples[q], source(piece), step,
                                    there - piece.unit * Traits::unit_elements);
    }
#pragma unroll
    for (int q = 0; q < at_once; ++q) {
      const Piece piece = piece_of<width>(side, first + q * threads, count, lines, table);
      if (piece.is_whole) {
#pragma unroll
        for (int f = 0; f < width; ++f) store_unit<Traits, width>(place(piece, f), samples[q], f);
      } else if (piece.exists) {  // the last features, fewer than `width`
#pragma unroll 1
        for (int f = 0; f < width - 1; ++f) {
          if (piece.line + f >= lines ||
              ptx::load_shared_4(table + (piece.line + f) * static_cast<int>(sizeof(Entry))) == no_line)
            break;
          Samples<Traits, 1> alone;
          load_samples<Traits, 1>(alone, source(piece) + f * Traits::element, step,
                                  there - piece.unit * Traits::unit_elements);
          store_unit<Traits, 1>(place(piece, f), alone, 0);
        }
      }
    }
  }
}

/// Fills the lines of a chunk in batch_last with asynchronous copies of units.
template <class Traits>
__device__ inline void copy_units(const Arguments& p, const std::byte* x, int there, int lines,
                                  std::uint32_t shared) {
  const Side& side = p.from;
  const int shift = p.group_shift + line_unit_bits, units = 1 << shift, count = lines << shift;
#pragma unroll 4
  for (int number = static_cast<int>(threadIdx.x); number < count; number += static_cast<int>(blockDim.x)) {
    const int unit = number & (units - 1);
    Entry entry[1];
    load_entries(entry, shared + side.table, number >> shift);
    if (entry[0].place == no_line) continue;
    const int bytes =
        max(0, min(Traits::unit_elements, there - unit * Traits::unit_elements)) * Traits::element;
    const std::byte* const from = x + entry[0].feature * side.feature * Traits::element + unit * 16;
    ptx::copy_async_16(
        shared + unit / line_units * side.lines * line_bytes + (entry[0].place ^ unit % line_units * 16),
        bytes > 0 ? from : p.x, bytes);
  }
  ptx::commit_copies();
  ptx::wait_copies<0>();
}

[[nodiscard]] __device__ inline bool is_aligned_to_4(const void* address) {
  return (reinterpret_cast<std::uintptr_t>(address) & 3u) == 0;
}

/// The place of a sample in the lines of a tile.
template <class Traits>
[[nodiscard]] __device__ inline std::uint32_t sample_at(const Side& side, std::uint32_t place, int sample) {
  const int unit = sample / Traits::unit_elements;
  return unit / line_units * side.lines * line_bytes +
         ((place ^ unit % line_units * 16) + sample % Traits::unit_elements * Traits::element);
}

/// A warp's part of a line in batch_last where memory allows no units: a word of each lane, 128 bytes.
struct WarpPart {
  Entry entry;
  int sample;  ///< the lane's first
};

template <class Traits>
[[nodiscard]] __device__ inline WarpPart warp_part(const Arguments& p, int number, int count,
                                                   std::uint32_t table) {
  Entry entry[1] = {{no_line, 0}};
  if (number < count) load_entries(entry, table, number >> p.group_shift);
  return {entry[0],
          ((number & (p.groups - 1)) * 32 + static_cast<int>(threadIdx.x) % 32) * (4 / Traits::element)};
}

/// Fills the lines of a chunk in batch_last word by word. A half type's line may begin at an odd element: its
/// words in memory then hold the second sample of a lane, and the first of the next lane.
template <class Traits>
__device__ inline void load_words(const Arguments& p, const std::byte* x, int there, int lines,
                                  std::uint32_t shared) {
  constexpr int at_once = Traits::has_chunks ? 4 : 8;  // as registers allow
  const Side& side = p.from;
  const std::uint32_t table = shared + side.table;
  const int warp = static_cast<int>(threadIdx.x) / 32, warps = static_cast<int>(blockDim.x) / 32;
  const bool is_first = threadIdx.x % 32 == 0;
  const int count = lines << p.group_shift;
  const auto source = [&](const WarpPart& part) {
    return x + (part.entry.feature * side.feature + part.sample) * Traits::element;
  };
  const auto half = [](const std::byte* from) { return *reinterpret_cast<const std::uint16_t*>(from); };
  for (int first = warp; first < count; first += at_once * warps) {
    std::uint32_t words[at_once], before[at_once];
#pragma unroll
    for (int q = 0; q < at_once; ++q) {
      const WarpPart part = warp_part<Traits>(p, first + q * warps, count, table);
      words[q] = before[q] = 0;
      if (part.entry.place == no_line) continue;
      const std::byte* const from = source(part);
      const int rest = there - part.sample;
      if constexpr (!Traits::half) {
        if (rest > 0) words[q] = *reinterpret_cast<const std::uint32_t*>(from);
      } else if (is_aligned_to_4(from)) {
        if (rest > 1)
          words[q] = *reinterpret_cast<const std::uint32_t*>(from);
        else if (rest > 0)
          words[q] = half(from);
      } else {
        if (rest > 2)
          words[q] = *reinterpret_cast<const std::uint32_t*>(from + 2);
        else if (rest > 1)
          words[q] = half(from + 2);
        if (is_first && rest > 0) before[q] = half(from);
      }
    }
#pragma unroll
    for (int q = 0; q < at_once; ++q) {
      const WarpPart part = warp_part<Traits>(p, first + q * warps, count, table);
      if constexpr (Traits::half) {
        // All lanes of the warp are in the same line, so they agree.
        if (part.entry.place != no_line && !is_aligned_to_4(source(part))) {
          const std::uint32_t left = __shfl_up_sync(0xffffffffu, words[q], 1);
          words[q] = is_first ? before[q] | words[q] << 16 : __byte_perm(left, words[q], 0x5432);
        }
      }
      if (part.entry.place != no_line)
        ptx::store_shared_4(shared + sample_at<Traits>(side, part.entry.place, part.sample), words[q]);
    }
  }
}

/// Fills the lines of a chunk. Threads have to meet before and after.
template <class Traits>
__device__ inline void load_chunk(const Arguments& p, const Position& at, int chunk, std::uint32_t shared) {
  const Side& side = p.from;
  const std::int64_t feature =
      (static_cast<std::int64_t>(at.i) * side.height + chunk * side.rows) * p.d + at.j;
  const std::byte* const x = p.x + (at.n * side.sample + feature * side.feature) * Traits::element;
  const int there = samples_from(p, at.n);
  // The last chunk may have fewer terms; it then belongs to one i, and its lines are the first ones.
  const int rest = side.height - chunk * side.rows;
  const int lines = rest < side.rows ? rest * static_cast<int>(p.run.value()) : side.lines;
  if (p.samples_first) {
    if (side.width == 4)
      load_rows<Traits, 4>(p, x, there, lines, shared);
    else if (side.width == 2)
      load_rows<Traits, 2>(p, x, there, lines, shared);
    else
      load_rows<Traits, 1>(p, x, there, lines, shared);
  } else if (side.width == Traits::unit_elements) {
    copy_units<Traits>(p, x, there, lines, shared);
  } else {
    load_words<Traits>(p, x, there, lines, shared);
  }
}

}  // namespace kronsparse::cuda::mma
