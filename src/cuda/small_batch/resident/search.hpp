// How small batches are cut up for the kernel whose weights stay in registers, and what it is told. Host code
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/resident/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace resident {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. None where c·d is more than 4096 or no multiple of 64, and where rows of x
/// are apart by what the copy engine does not take.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest of them, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of those that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Samples do not matter.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  return one.shape == other.shape && one.k_tiles == other.k_tiles;
}

[[nodiscard]] inline std::int64_t blocks_of(const Cut& cut, const Product& p) {
  return p.a * cut.k_tiles * cut.sample_blocks;
}
/// Of all packed weights.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return p.a * cut.k_tiles * warps * cut.shape.fragments * 512;
}

/// What a launch is told, but for the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with them. Where x is not as the copy engine wants it, threads copy it; where y is not aligned,
/// elements are stored.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace resident

using ResidentKernel = void (*)(resident::Arguments);

[[nodiscard]] ResidentKernel resident_f16_kernel(const resident::Shape& shape);
[[nodiscard]] ResidentKernel resident_bf16_kernel(const resident::Shape& shape);
[[nodiscard]] inline ResidentKernel resident_kernel(DType dtype, const resident::Shape& shape) {
  return dtype == DType::bf16 ? resident_bf16_kernel(shape) : resident_f16_kernel(shape);
}

}  // namespace kronsparse::cuda
