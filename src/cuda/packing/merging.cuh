// The arithmetic of factors that are multiplied together while they are packed, and its threads. It also
// compiles for the CPU, for tests.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>

#include "cuda/packing/merging.hpp"

namespace kronsparse::cuda::merging {

inline constexpr int threads = 128;

__host__ __device__ inline float widened(__half value) { return __half2float(value); }
__host__ __device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__host__ __device__ inline float widened(float value) { return value; }
__host__ __device__ inline void round_to(float value, __half& to) { to = __float2half_rn(value); }
__host__ __device__ inline void round_to(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }
__host__ __device__ inline void round_to(float value, float& to) { to = value; }

/// The largest number of a type, and the power of two that the largest weights of an output stay below. It
/// is low enough for sums in f32.
template <class T>
struct Range;
template <>
struct Range<__half> {
  static constexpr double most = 65504;
  static constexpr int below = 15;
};
template <>
struct Range<__nv_bfloat16> {
  static constexpr double most = 0x1.fep127;
  static constexpr int below = 1;
};
template <>
struct Range<float> {
  static constexpr double most = 0x1.fffffep127;
  static constexpr int below = 1;
};

/// The value of the product at a row and column that its pattern has: the sum over all paths from the row to
/// the column. A path takes one term l of each factor; only those that lead to the column are followed.
/// Double precision for its range: half numbers and floats may lie near the ends of theirs.
/// `value_of(factor, index)` reads a value.
template <class ValueOf>
[[nodiscard]] __host__ __device__ inline double merged_value(const MergeTask& task, std::int32_t row,
                                                             std::int32_t column, const ValueOf& value_of) {
  std::int32_t at[MergeTask::most_factors + 1];  // rows of the factors on the path
  std::int32_t next[MergeTask::most_factors];    // the next term to try
  double products[MergeTask::most_factors + 1];
  at[0] = row;
  next[0] = 0;
  products[0] = 1;
  double sum = 0;
  for (int level = 0; level >= 0;) {
    if (level == task.count) {
      sum += products[level--];
      continue;
    }
    const Sizes& p = task.factors[level];
    const std::int32_t i = at[level] / (p.b * p.d), j = at[level] % p.d, k = at[level] / p.d % p.b;
    std::int32_t l = next[level];
    for (; l < p.c; ++l) {
      const std::int32_t middle = (i * p.c + l) * p.d + j;
      if (level + 1 == task.count) {
        if (middle == column) break;
        continue;
      }
      const Sizes& rest = task.products[level + 1];
      if (middle / (rest.b * rest.d) == column / (rest.c * rest.d) && middle % rest.d == column % rest.d)
        break;
    }
    if (l == p.c) {
      --level;
      continue;
    }
    next[level] = l + 1;
    at[level + 1] = (i * p.c + l) * p.d + j;
    products[level + 1] = products[level] * static_cast<double>(value_of(
                                                level, (std::int64_t{i * p.b + k} * p.c + l) * p.d + j));
    ++level;
    if (level < task.count) next[level] = 0;
  }
  return sum;
}

/// The exponent of a double, as its bits have it. Zeros, infinities and NaNs, which no power of two moves,
/// have none: 0.
[[nodiscard]] __host__ __device__ inline unsigned exponent_bits(double value) {
  const auto bits = static_cast<unsigned>(std::bit_cast<std::uint64_t>(value) >> 52) & 0x7ffu;
  return bits == 0x7ffu ? 0 : bits;
}

/// The power of two, as an exponent, that sums of weights with the largest of these exponents are multiplied
/// by. It is one that a float has.
template <class T>
[[nodiscard]] __host__ __device__ inline int exponent_of_sums(unsigned largest_bits) {
  if (largest_bits == 0) return 0;
  const int exponent = static_cast<int>(largest_bits) - 1022 - Range<T>::below;
  return exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
}

/// Writes a weight that is multiplied by 2^-exponent, and what rounding left, `to_rest` bytes further; 0:
/// not.
template <class T>
__host__ __device__ inline void store_weight(double value, int exponent, std::byte* to, int to_rest) {
  value *= std::bit_cast<double>(static_cast<std::uint64_t>(1023 - exponent) << 52);
  const bool is_finite = (std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ffu) != 0x7ffu;
  // Only if no float is as large as the power of two ought to be; then sums are infinite, or x is zero.
  if (is_finite && value > Range<T>::most) value = Range<T>::most;
  if (is_finite && value < -Range<T>::most) value = -Range<T>::most;
  T rounded, rest;
  round_to(static_cast<float>(value), rounded);
  *reinterpret_cast<T*>(to) = rounded;
  if (to_rest == 0) return;
  round_to(is_finite ? static_cast<float>(value - static_cast<double>(widened(rounded))) : 0.0f, rest);
  *reinterpret_cast<T*>(to + to_rest) = rest;
}

/// Computes and packs the outputs of one warp among `warps`.
template <class T>
__device__ inline void merge_outputs(const MergeTask& task, std::int64_t warp, std::int64_t warps, int lane) {
  // Weights beyond these are computed twice.
  constexpr int most_kept = 32;
  double kept[most_kept];
  const int lanes = task.lanes, in_warp = 32 / lanes;
  const auto outputs = static_cast<std::int32_t>(task.order.b),
             terms = static_cast<std::int32_t>(task.order.c);
  const std::int32_t padded_outputs = task.padded_outputs(), padded_terms = task.padded_terms(),
                     d = task.merged.d;
  const auto value_at = [&](std::int32_t i, std::int32_t k, std::int32_t l, std::int32_t j) -> double {
    if (k >= outputs || l >= terms) return 0;
    const std::int32_t of_output = (i * outputs + k) * d + j, of_term = (i * terms + l) * d + j;
    return merged_value(task, task.transposed ? of_term : of_output, task.transposed ? of_output : of_term,
                        [&](int factor, std::int64_t index) {
                          return widened(static_cast<const T*>(task.values[factor])[index]);
                        });
  };
  // The outputs are a multiple of 16, and those of a warp are 4 at most: either all of them exist or none.
  for (std::int64_t first = warp * in_warp; first < task.all_padded_outputs(); first += warps * in_warp) {
    const auto number = static_cast<std::int32_t>(first) + lane / lanes;
    const std::int32_t j = number % d, k = number / d % padded_outputs, i = number / d / padded_outputs;
    unsigned largest = 0;
    int turn = 0;
    for (std::int32_t l = lane % lanes; l < padded_terms; l += lanes, ++turn) {
      const double value = value_at(i, k, l, j);
      if (turn < most_kept) kept[turn] = value;
      largest = max(largest, exponent_bits(value));
    }
    for (int by = 1; by < lanes; by *= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, by));
    const int exponent = exponent_of_sums<T>(largest);
    turn = 0;
    for (std::int32_t l = lane % lanes; l < padded_terms; l += lanes, ++turn)
      store_weight<T>(turn < most_kept ? kept[turn] : value_at(i, k, l, j), exponent,
                      task.packed + task.place(i, k, l, j), task.parts == 1 ? 0 : task.to_rest());
    if (lane % lanes == 0 && k < outputs)
      task.exponents[(std::int64_t{i} * outputs + k) * d + j] = static_cast<std::uint8_t>(exponent + 127);
  }
}

/// The kernel's threads.
template <class T>
__device__ inline void merge_in_grid(const MergeTask& task) {
  constexpr int warps = threads / 32;
  const auto thread = static_cast<int>(threadIdx.x);
  merge_outputs<T>(task, std::int64_t{blockIdx.x} * warps + thread / 32, std::int64_t{gridDim.x} * warps,
                   thread % 32);
}

}  // namespace kronsparse::cuda::merging
