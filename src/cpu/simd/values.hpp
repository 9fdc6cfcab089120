// Values as the user gave them, read entry by entry: for whoever packs them.
#pragma once

#include <complex>
#include <cstdint>

#include "cpu/threads.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::simd {

/// Elements from one i, k or l of the matrix applied to the next; j are neighbours.
struct ValueStrides {
  std::int64_t i;
  std::int64_t k;
  std::int64_t l;
};
[[nodiscard]] inline ValueStrides value_strides(const Problem& problem) {
  const Pattern& p = problem.pattern();
  const bool transposed =
      problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  return {p.b * p.c * p.d, (transposed ? 1 : p.c) * p.d, (transposed ? p.c : 1) * p.d};
}

/// Calls body(read), where read(i, k, l, j) is the entry of the matrix applied.
template <class Real, class Body>
void with_values(const Problem& problem, const void* values, const Body& body) {
  const ValueStrides strides = value_strides(problem);
  const auto reader = [&](const auto* typed, auto convert) {
    body([=](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
      return convert(typed[i * strides.i + k * strides.k + l * strides.l + j]);
    });
  };
  const auto as_real = [](auto value) { return static_cast<Real>(value); };
  const auto as_float = [](auto value) { return static_cast<Real>(static_cast<float>(value)); };
  const Real sign = problem.operation == Operation::adjoint ? Real(-1) : Real(1);
  const auto as_complex = [=](auto value) {
    return std::complex<Real>(static_cast<Real>(value.real()), sign * static_cast<Real>(value.imag()));
  };
  switch (problem.dtype) {
    case DType::f32:
      return reader(static_cast<const float*>(values), as_real);
    case DType::f64:
      return reader(static_cast<const double*>(values), as_real);
    case DType::f16:
      return reader(static_cast<const Half*>(values), as_float);
    case DType::bf16:
      return reader(static_cast<const BFloat16*>(values), as_float);
    case DType::complex64:
      return reader(static_cast<const std::complex<float>*>(values), as_complex);
    case DType::complex128:
      return reader(static_cast<const std::complex<double>*>(values), as_complex);
  }
}

/// How many threads are worth waking to pack so many reals.
[[nodiscard]] inline int threads_to_pack(std::int64_t reals) {
  constexpr double seconds_per_real = 2e-9;
  return threads_for(static_cast<double>(reals) * seconds_per_real);
}

}  // namespace kronsparse::simd
