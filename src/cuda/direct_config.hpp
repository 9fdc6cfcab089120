// How small batches are cut up for the kernel that reads x straight into registers, and what it is told. Host
// code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/cut_choice.hpp"
#include "cuda/direct_tiles.cuh"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace direct {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. None where d is odd and not 1, where d is 1 and c no multiple of 4, where
/// rows of x are apart by what no load of several terms can begin at or by 2^25 elements or more, and where
/// the weights of 16 outputs (8 where d is 1) do not fit into shared memory.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest of them, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The same for weights as given. None either where loads of several weights cannot begin at all of them, or
/// an i has 2^31 weights.
[[nodiscard]] std::vector<Choice> choices_as_given(const Problem& problem, const GpuFacts& facts);
[[nodiscard]] Choice choose_as_given(const Problem& problem, const GpuFacts& facts);
/// The cheapest of those that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Rows are numbered through all blocks, steps
/// through all warps: how many a block or a warp has matters no more than samples do. But where x is the left
/// operand one tile of samples has another order of terms than several.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  const Shape &first = one.shape, &second = other.shape;
  return first.block_j == second.block_j && first.load == second.load && first.outputs == second.outputs &&
         (!first.x_is_left() || (first.tiles == 1) == (second.tiles == 1)) &&
         one.steps * one.l_warps == other.steps * other.l_warps && one.j_groups == other.j_groups &&
         std::int64_t{one.rows} * one.row_blocks == std::int64_t{other.rows} * other.row_blocks;
}

[[nodiscard]] inline std::int64_t blocks_of(const Cut& cut, const Product& p) {
  return p.a * cut.row_blocks * cut.sample_blocks;
}
/// Of all weights, packed or as given.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  if (cut.shape.as_given) return 2 * p.a * p.b * p.c * p.d;
  return p.a * cut.row_blocks * cut.chunks() * cut.chunk_bytes();
}

/// Shared memory that a multiprocessor needs for its blocks of the kernel, in per cent of what there can be.
/// The rest is cache, which x needs: where there is room for blocks of later kernels as well, it is up to 2.4
/// times slower.
[[nodiscard]] int shared_percent(const Cut& cut, const Product& p, const GpuFacts& facts);

/// What a launch is told, but for the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with them. What is not aligned is read and written by elements.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace direct

using DirectKernel = void (*)(direct::Arguments);

[[nodiscard]] DirectKernel direct_f16_kernel(const direct::Shape& shape);
[[nodiscard]] DirectKernel direct_bf16_kernel(const direct::Shape& shape);
[[nodiscard]] inline DirectKernel direct_kernel(DType dtype, const direct::Shape& shape) {
  return dtype == DType::bf16 ? direct_bf16_kernel(shape) : direct_f16_kernel(shape);
}

}  // namespace kronsparse::cuda
