// Neighbouring factors multiplied together while their values are packed: ten factors of 2x2 blocks become
// two of 32x32, and a kernel has two products to compute instead of ten.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/mma/weights.cuh"
#include "cuda/packing/slice_order.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::cuda {

/// A pattern's sizes, for device code.
struct Sizes {
  std::int32_t a = 1, b = 1, c = 1, d = 1;
};

/// Multiplies a few neighbouring factors whose product has a pattern, and packs the product.
///
/// Weights that a dtype holds may have products that it does not. So each output of the product (a row, or a
/// column if it is transposed) is stored times a power of two that brings its largest weight near 2^15 in
/// f16, or near 1, and the kernel multiplies its sums by the inverse.
struct MergeTask {
  static constexpr int most_factors = 16;

  int count = 0;
  DType dtype = DType::f32;
  bool transposed = false;
  Sizes merged;                  ///< the pattern of the product
  Sizes factors[most_factors];   ///< the left one first
  Sizes products[most_factors];  ///< that of each factor with all to its right
  FragmentOrder order{};         ///< of the product, unless it goes in slices
  SliceOrder slices{};           ///< of the product, if it has columns
  int parts = 1;                 ///< fragments or slices of the same weights, one after the other
  int lanes = 32;                ///< lanes of a warp that compute one output
  const void* values[most_factors] = {};
  std::byte* packed = nullptr;        ///< the fragments of the first (i, j)
  std::uint8_t* exponents = nullptr;  ///< for each output: the exponent of what its sums are multiplied by

  [[nodiscard]] __host__ __device__ bool has_slices() const { return slices.columns != 0; }
  /// The places of one (i, j), with those of outputs and terms that do not exist.
  [[nodiscard]] __host__ __device__ std::int32_t padded_outputs() const {
    return static_cast<std::int32_t>(has_slices() ? slices.padded_outputs() : order.m_tiles() * 16);
  }
  [[nodiscard]] __host__ __device__ std::int32_t padded_terms() const {
    return static_cast<std::int32_t>(order.k_steps() * order.k_step());
  }
  [[nodiscard]] __host__ __device__ std::int64_t all_padded_outputs() const {
    return order.a * order.d * padded_outputs();
  }
  /// Bytes from the first packed weight to this one.
  [[nodiscard]] __host__ __device__ std::int64_t place(std::int64_t i, std::int64_t k, std::int64_t l,
                                                       std::int64_t j) const {
    if (has_slices()) return slices.place(i, k, l, j) * 2;
    const std::int64_t at = order.place(i, k, l, j), in_fragment = at % order.fragment_elements();
    return ((at - in_fragment) * parts + in_fragment) * (order.wide ? 4 : 2);
  }
  /// Bytes from a weight to its other part.
  [[nodiscard]] __host__ __device__ std::int32_t to_rest() const {
    return has_slices() ? static_cast<std::int32_t>(slices.slice_elements() * 2) : 512;
  }
  [[nodiscard]] std::int64_t bytes() const {
    return has_slices() ? slices.elements() * 2 : order.elements() * parts * (order.wide ? 4 : 2);
  }
};

/// The parts of a product's weights. The product of half numbers is more exact than they are, so it goes in
/// two parts, rounded and the rest.
[[nodiscard]] constexpr int merged_parts(DType dtype) { return dtype == DType::f32 ? 1 : 2; }

/// A task without addresses. Each factor times the product of those to its right must have a pattern.
[[nodiscard]] MergeTask merge_task(std::span<const Pattern> factors, DType dtype, bool transposed);
/// Launches a task, in the order of the stream.
void merge_values(const MergeTask& task, Stream stream);

}  // namespace kronsparse::cuda
