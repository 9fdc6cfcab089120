// Weights in the order in which a small batch's kernel reads them: the kernel's cut says of every place which
// weight belongs there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/implementation.hpp"
#include "cuda/packing/layout.hpp"

namespace kronsparse::cuda {

/// Which weight lies at a place of the packed ones; some do not exist.
struct PackedPlace {
  std::int64_t i, k, l, j;
};

/// Of tensor cores' right operand a lane holds four terms of 16, or eight of 32; which of them is free, as
/// long as weights follow. The one at place `at`, when a load has `load_terms` of them: those that make the
/// loads of neighbouring lanes contiguous.
[[nodiscard]] __host__ __device__ constexpr int term_of(int load_terms, int lane_in_four, int at) {
  return load_terms * (4 * (at / load_terms) + lane_in_four) + at % load_terms;
}

/// Takes a number apart, the fastest digit first.
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
