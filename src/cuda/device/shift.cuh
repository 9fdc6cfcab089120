// Vectors of 16 bytes cut out of two neighbouring ones: how rows that begin anywhere are read and written
// whole vectors at a time.
#pragma once

#include <cstdint>

#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda {

/// The 16 bytes that begin `bytes` bytes into `one`, an even number from 0 to 14; `next` follows `one`.
__device__ inline uint4 shifted(const uint4& one, const uint4& next, std::uint32_t bytes) {
  const bool two_words = (bytes & 8) != 0, one_word = (bytes & 4) != 0;
  const std::uint32_t w0 = two_words ? one.z : one.x, w1 = two_words ? one.w : one.y,
                      w2 = two_words ? next.x : one.z, w3 = two_words ? next.y : one.w,
                      w4 = two_words ? next.z : next.x, w5 = two_words ? next.w : next.y;
  const std::uint32_t v0 = one_word ? w1 : w0, v1 = one_word ? w2 : w1, v2 = one_word ? w3 : w2,
                      v3 = one_word ? w4 : w3, v4 = one_word ? w5 : w4;
  const std::uint32_t bits = (bytes & 2) * 8;
  return {__funnelshift_r(v0, v1, bits), __funnelshift_r(v1, v2, bits), __funnelshift_r(v2, v3, bits),
          __funnelshift_r(v3, v4, bits)};
}

/// Stores the elements of 2 bytes from `first` up to `end` of a vector to an address that 16 divides. Those
/// at one end of the vector take at most three stores.
__device__ inline void store_part(std::uint16_t* to, const uint4& vector, int first, int end) {
  const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
  const std::uint32_t word_1[1] = {vector.y}, word_3[1] = {vector.w};
  const std::uint32_t front[2] = {vector.x, vector.y}, back[2] = {vector.z, vector.w};
  if (first <= 0 && end >= 8) {
    ptx::store_words(to, words);
  } else if (first <= 0) {  // 4, 2 and 1 of them
    const bool four = (end & 4) != 0, two = (end & 2) != 0;
    const std::uint32_t pair[1] = {four ? vector.z : vector.x};
    const std::uint32_t behind = four ? vector.w : vector.y;
    if (four) ptx::store_words(to, front);
    if (two) ptx::store_words(to + (four ? 4 : 0), pair);
    if ((end & 1) != 0) to[end - 1] = static_cast<std::uint16_t>(two ? behind : pair[0]);
  } else if (end >= 8) {  // 1, 2 and 4 of them
    const std::uint32_t word = first < 2 ? vector.x : first < 4 ? vector.y : first < 6 ? vector.z : vector.w;
    if ((first & 1) != 0) to[first] = static_cast<std::uint16_t>(word >> 16);
    const int even = (first + 1) / 2 * 2;
    if (even == 2) ptx::store_words(to + 2, word_1);
    if (even == 6) ptx::store_words(to + 6, word_3);
    if (even <= 4) ptx::store_words(to + 4, back);
  } else {
#pragma unroll
    for (int at = 0; at < 8; ++at)
      if (at >= first && at < end) to[at] = static_cast<std::uint16_t>(words[at / 2] >> at % 2 * 16);
  }
}

}  // namespace kronsparse::cuda
