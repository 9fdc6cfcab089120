// What a run of the simd family costs: to rank it against others, and to see
// how many threads it is worth.
#pragma once

#include "cpu/simd/kernel_set.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::simd {

/// Predicted seconds of a run on one thread.
template <class Real>
[[nodiscard]] double seconds_alone(const Problem& problem, const KernelSet<Real>& kernels);

}  // namespace kronsparse::simd
