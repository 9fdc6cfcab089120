// The order of terms in blocks that are read as lines: within eight, terms are exchanged, differently for
// neighbouring j.
//
// A product stores its results as lines, eight at once, and these are often terms of the next product's
// blocks that differ in their j alone. Lines that lie a multiple of eight apart share their banks of shared
// memory. So the exchange puts the same term of neighbouring blocks at different places in its eight. Weights
// are packed in the same order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kronsparse::cuda {

/// Folds a number to 0..7, so that neighbours, and numbers 8 or 16 apart, differ.
[[nodiscard]] __host__ __device__ constexpr int folded(int number) {
  return (number ^ number >> 2 ^ number >> 4) & 7;
}
/// What j is multiplied by before it is folded; 0 for blocks that are alone (d = 1), which are not mixed.
[[nodiscard]] __host__ __device__ constexpr int mixing_of(std::int64_t d) {
  return d == 1 ? 0 : d >= 8 ? 1 : d >= 3 ? 2 : 4;
}
/// What the number of a term is exchanged by, in the blocks of this j.
[[nodiscard]] __host__ __device__ constexpr int exchange_of(int j, int mixing) {
  return mixing == 0 ? 0 : folded(j * mixing);
}
/// The place of a term among those of its block. The exchange is its own inverse.
[[nodiscard]] __host__ __device__ constexpr int mixed_term(int term, int j, int mixing) {
  return term ^ exchange_of(j, mixing);
}

}  // namespace kronsparse::cuda
