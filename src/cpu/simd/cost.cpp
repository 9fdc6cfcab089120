#include "cpu/simd/cost.hpp"

#include <algorithm>

namespace kronsparse::simd {

/// Arithmetic or memory, whichever is slower. Nominal rates: they rank
/// implementations against each other and are not a promise.
template <class Real>
double seconds_alone(const Problem& problem, const KernelSet<Real>& kernels) {
  constexpr double bytes_per_second = 1.0e10;
  const double arithmetic = problem.flops() / kernels.flops_per_second;
  const double memory = problem.bytes() / bytes_per_second;
  // A vector that a small problem cannot fill is partly wasted.
  const double start = 2e-7 + kernels.lanes * 1e-9;
  return start + std::max(arithmetic, memory);
}
template double seconds_alone<float>(const Problem&, const KernelSet<float>&);
template double seconds_alone<double>(const Problem&, const KernelSet<double>&);

}  // namespace kronsparse::simd
