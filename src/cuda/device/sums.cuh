// Sums of mma.sync in a warp's registers, before they are stored: bias and activation.
#pragma once

#include "cuda/device/tensor_core.cuh"

namespace kronsparse::cuda {

/// Lane 4g + t holds outputs g and g + 8 of a tile, for samples 2t and 2t + 1.
template <class Traits, int tiles>
using Sums = float[tiles][Traits::n_tiles][4];  // (16 outputs, 8 samples, 4 sums)

/// Adds the bias to 16 outputs, of which `outputs` exist. `feature` is that of the first one; the next one is
/// `d` further.
template <class Traits>
__device__ inline void add_bias(float (&sums)[Traits::n_tiles][4], const void* bias, std::int64_t feature,
                                int d, int outputs, int g) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int output = upper * 8 + g;
    const float value =
        output < outputs ? mma::load_element<Traits>(bias, feature + std::int64_t{output} * d) : 0.0f;
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n) {
      sums[n][2 * upper] += value;
      sums[n][2 * upper + 1] += value;
    }
  }
}

/// Applies the activation. Its code is long: sums take turns in the registers of one copy of it.
template <class Traits, int tiles>
__device__ inline void activate_sums(Sums<Traits, tiles>& sums, Activation activation) {
  constexpr int at_once = 8, count = tiles * Traits::n_tiles * 4;
  float* const all = &sums[0][0][0];
#pragma unroll 1
  for (int turn = 0; turn < count; turn += at_once) {
    float now[at_once];
#pragma unroll
    for (int e = 0; e < at_once; ++e) now[e] = all[e];
#pragma unroll
    for (int e = 0; e + at_once < count; ++e) all[e] = all[e + at_once];
    activate_all(now, activation);
#pragma unroll
    for (int e = 0; e < at_once; ++e) all[count - at_once + e] = now[e];
  }
}

}  // namespace kronsparse::cuda
