// The epilogue: bias, activation and one rounding, applied to a sum before it is stored.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

template <class Real>
__device__ inline Real activate(Real value, Activation activation) {
  switch (activation) {
    case Activation::relu:
      return value < Real(0) ? Real(0) : value;  // NaN stays NaN
    case Activation::gelu:
      return Real(0.5) * value * (Real(1) + erf(value * Real(0.70710678118654752440)));
    case Activation::gelu_tanh:
      return Real(0.5) * value *
             (Real(1) +
              tanh(Real(0.79788456080286535588) * (value + Real(0.044715) * value * value * value)));
    case Activation::silu:
      return value / (Real(1) + exp(-value));
    case Activation::none:
      break;
  }
  return value;
}

/// Whether sums are only rounded and stored as vectors. The code for that is much shorter.
template <class Arguments>
__host__ __device__ inline bool is_plain(const Arguments& args) {
  return args.bias == nullptr && args.activation == Activation::none && args.y_vectors;
}

/// Rotates the values through one copy of the activations, because their code is long.
template <int count>
__device__ inline void activate_all(float (&values)[count], Activation activation) {
  if (activation == Activation::none) return;
#pragma unroll 1
  for (int turn = 0; turn < count; ++turn) {
    const float activated = activate(values[0], activation);
#pragma unroll
    for (int e = 0; e + 1 < count; ++e) values[e] = values[e + 1];
    values[count - 1] = activated;
  }
}

}  // namespace kronsparse::cuda
