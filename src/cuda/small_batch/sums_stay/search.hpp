// The cuts of `sums-stay`, and its arguments. Host code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/sums_stay/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace sums_stay {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. There is none if d has no shape; if the copy engine does not take the stride
/// between rows of x; if no two warpgroups or blocks can share l; if shared memory is too small.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of the cuts that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Slabs are numbered through all blocks that
/// split l, so the number of slabs of a block does not matter; nor do warpgroups and stages.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  return one.shape == other.shape &&
         std::int64_t{one.slabs} * one.splits == std::int64_t{other.slabs} * other.splits &&
         one.k_blocks == other.k_blocks;
}

[[nodiscard]] inline std::int64_t blocks_of(const Cut& cut, const Product& p) {
  return p.a * cut.k_blocks * cut.splits;
}
/// Bytes of all packed weights.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return blocks_of(cut, p) * cut.slabs * cut.shape.slab_weight_bytes();
}

/// The arguments of a launch, without the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with the operands. If x is not aligned, threads copy it.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace sums_stay

using SumsStayKernel = void (*)(sums_stay::Arguments);

[[nodiscard]] SumsStayKernel sums_stay_f16_kernel(const sums_stay::Shape& shape);
[[nodiscard]] SumsStayKernel sums_stay_bf16_kernel(const sums_stay::Shape& shape);
[[nodiscard]] inline SumsStayKernel sums_stay_kernel(DType dtype, const sums_stay::Shape& shape) {
  return dtype == DType::bf16 ? sums_stay_bf16_kernel(shape) : sums_stay_f16_kernel(shape);
}

}  // namespace kronsparse::cuda
