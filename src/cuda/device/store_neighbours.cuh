// Sums of neighbours in y on their way there: what the epilogue does to them, one rounding, one store.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/device/epilogue.cuh"
#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// Bias, activation and the rounding of neighbours in y, to words of two; `feature` is the first's. Where
/// is_plain(args), that is known to the compiler.
template <bool plain, class T, class Arguments, int count>
__device__ inline void round_neighbours(std::uint32_t (&words)[count / 2], float (&sums)[count],
                                        const Arguments& args, std::int64_t feature) {
  if constexpr (!plain) {
    if (args.bias != nullptr) {
#pragma unroll
      for (int e = 0; e < count; ++e)
        sums[e] += static_cast<float>(__ldcg(static_cast<const T*>(args.bias) + feature + e));
    }
    activate_all(sums, args.activation);
  }
  T rounded[count];
#pragma unroll
  for (int e = 0; e < count; ++e) rounded[e] = static_cast<T>(sums[e]);
  memcpy(words, rounded, sizeof(words));
}

/// Stores them, at once where y is aligned.
template <bool plain, class T, class Arguments, int count>
__device__ inline void store_neighbours(const std::uint32_t (&words)[count], const Arguments& args, T* to) {
  if (plain || args.y_vectors) {
    ptx::store_words(to, words);
    return;
  }
  T rounded[count * 2];
  memcpy(rounded, words, sizeof(words));
#pragma unroll
  for (int e = 0; e < count * 2; ++e) to[e] = rounded[e];
}

}  // namespace kronsparse::cuda
