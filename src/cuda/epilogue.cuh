// What happens to a sum before it is stored: bias, activation, one rounding.
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

}  // namespace kronsparse::cuda
