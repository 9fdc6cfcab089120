// The order in which the kernels `mma` and `fused` read weights.
//
// For every (i, j), for every 16 outputs, for every step of terms (16 of a half type, 8 floats): the tensor
// core's left operand, of which every lane reads 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/implementation.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/packing/layout.hpp"

namespace kronsparse::cuda {

struct FragmentOrder {
  std::int64_t a, b, c, d;  ///< sizes of the product: b outputs, c terms
  bool wide;                ///< 4-byte elements

  [[nodiscard]] __host__ __device__ std::int64_t k_step() const { return wide ? 8 : 16; }
  [[nodiscard]] __host__ __device__ std::int64_t k_steps() const { return divided_up(c, k_step()); }
  [[nodiscard]] __host__ __device__ std::int64_t m_tiles() const { return divided_up(b, 16); }
  [[nodiscard]] __host__ __device__ std::int64_t fragment_elements() const { return 16 * k_step(); }
  [[nodiscard]] std::int64_t elements() const { return a * d * m_tiles() * k_steps() * fragment_elements(); }

  /// Lane 4g + t holds outputs g and g + 8. Its terms are 2t, 2t + 1, 2t + 8 and 2t + 9; of floats t and
  /// t + 4.
  [[nodiscard]] __host__ __device__ std::int64_t place(std::int64_t i, std::int64_t k, std::int64_t l,
                                                       std::int64_t j) const {
    const std::int64_t fragment = ((i * d + j) * m_tiles() + k / 16) * k_steps() + l / k_step();
    const std::int64_t upper = k / 8 % 2, g = k % 8;
    const std::int64_t in_fragment = wide ? (4 * g + l % 4) * 4 + l / 4 % 2 * 2 + upper
                                          : (4 * g + l % 8 / 2) * 8 + l / 8 % 2 * 4 + upper * 2 + l % 2;
    return fragment * fragment_elements() + in_fragment;
  }
};

/// The order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const FragmentOrder& order) {
  PackLayout layout = PackLayout::of(problem);
  if (order.wide) {
    layout.bit({.k = 8});
    layout.bit({.l = 4});
    layout.lanes({.l = 1}, {.k = 1});
  } else {
    layout.bit({.l = 1});
    layout.bit({.k = 8});
    layout.bit({.l = 8});
    layout.lanes({.l = 2}, {.k = 1});
  }
  layout.digit(order.k_steps(), {.l = order.k_step()});
  layout.digit(order.m_tiles(), {.k = 16});
  layout.digit(order.d, {.j = 1});
  return layout;
}

/// The numbers that place() depends on.
[[nodiscard]] inline PackedOrder packed_order(const FragmentOrder& order, bool transposed) {
  return {.family = "mma",
          .numbers = {transposed},
          .bytes = static_cast<std::size_t>(order.elements()) * (order.wide ? 4 : 2)};
}

}  // namespace kronsparse::cuda
