// Weights in the order in which a kernel for small batches reads them. The kernel's cut says which weight
// belongs at each place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/implementation.hpp"
#include "cuda/packing/layout.hpp"

namespace kronsparse::cuda {

/// The weight at a place among the packed ones. Some of these weights do not exist.
struct PackedPlace {
  std::int64_t i, k, l, j;
};

/// The term at place `at` of a lane. A lane of the tensor cores' right operand holds four terms of 16, or
/// eight of 32. Which terms these are is free, as long as the weights have the same order. A load has
/// `load_terms` terms; this order makes the loads of neighbouring lanes contiguous.
[[nodiscard]] __host__ __device__ constexpr int term_of(int load_terms, int lane_in_four, int at) {
  return load_terms * (4 * (at / load_terms) + lane_in_four) + at % load_terms;
}

/// Gives the numbers of an order back to what they were taken from, one after the other.
inline void take_numbers(const PackedOrder& order, std::initializer_list<int*> to) {
  std::size_t at = 0;
  for (int* const number : to) *number = static_cast<int>(order.numbers[at++]);
}

/// Splits a number into digits, the fastest first.
class Digits {
 public:
  __host__ __device__ explicit Digits(std::int64_t number) : rest_(number) {}
  __host__ __device__ std::int64_t take(std::int64_t count) {
    const std::int64_t digit = rest_ % count;
    rest_ /= count;
    return digit;
  }
  [[nodiscard]] __host__ __device__ std::int64_t rest() const { return rest_; }

 private:
  std::int64_t rest_;
};

}  // namespace kronsparse::cuda
