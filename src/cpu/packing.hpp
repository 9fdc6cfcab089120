// The cost of packing values on the CPU, and the refusal of those that are packed in another order.
#pragma once

#include "kronsparse/problem.hpp"

namespace kronsparse {

inline constexpr const char* other_order = "does not read values in the order they are packed in";

/// Predicted: values are read and written once, a few at a time.
[[nodiscard]] inline double packing_seconds(const Pattern& pattern) {
  constexpr double start = 5e-7, values_per_second = 5e8;
  return start + static_cast<double>(pattern.nnz()) / values_per_second;
}
[[nodiscard]] inline double packing_seconds(const Problem& problem) {
  return packing_seconds(problem.pattern());
}

}  // namespace kronsparse
