// The order in which the kernel `fused_wgmma` reads weights: slices of 16 terms and some outputs, its
// columns, as the right operand of wgmma lies in shared memory without swizzle.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/host/divisor.hpp"
#include "cuda/packing/layout.hpp"
#include "cuda/packing/mixed_terms.hpp"

namespace kronsparse::cuda {

/// For every (i, j), for every chunk of outputs, for every 16 terms: a slice, and of rounded products a
/// second one with what rounding left. In a slice, 8 outputs by 8 terms lie together, output by output.
struct SliceOrder {
  static constexpr int terms = 16;

  std::int64_t a = 1, b = 1, c = 1, d = 1;  ///< sizes of the product: b outputs, c terms
  int columns = 0;                          ///< outputs of a chunk
  int parts = 1;                            ///< slices of the same terms
  int mixing = 0;                           ///< terms are exchanged by j (mixed_terms.hpp)

  [[nodiscard]] __host__ __device__ std::int64_t chunks() const { return divided_up(b, columns); }
  [[nodiscard]] __host__ __device__ std::int64_t padded_outputs() const { return chunks() * columns; }
  /// The slices of a chunk.
  [[nodiscard]] __host__ __device__ std::int64_t slices() const { return divided_up(c, terms) * parts; }
  [[nodiscard]] __host__ __device__ std::int64_t slice_elements() const {
    return std::int64_t{columns} * terms;
  }
  [[nodiscard]] std::int64_t elements() const { return a * d * chunks() * slices() * slice_elements(); }

  /// Elements from the first packed weight to this one, or to its first part.
  [[nodiscard]] __host__ __device__ std::int64_t place(std::int64_t i, std::int64_t k, std::int64_t l,
                                                       std::int64_t j) const {
    const std::int64_t chunk = (i * d + j) * chunks() + k / columns, n = k % columns;
    const std::int64_t slice = chunk * slices() + l / terms * parts;
    const std::int64_t in_slice = ((n / 8 * 2 + l % terms / 8) * 8 + n % 8) * 8;
    return slice * slice_elements() + in_slice + (l % 8 ^ exchange_of(static_cast<int>(j), mixing));
  }

  /// The order as digits; it has one part.
  [[nodiscard]] PackLayout layout(DType dtype, bool transposed) const {
    PackLayout layout;
    layout.a = a;
    layout.b = b;
    layout.c = c;
    layout.d = d;
    layout.transposed = transposed;
    layout.dtype = dtype;
    layout.mixing = mixing;
    for (const int term : {1, 2, 4}) layout.bit({.l = term});
    layout.digit(8, {.k = 1});
    layout.digit(2, {.l = 8});
    layout.digit(columns / 8, {.k = 8});
    layout.digit(slices(), {.l = terms});
    layout.digit(chunks(), {.k = columns});
    layout.digit(d, {.j = 1});
    return layout;
  }
};

}  // namespace kronsparse::cuda
