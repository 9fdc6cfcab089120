// The cuts of `x-stays-mma`. Host code only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/host/product.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/x_stays/mma/tiles.cuh"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda::x_stays_mma {

inline constexpr int max_batch = 64;

using Choice = CutChoice<Cut>;

/// Every cut worth considering. There is none only if a grid would be too large.
[[nodiscard]] std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts);
/// The cheapest cut, by the cost model.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts);
/// The cheapest of the cuts that read weights in the order of another cut of the same factor.
[[nodiscard]] Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as);

/// Whether two cuts read the same rows of packed weights. Rows are numbered through a block, and through all
/// blocks unless these split l.
[[nodiscard]] inline bool same_order_of_rows(const Cut& one, const Cut& other) {
  const std::int64_t rows = one.rows_per_group * one.groups, other_rows = other.rows_per_group * other.groups;
  if (one.cluster > 1) return rows == other_rows && one.k_blocks == other.k_blocks;
  return rows * one.k_blocks == other_rows * other.k_blocks;
}
/// Whether two cuts of one factor read the same packed weights. The number of samples of a block does not
/// matter. Tiles are numbered through all warps that split l, unless they are staged in segments.
[[nodiscard]] inline bool same_order(const Cut& one, const Cut& other) {
  return one.j_group == other.j_group && one.j_groups == other.j_groups && one.cluster == other.cluster &&
         one.run == other.run && one.segments == other.segments &&
         (one.segments == 1 || one.warps_per_row == other.warps_per_row) &&
         one.warps_per_row * one.tiles_per_warp == other.warps_per_row * other.tiles_per_warp &&
         same_order_of_rows(one, other);
}

template <class Int>
constexpr Int ceil_div(Int value, Int by) {
  return static_cast<Int>(quotient_up(value, by));
}

/// Calls the body with the type of the elements as its template argument.
template <class Body>
decltype(auto) dispatch_type(DType dtype, Body&& body) {
  if (dtype == DType::f16) return body.template operator()<__half>();
  if (dtype == DType::bf16) return body.template operator()<__nv_bfloat16>();
  return body.template operator()<float>();
}

/// Rows of a group that are neighbouring j; a power of two.
[[nodiscard]] inline int j_fastest(const Cut& cut) {
  const int in_panel = cut.j_group & -cut.j_group;  // the largest power of two that divides it
  return std::min(in_panel, cut.rows_per_group);
}

[[nodiscard]] inline std::int64_t blocks_of_weights(const Cut& cut, const Product& p) {
  return p.a * cut.j_groups * cut.k_blocks * cut.cluster;
}

/// Bytes of weights that one block reads, and bytes of all packed weights.
[[nodiscard]] inline std::int64_t bytes_of_block(const Cut& cut) {
  return std::int64_t{cut.groups} * cut.warps() * cut.segments * cut.tiles_per_warp * tile_bytes;
}
[[nodiscard]] inline std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return blocks_of_weights(cut, p) * bytes_of_block(cut);
}
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  return dispatch_type(problem.dtype, [&]<class T>() { return pack_layout<T>(problem, cut); });
}

[[nodiscard]] inline std::size_t shared_bytes(const Problem& problem, const Cut& cut) {
  const int samples = static_cast<int>(std::min<std::int64_t>(problem.batch, cut.n_tiles * 8));
  return dispatch_type(problem.dtype, [&]<class T>() {
    return static_cast<std::size_t>(shared_layout<T>(cut, samples, j_fastest(cut)).total);
  });
}

/// The arguments of a launch, without the operands.
[[nodiscard]] Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights);
/// The same with the operands. Operands that are not aligned are read and written by elements.
[[nodiscard]] Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands);

}  // namespace kronsparse::cuda::x_stays_mma
