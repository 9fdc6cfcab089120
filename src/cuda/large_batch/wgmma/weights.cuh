// The order in which the kernels `wgmma` and `gemm` read weights.
//
// A block works on one group: J neighbouring j of one i, and one tile of N outputs. A chunk is the weights of
// a group for 16 terms l, and is contiguous: for each of the J products (N, 16) weights as wgmma's right
// operand, in blocks of 8 outputs x 16 bytes. A float is stored twice, as its TF32 part and as the remainder,
// so that nobody has to split it again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/implementation.hpp"
#include "cuda/packing/layout.hpp"

namespace kronsparse::cuda {

struct WgmmaOrder {
  std::int64_t a, b, c, d;  ///< sizes of the product: b outputs, c terms
  std::int64_t j_groups;    ///< groups of neighbouring j
  std::int64_t k_tiles;
  std::int64_t chunks;  ///< chunks of 16 terms, padded to whole stages
  int j_count;          ///< products in a group
  int tile_k;           ///< outputs in a tile, a multiple of 8
  int parts;            ///< 1, or 2 for floats
  /// Half types: rows of 64 terms, one for each output, with the copy engine's swizzle. Else blocks of 8
  /// outputs x 16 bytes, with terms in the order in which lanes hold x.
  bool swizzled_rows = false;

  /// Elements of one product in a chunk.
  [[nodiscard]] __host__ __device__ int product_elements() const { return tile_k * 16 * parts; }
  [[nodiscard]] __host__ __device__ std::int64_t chunk_elements() const {
    return std::int64_t{j_count} * product_elements();
  }
  [[nodiscard]] __host__ __device__ std::int64_t group_elements() const { return chunks * chunk_elements(); }
  [[nodiscard]] __host__ __device__ std::int64_t groups() const { return a * j_groups * k_tiles; }
  [[nodiscard]] __host__ __device__ std::int64_t elements() const { return groups() * group_elements(); }

  /// The place of weight (k, l) in its product's chunk. The remainder of a float lies tile_k · 16 further.
  ///
  /// Lane 4g + t of a warp holds terms 4t to 4t + 3 of x, because it can read them at once; the terms of the
  /// weights are permuted to match. Half types: the tensor core's terms 2t, 2t+1 and 2t+8, 2t+9 are these
  /// four. Floats: terms t and t+4 of the first step of 8, then of the second.
  [[nodiscard]] __host__ __device__ int place_in_product(int k, int l) const {
    const int t = l / 4;
    const int eight = k / 8;
    const int row = k % 8;
    if (parts == 1) return eight * 128 + (l % 4 / 2) * 64 + row * 8 + 2 * t + l % 2;
    const int step = l % 4 / 2;
    return step * tile_k * 8 + eight * 64 + (l % 2) * 32 + row * 4 + t;
  }

  [[nodiscard]] __host__ __device__ std::int64_t place(std::int64_t i, std::int64_t k, std::int64_t l,
                                                       std::int64_t j) const {
    const std::int64_t group = (i * j_groups + j / j_count) * k_tiles + k / tile_k;
    if (swizzled_rows) {
      const std::int64_t row = l / 64 * tile_k + k % tile_k;
      return group * group_elements() + row * 64 + ((l % 64 / 8) ^ (k % 8)) * 8 + l % 8;
    }
    return group * group_elements() + l / 16 * chunk_elements() + j % j_count * product_elements() +
           place_in_product(static_cast<int>(k % tile_k), static_cast<int>(l % 16));
  }
};

/// The TF32 number nearest to a float, or the largest one. Infinities and NaN stay as they are.
[[nodiscard]] __host__ __device__ inline std::uint32_t tf32_part(std::uint32_t bits) {
  constexpr std::uint32_t exponent = 0x7f800000u, kept = 0xffffe000u;
  if ((bits & exponent) == exponent) return bits;
  const std::uint32_t rounded = (bits + 0x1000u) & kept;
  return (rounded & exponent) == exponent ? bits & kept : rounded;
}

/// The order as digits.
[[nodiscard]] PackLayout pack_layout(const Problem& problem, const WgmmaOrder& order);

/// The numbers that place() depends on.
[[nodiscard]] PackedOrder packed_order(const WgmmaOrder& order, bool transposed);

}  // namespace kronsparse::cuda
