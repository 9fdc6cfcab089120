// The cuts of `weights-stay`, and its arguments. Host code only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/weights_stay/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace weights_stay {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. There is none if c·d is more than 4096 or not a multiple of 64, or if the
/// copy engine does not take the stride between rows of x.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of the cuts that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Samples do not matter.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  return one.shape == other.shape && one.k_tiles == other.k_tiles;
}

[[nodiscard]] inline std::int64_t blocks_of(const Cut& cut, const Product& p) {
  return p.a * cut.k_tiles * cut.sample_blocks;
}
/// Bytes of all packed weights.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return p.a * cut.k_tiles * warps * cut.shape.fragments * 512;
}

/// The arguments of a launch, without the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with the operands. If the copy engine cannot take x, threads copy it. If y is not aligned,
/// elements are stored.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace weights_stay

using WeightsStayKernel = void (*)(weights_stay::Arguments);

[[nodiscard]] WeightsStayKernel weights_stay_f16_kernel(const weights_stay::Shape& shape);
[[nodiscard]] WeightsStayKernel weights_stay_bf16_kernel(const weights_stay::Shape& shape);
[[nodiscard]] inline WeightsStayKernel weights_stay_kernel(DType dtype, const weights_stay::Shape& shape) {
  return dtype == DType::bf16 ? weights_stay_bf16_kernel(shape) : weights_stay_f16_kernel(shape);
}

}  // namespace kronsparse::cuda
