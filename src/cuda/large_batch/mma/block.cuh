// Pieces of the kernel `mma` that its loads, products and stores share.
#pragma once

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/large_batch/mma/tiles.cuh"

namespace kronsparse::cuda::mma {

template <Arithmetic kind, Shape shape>
struct Traits {
  static constexpr Arithmetic arithmetic = kind;
  static constexpr bool half = kind == Arithmetic::f16 || kind == Arithmetic::bf16;
  static constexpr bool compensated = kind == Arithmetic::tf32x3;
  static constexpr int element = half ? 2 : 4;
  static constexpr int unit_elements = 16 / element;
  static constexpr int samples = line_bytes / element;  ///< of a line
  static constexpr int n_tiles = samples / 8;
  static constexpr int k_step = 2 * unit_elements;  ///< terms of one product of a tensor core
  static constexpr int slots = shape.slots;
  static constexpr int blocks = shape.blocks;
  static constexpr bool has_chunks = shape.has_chunks;
};

/// The position of a block's tile: its first i, j, output and sample.
struct Position {
  int i, j, k;
  std::int64_t n;
};

struct Lane {
  int lane, g, t;  ///< lane = 4g + t, as in the description of fragments
};

/// The swizzle of a line's units, for row `row` of block `block`. Neighbours in a block, and neighbours in
/// memory, lie in different banks. Lanes read floats from four lines, two units of each: such pairs stay
/// together.
template <class Traits>
[[nodiscard]] __device__ inline int swizzle_of(int block, int row) {
  const int number = (block + row) & 7;
  return Traits::half ? number : (number & 3) << 1 | number >> 2;
}

/// Bytes from the first line of a group to the first unit of a line. Unit u lies at that number ^ 16·u.
template <class Traits>
[[nodiscard]] __device__ inline std::uint32_t place_of(int block, int rows, int row) {
  return static_cast<std::uint32_t>((block * rows + row) * line_bytes + swizzle_of<Traits>(block, row) * 16);
}

/// Writes the entries of a side's lines. `first_row`: the first output; terms begin at 0.
template <class Traits>
__device__ inline void fill_table(const Arguments& p, const Side& side, const Position& at, int first_row,
                                  std::uint32_t shared) {
  const auto run = static_cast<int>(p.run.value());
  for (int line = static_cast<int>(threadIdx.x); line < side.lines; line += static_cast<int>(blockDim.x)) {
    const auto run_number = static_cast<int>(p.run.quotient(static_cast<std::uint32_t>(line)));
    const auto i = static_cast<int>(side.by_rows.quotient(static_cast<std::uint32_t>(run_number)));
    const int j = line - run_number * run, row = run_number - i * side.rows;
    const bool exists = first_row + row < side.height && at.j + j < p.d && at.i + i < p.a;
    ptx::store_shared_8(shared + side.table + line * static_cast<int>(sizeof(Entry)),
                        exists ? place_of<Traits>(i * run + j, side.rows, row) : no_line,
                        static_cast<std::uint32_t>((i * side.height + row) * p.d + j));
  }
}

/// The entries of `count` neighbouring lines.
template <int count>
__device__ inline void load_entries(Entry (&entries)[count], std::uint32_t table, int line) {
  const std::uint32_t from = table + line * static_cast<int>(sizeof(Entry));
  if constexpr (count == 1) {
    const uint2 words = ptx::load_shared_8(from);
    entries[0] = {words.x, words.y};
  } else {
#pragma unroll
    for (int at = 0; at < count; at += 2) {
      const uint4 words = ptx::load_shared_16(from + at * static_cast<int>(sizeof(Entry)));
      entries[at] = {words.x, words.y};
      entries[at + 1] = {words.z, words.w};
    }
  }
}

/// The samples that exist from `first` on, as far as an int goes.
[[nodiscard]] __device__ inline int samples_from(const Arguments& p, std::int64_t first) {
  const std::int64_t rest = p.batch - first;
  return rest > (1 << 20) ? 1 << 20 : static_cast<int>(rest);
}

}  // namespace kronsparse::cuda::mma
