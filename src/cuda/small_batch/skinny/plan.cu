// The small-batch kernel `skinny`: its launch and its entry in the table.
#include <string>

#include "core/geometry.hpp"
#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/skinny/kernel.cuh"
#include "cuda/small_batch/skinny/search.hpp"

namespace kronsparse::cuda {
namespace {

/// Whether to prefetch weights. Clusters and long sequences of tiles lose by it (measured on an H200).
bool gains_by_prefetch(const skinny::Cut& cut) {
  return cut.cluster == 1 && cut.groups == 1 && cut.segments == 1 && cut.tiles_per_warp <= 24;
}

using SkinnyKernel = void (*)(skinny::Arguments);

template <class T>
SkinnyKernel kernel_of(const skinny::Cut& cut) {
  switch (cut.n_tiles) {
    case 1:
      return gains_by_prefetch(cut) ? skinny::multiply_skinny<T, 1, true> : skinny::multiply_skinny<T, 1>;
    case 2:
      return skinny::multiply_skinny<T, 2>;
    case 4:
      return skinny::multiply_skinny<T, 4>;
    default:
      return skinny::multiply_skinny<T, 8>;
  }
}

struct Skinny {
  using Cut = skinny::Cut;
  using Arguments = skinny::Arguments;
  static constexpr const char* name = "skinny";
  static constexpr const char* kernel_name = "multiply_skinny";
  static constexpr const char* summary =
      "batches up to 64: weights streamed once, tensor cores for half types";
  static constexpr const char* uncut = "has no way to cut a pattern of this size into blocks";

  static std::string refusal(const Problem& problem) {
    if (problem.operation == Operation::gradient) return "computes products, not the gradient of the values";
    if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
      return message("multiplies f16, bf16 and f32, not {}", kronsparse::name(problem.dtype));
    return batch_refusal(problem, skinny::max_batch);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 80); }
  static skinny::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return skinny::choose(problem, facts);
  }
  static std::vector<skinny::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return skinny::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.n_tiles,        cut.j_group, cut.cluster,  cut.warps_per_row,
            cut.rows_per_group, cut.groups,  cut.segments, cut.tiles_per_warp};
  }
  static skinny::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return skinny::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return skinny::dispatch_type(dtype,
                                 [&]<class T>() { return reinterpret_cast<const void*>(kernel_of<T>(cut)); });
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& /*facts*/) {
    const Product p = product_of(problem);
    return {.blocks = dim3(static_cast<unsigned>(blocks_of_weights(cut, p)),
                           static_cast<unsigned>(quotient_up(p.batch, cut.n_tiles * 8))),
            .threads = cut.warps() * 32,
            .shared_bytes = shared_bytes(problem, cut),
            .cluster_blocks = cut.cluster};
  }
};

}  // namespace

CutFamily skinny_cuts() { return cuts_of<Skinny>(); }
Implementation skinny_implementation() { return implementation_by_cuts<Skinny>(); }

}  // namespace kronsparse::cuda
