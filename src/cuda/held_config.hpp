// How small batches are cut up for the kernel whose x stays in registers, and what it is told. Host code
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/cut_choice.hpp"
#include "cuda/held_tiles.cuh"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {

namespace held {

using Choice = CutChoice<Cut>;

/// Every cut worth considering. None where c·d is more than 4096 or no multiple of 64, and where rows of x
/// are apart by what the copy engine does not take.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest of them, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of those that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts of one factor read the same packed weights. Tiles are numbered through all blocks: how
/// many a block has matters no more than its samples.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  return one.shape == other.shape &&
         std::int64_t{one.tiles} * one.k_blocks == std::int64_t{other.tiles} * other.k_blocks;
}

[[nodiscard]] inline std::int64_t blocks_of(const Cut& cut, const Product& p) {
  return p.a * cut.k_blocks * cut.sample_blocks;
}
/// Of all packed weights.
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return p.a * cut.k_blocks * cut.tiles * tile_weight_bytes;
}

/// What a launch is told, but for the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with them. Where x is not as the copy engine wants it, threads copy it; where y is not aligned,
/// elements are stored.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

/// Whether there is little to do but multiply: x comes by the copy engine, and results are rounded and stored
/// as vectors. Such launches have kernels of their own, because code that is not run costs time as well:
/// there is less of it in the instructions' cache.
[[nodiscard]] bool is_ordinary(const Arguments& args);

}  // namespace held

using HeldKernel = void (*)(held::Arguments);

[[nodiscard]] HeldKernel held_f16_kernel(const held::Shape& shape, bool ordinary);
[[nodiscard]] HeldKernel held_bf16_kernel(const held::Shape& shape, bool ordinary);
[[nodiscard]] inline HeldKernel held_kernel(DType dtype, const held::Shape& shape, bool ordinary) {
  return dtype == DType::bf16 ? held_bf16_kernel(shape, ordinary) : held_f16_kernel(shape, ordinary);
}

}  // namespace kronsparse::cuda
