// The order in which the wgmma kernel reads weights, and the kernel that puts them into it.
//
// A block works on one group: J neighbouring j of one i, and one tile of N
// outputs. What it reads for 16 terms l is contiguous ("a chunk"): for each of
// the J products the N x 16 weights as wgmma's right operand, in blocks of 8
// outputs by 16 bytes. A float is stored twice, as its TF32 part and as what
// that leaves, so that nobody has to split it again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kronsparse::cuda {

struct WgmmaOrder {
  std::int64_t a, b, c, d;  ///< of the product: b outputs, c terms
  std::int64_t j_groups;    ///< groups of neighbouring j
  std::int64_t k_tiles;
  std::int64_t chunks;  ///< of 16 terms, padded to whole stages
  int j_count;          ///< products in a group
  int tile_k;           ///< outputs in a tile, a multiple of 8
  int parts;            ///< 1, or 2 for floats

  /// Elements of one product in a chunk.
  [[nodiscard]] __host__ __device__ int product_elements() const { return tile_k * 16 * parts; }
  [[nodiscard]] __host__ __device__ std::int64_t chunk_elements() const {
    return std::int64_t{j_count} * product_elements();
  }
  [[nodiscard]] __host__ __device__ std::int64_t group_elements() const { return chunks * chunk_elements(); }
  [[nodiscard]] __host__ __device__ std::int64_t groups() const { return a * j_groups * k_tiles; }
  [[nodiscard]] __host__ __device__ std::int64_t elements() const { return groups() * group_elements(); }

  /// Where in its product's chunk weight (k, l) lies; a float's rest lies tile_k · 16 further.
  ///
  /// Lane 4g + t of a warp holds terms 4t to 4t + 3 of x, because it can read
  /// them at once; the terms of the weights are permuted to match. Half types:
  /// the tensor core's terms 2t, 2t+1 and 2t+8, 2t+9 are these four. Floats:
  /// terms t and t+4 of the first step of 8, then of the second.
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
    return group * group_elements() + l / 16 * chunk_elements() + j % j_count * product_elements() +
           place_in_product(static_cast<int>(k % tile_k), static_cast<int>(l % 16));
  }
};

#if defined(__CUDACC__)  // tests read the orders without it

/// The TF32 number nearest to a float; what is not finite stays as it is.
__host__ __device__ inline std::uint32_t tf32_part(std::uint32_t bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

/// Writes the weights' places; the others must be zero already. One thread a weight, in the order of the
/// values.
template <class Element>
__global__ void pack_wgmma_weights(const Element* values, Element* packed, WgmmaOrder order,
                                   bool transposed) {
  const std::int64_t total = order.a * order.b * order.c * order.d;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  // The values' own shape: b and c before the transposition.
  const std::int64_t inner = transposed ? order.b : order.c;
  const std::int64_t outer = transposed ? order.c : order.b;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < total; at += threads) {
    const std::int64_t j = at % order.d;
    const std::int64_t column = at / order.d % inner;
    const std::int64_t row = at / order.d / inner % outer;
    const std::int64_t i = at / order.d / inner / outer;
    const std::int64_t to = transposed ? order.place(i, column, row, j) : order.place(i, row, column, j);
    const Element value = values[at];
    if constexpr (sizeof(Element) == 2) {
      packed[to] = value;
    } else {
      const Element high = tf32_part(value);
      const float rest = __uint_as_float(value) - __uint_as_float(high);
      packed[to] = high;
      packed[to + order.tile_k * 16] = isfinite(rest) ? __float_as_uint(rest) : 0u;
    }
  }
}

#endif

}  // namespace kronsparse::cuda
