// What packing values costs on the CPU, and what is said where they are packed for somebody else.
#pragma once

#include "kronsparse/problem.hpp"

namespace kronsparse {

inline constexpr const char* other_order = "does not read values in the order they are packed in";

/// Predicted: values are read and written once, a few at a time.
[[nodiscard]] inline double packing_seconds(const Problem& problem) {
  constexpr double start = 5e-7, values_per_second = 5e8;
  return start + static_cast<double>(problem.pattern().nnz()) / values_per_second;
}

}  // namespace kronsparse
