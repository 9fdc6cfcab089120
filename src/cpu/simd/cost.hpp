// The cost of a run of the simd family: to rank it against others, and to see
// how many threads it is worth.
#pragma once

#include "cpu/simd/kernel_set.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::simd {

/// Predicted seconds of a run on one thread: of arithmetic, of calls of the
/// micro-kernel, and of bringing X to it and Y away from it.
template <class Real>
[[nodiscard]] double seconds_alone(const Problem& problem, const KernelSet<Real>& kernels);

/// Whether that is with samples turned into columns: see cpu/turned.hpp.
template <class Real>
[[nodiscard]] bool is_faster_turned(const Problem& problem, const KernelSet<Real>& kernels);

}  // namespace kronsparse::simd
