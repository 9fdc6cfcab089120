// Neighbouring factors multiplied together before their values are packed: ten factors of 2x2 blocks become
// two of 32x32, and a kernel has two products to compute instead of ten.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/host/runtime.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::cuda {

/// A pattern's sizes, for device code.
struct Sizes {
  std::int64_t a = 1, b = 1, c = 1, d = 1;
};

/// Multiplies a few neighbouring factors whose product has a pattern.
struct MergeTask {
  static constexpr int most_factors = 16;

  int count = 0;
  DType dtype = DType::f32;
  Sizes merged;                  ///< the pattern of the product
  Sizes factors[most_factors];   ///< the left one first
  Sizes products[most_factors];  ///< that of each factor with all to its right
  const void* values[most_factors] = {};
  void* to = nullptr;
  /// Half types: the product is more exact than they are, so that it goes in two parts, rounded and the rest.
  void* to_rest = nullptr;
};

/// Whether a product of factors takes two parts in a dtype.
[[nodiscard]] inline bool merges_in_parts(DType dtype) { return dtype != DType::f32; }

/// A task without addresses. Each factor times the product of those to its right must have a pattern.
[[nodiscard]] MergeTask merge_task(std::span<const Pattern> factors, DType dtype);
/// Launches a task, in the order of the stream.
void merge_values(const MergeTask& task, Stream stream);

/// The value of the product at a row and column that its pattern has: the sum over all paths from the row to
/// the column. A path takes one term l of each factor; only those that lead to the column are followed.
/// `value_of(factor, index)` reads a value.
template <class ValueOf>
[[nodiscard]] __host__ __device__ inline float merged_value(const MergeTask& task, std::int64_t row,
                                                            std::int64_t column, const ValueOf& value_of) {
  std::int64_t at[MergeTask::most_factors + 1];  // rows of the factors on the path
  std::int64_t next[MergeTask::most_factors];    // the next term to try
  float products[MergeTask::most_factors + 1];
  at[0] = row;
  next[0] = 0;
  products[0] = 1;
  float sum = 0;
  for (int level = 0; level >= 0;) {
    if (level == task.count) {
      sum += products[level--];
      continue;
    }
    const Sizes& p = task.factors[level];
    const std::int64_t i = at[level] / (p.b * p.d), j = at[level] % p.d, k = at[level] / p.d % p.b;
    std::int64_t l = next[level];
    for (; l < p.c; ++l) {
      const std::int64_t middle = (i * p.c + l) * p.d + j;
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
    products[level + 1] = products[level] * value_of(level, ((i * p.b + k) * p.c + l) * p.d + j);
    ++level;
    if (level < task.count) next[level] = 0;
  }
  return sum;
}

}  // namespace kronsparse::cuda
