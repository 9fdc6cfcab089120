// The end of neighbouring sums: epilogue, one rounding, one store to y.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/device/epilogue.cuh"
#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// Applies bias and activation to neighbouring sums and rounds them, two to a word. `feature` is that of the
/// first. With `plain` the compiler knows is_plain(args).
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

/// Stores the words: with one instruction if y is aligned.
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
