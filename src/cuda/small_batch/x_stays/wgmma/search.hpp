// The cuts of `x-stays-wgmma`, and its arguments. Host code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/x_stays/wgmma/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace x_stays_wgmma {

inline constexpr int max_batch = 64;

using Choice = CutChoice<Cut>;

/// Every cut worth considering. There is none if x does not fit into shared memory.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of the cuts that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Samples, stages, and the threads that bring x
/// and store y do not matter. Rows are numbered through a block, unless warpgroups have several each, and
/// through all blocks, unless these split l.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  if (one.j_group != other.j_group || one.j_groups != other.j_groups || one.cluster != other.cluster ||
      one.chunks != other.chunks || one.run != other.run)
    return false;
  const auto interleaves = [](const Cut& cut) { return cut.rows > 1 && cut.warpgroups > 1; };
  if (interleaves(one) || interleaves(other))
    return one.rows == other.rows && one.warpgroups == other.warpgroups && one.k_blocks == other.k_blocks;
  if (one.cluster > 1) return one.block_rows() == other.block_rows() && one.k_blocks == other.k_blocks;
  return std::int64_t{one.block_rows()} * one.k_blocks == std::int64_t{other.block_rows()} * other.k_blocks;
}

/// Blocks that have weights of their own. Each block of samples needs as many.
[[nodiscard]] std::int64_t blocks_of_weights(const Cut& cut, const Product& p);
[[nodiscard]] inline std::int64_t sample_blocks(const Cut& cut, const Product& p) {
  return divided_up(p.batch, cut.samples);
}
/// Chunks of weights that a block reads, and bytes of all packed weights.
[[nodiscard]] inline std::int64_t block_chunks(const Cut& cut) {
  return std::int64_t{cut.block_rows()} * cut.chunks;
}
[[nodiscard]] std::int64_t weight_bytes(const Cut& cut, const Product& p);

/// The arguments of a launch, without the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with the operands. Operands that are not aligned are read and written in smaller units.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace x_stays_wgmma

using XStaysWgmmaKernel = void (*)(x_stays_wgmma::Arguments);

/// The kernel for `samples` samples per block, of f16 or bf16.
[[nodiscard]] XStaysWgmmaKernel x_stays_wgmma_kernel(DType dtype, int samples);

}  // namespace kronsparse::cuda
