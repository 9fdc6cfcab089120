// Pieces that the tensor-core kernels mma and wgmma share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/epilogue.cuh"
#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// tf32x3 computes f32 as three TF32 products.
enum class Arithmetic { f16, bf16, tf32, tf32x3 };
/// The arrangement of x in shared memory; the loaders explain it. Only wgmma has `lines`.
enum class XForm { planes, rows, columns, lines };

namespace mma {

/// Swizzle of the 16-byte units in a row of samples (form `columns`). The rows that one instruction reads
/// then lie in different banks.
__device__ inline int swizzle(int l) { return (l & 1) | ((l >> 2) & 3) << 1; }

template <class Traits>
__device__ inline std::uint32_t pack_pair(float low, float high) {
  if constexpr (Traits::arithmetic == Arithmetic::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

template <class Traits>
__device__ inline float load_element(const void* from, std::int64_t at) {
  if constexpr (Traits::arithmetic == Arithmetic::f16)
    return __half2float(static_cast<const __half*>(from)[at]);
  else if constexpr (Traits::arithmetic == Arithmetic::bf16)
    return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[at]);
  else
    return static_cast<const float*>(from)[at];
}

/// Not inlined: five activations at each of a hundred places would be most of the kernel's code.
__device__ __noinline__ inline float activated(float value, Activation activation) {
  return activate(value, activation);
}

/// Stores up to 8 elements of a half type, followed by zeros. `from` may allow no wider load than one
/// element.
__device__ inline void store_elements(std::uint32_t to, const std::byte* from, int count) {
  const auto* elements = reinterpret_cast<const std::uint16_t*>(from);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    std::uint32_t pair = 0;
    if (2 * word < count) pair = elements[2 * word];
    if (2 * word + 1 < count) pair |= std::uint32_t{elements[2 * word + 1]} << 16;
    ptx::store_shared_4(to + word * 4, pair);
  }
}

/// Stores one word of results: both elements, or the first if the second does not exist.
template <class Traits>
__device__ inline void store_word(int y_store, std::byte* to, std::uint32_t word, bool second) {
  if (y_store >= 4 && (!Traits::half || second)) {
    *reinterpret_cast<std::uint32_t*>(to) = word;
  } else {
    auto* elements = reinterpret_cast<std::uint16_t*>(to);
    elements[0] = static_cast<std::uint16_t>(word);
    if (second) elements[1] = static_cast<std::uint16_t>(word >> 16);
  }
}

}  // namespace mma
}  // namespace kronsparse::cuda
