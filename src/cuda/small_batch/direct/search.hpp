// The cuts of `direct` and `unpacked`, and their arguments. Host code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/direct/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace direct {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. There is none if d is odd and not 1; if d is 1 and c is not a multiple of 4;
/// if the stride between rows of x allows no load of several terms or is 2^25 elements or more; if the
/// weights of 16 outputs (8 for d = 1) do not fit into shared memory.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The same for weights as given. There is none either if the weights' strides do not allow loads of several
/// weights, or an i has 2^31 weights.
[[nodiscard]] std::vector<Choice> choices_as_given(const Problem& problem, const GpuFacts& facts);
[[nodiscard]] Choice choose_as_given(const Problem& problem, const GpuFacts& facts);
/// The cheapest of the cuts that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Rows are numbered through all blocks and
/// steps through all warps, so the number of rows of a block, or of steps of a warp, does not matter; nor do
/// samples. But if x is the left operand, one tile of samples has another order of terms than several.
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
/// Bytes of all weights, packed or as given.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  if (cut.shape.as_given) return 2 * p.a * p.b * p.c * p.d;
  return p.a * cut.row_blocks * cut.chunks() * cut.chunk_bytes();
}

/// The shared memory to ask for, in per cent of the maximum: as much as a multiprocessor needs for its blocks
/// of this kernel. The rest is cache, which x needs. With room for blocks of later kernels as well, x would
/// be up to 2.4 times slower.
[[nodiscard]] int shared_percent(const Cut& cut, const Product& p, const GpuFacts& facts);

/// The arguments of a launch, without the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with the operands. Operands that are not aligned are read and written by elements.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace direct

using DirectKernel = void (*)(direct::Arguments);

[[nodiscard]] DirectKernel direct_f16_kernel(const direct::Shape& shape);
[[nodiscard]] DirectKernel direct_bf16_kernel(const direct::Shape& shape);
[[nodiscard]] inline DirectKernel direct_kernel(DType dtype, const direct::Shape& shape) {
  return dtype == DType::bf16 ? direct_bf16_kernel(shape) : direct_f16_kernel(shape);
}

}  // namespace kronsparse::cuda
