// Pieces that the tensor-core kernels mma and wgmma share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/epilogue.cuh"
#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// tf32x3 computes f32 as three TF32 products.
enum class Arithmetic { f16, bf16, tf32, tf32x3 };
/// The arrangement of x in shared memory; the loaders explain it. Only wgmma has `lines`.
enum class XForm { planes, rows, columns, lines };

namespace mma {

/// Swizzle of the 16-byte units in a row of samples (form `columns`). The rows that one instruction reads
/// then lie in different banks.
__device__ inline int swizzle(int l) { return (l & 1) | ((l >> 2) & 3) << 1; }

template <class Traits>
__device__ inline std::uint32_t pack_pair(float low, float high) {
  if constexpr (Traits::arithmetic == Arithmetic::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

template <class Traits>
__device__ inline float load_element(const void* from, std::int64_t at) {
  if constexpr (Traits::arithmetic == Arithmetic::f16)
    return __half2float(static_cast<const __half*>(from)[at]);
  else if constexpr (Traits::arithmetic == Arithmetic::bf16)
    return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[at]);
  else
    return static_cast<const float*>(from)[at];
}

/// Not inlined: five activations at each of a hundred places would be most of the kernel's code.
__device__ __noinline__ inline float activated(float value, Activation activation) {
  return activate(value, activation);
}

/// A tile: a group (i, some j, some outputs) and some samples.
struct Tile {
  std::uint32_t group;
  std::uint32_t i, j0, k0;
  std::int64_t n0;
};

/// A thread's source in x, and how much of it exists.
struct Source {
  const std::byte* from = nullptr;
  int terms_left = 0, rows_left = 0, j_left = 0;
};

/// The source of a thread that takes term `l` of the chunks of a tile: in `columns` its unit `column` of
/// samples, else sample `row` and word `column` of j. No more than `most_rows` samples are counted.
template <class Traits, int ProductsOfWord, class Arguments>
__device__ inline Source source_in(const Arguments& p, const Tile& tile, int l, int column, int row,
                                   int most_rows) {
  Source source;
  source.terms_left = static_cast<int>(p.c) - l;
  std::int64_t n = tile.n0;
  std::int64_t j = tile.j0;
  if constexpr (Traits::form == XForm::columns) {
    n += column * (16 / Traits::element_bytes);
    source.rows_left = static_cast<int>(min(max(p.batch - n, std::int64_t{0}), std::int64_t{16}));
  } else {
    j += column * ProductsOfWord;
    n += row;
    source.rows_left = static_cast<int>(min(p.batch - n, std::int64_t{most_rows}));
  }
  source.j_left = static_cast<int>(max(min(p.d - j, std::int64_t{16}), std::int64_t{-16}));
  source.from = p.x + (n * p.x_sample + ((tile.i * p.c + l) * p.d + j) * p.x_feature) * Traits::element_bytes;
  return source;
}

/// Stores up to 8 elements of a half type, followed by zeros. `from` may allow no wider load than one
/// element.
__device__ inline void store_elements(std::uint32_t to, const std::byte* from, int count) {
  const auto* elements = reinterpret_cast<const std::uint16_t*>(from);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    std::uint32_t pair = 0;
    if (2 * word < count) pair = elements[2 * word];
    if (2 * word + 1 < count) pair |= std::uint32_t{elements[2 * word + 1]} << 16;
    ptx::store_shared_4(to + word * 4, pair);
  }
}

/// Copies 16 bytes of a term's samples (form `columns`), of which `samples` exist, in copies of `copy_bytes`:
/// 16, 4, or 2 for addresses that allow no other. `x` is any address that may be read.
template <class Traits>
__device__ inline void copy_samples(std::uint32_t to, const std::byte* from, int samples, int copy_bytes,
                                    const std::byte* x) {
  constexpr int per_unit = 16 / Traits::element_bytes;
  const bool inside = samples > 0;
  if (copy_bytes == 16) {
    ptx::copy_async_16(to, inside ? from : x, inside ? samples * Traits::element_bytes : 0);
  } else if (copy_bytes == 4 && (!Traits::half || samples == per_unit || !inside)) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const bool word_inside = inside && word * 4 < samples * Traits::element_bytes;
      ptx::copy_async_4(to + word * 4, word_inside ? from + word * 4 : x, word_inside);
    }
  } else if constexpr (Traits::half) {
    store_elements(to, from, inside ? samples : 0);
  }
}

/// Stores one word of results: both elements, or the first if the second does not exist.
template <class Traits>
__device__ inline void store_word(int y_store, std::byte* to, std::uint32_t word, bool second) {
  if (y_store >= 4 && (!Traits::half || second)) {
    *reinterpret_cast<std::uint32_t*>(to) = word;
  } else {
    auto* elements = reinterpret_cast<std::uint16_t*>(to);
    elements[0] = static_cast<std::uint16_t>(word);
    if (second) elements[1] = static_cast<std::uint16_t>(word >> 16);
  }
}

}  // namespace mma
}  // namespace kronsparse::cuda
