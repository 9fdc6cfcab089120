// How small batches of half types are cut up on Hopper, and what their kernels are told. Host code only.
#pragma once

#include <cstdint>

#include "cuda/cut_choice.hpp"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "cuda/stream_tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace stream {

inline constexpr int max_batch = 64;

using Choice = CutChoice<Cut>;

/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);

/// Blocks that have weights of their own; each sample block needs as many.
[[nodiscard]] std::int64_t blocks_of_weights(const Cut& cut, const Product& p);
[[nodiscard]] inline std::int64_t sample_blocks(const Cut& cut, const Product& p) {
  return divided_up(p.batch, cut.samples);
}
/// Chunks of weights that a block reads, and bytes of all packed weights.
[[nodiscard]] inline std::int64_t block_chunks(const Cut& cut) {
  return std::int64_t{cut.block_rows()} * cut.chunks;
}
[[nodiscard]] std::int64_t weight_bytes(const Cut& cut, const Product& p);

/// What a launch is told, but for the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with them. What is not aligned is read and written in smaller units.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace stream

using StreamKernel = void (*)(stream::Arguments);

/// The kernel for so many samples of a block, of f16 or bf16.
[[nodiscard]] StreamKernel stream_kernel(DType dtype, int samples);

}  // namespace kronsparse::cuda
