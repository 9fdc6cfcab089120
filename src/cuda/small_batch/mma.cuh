// Operands of m16n8k16 that x makes as it lies. A lane of the right operand holds four terms of one sample,
// and loads them with neighbouring j. packing/packed_place.cuh says which four terms.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// The pair of terms `number` of one j, taken from words that hold `block_j` j of each term.
template <int block_j, int count>
[[nodiscard]] __device__ inline std::uint32_t pair_of_terms(const std::uint32_t (&words)[count], int j,
                                                            int number) {
  constexpr int term_words = block_j / 2;
  return __byte_perm(words[2 * number * term_words + j / 2], words[(2 * number + 1) * term_words + j / 2],
                     j % 2 == 0 ? 0x5410 : 0x7632);
}

template <class T>
__device__ inline void multiply_tile(float (&sums)[4], const uint4& left, std::uint32_t right0,
                                     std::uint32_t right1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ptx::mma_bf16(sums, left, right0, right1);
  else
    ptx::mma_f16(sums, left, right0, right1);
}

}  // namespace kronsparse::cuda
