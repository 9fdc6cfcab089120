// The small-batch kernel `x-stays-mma`: its launch and its entry in the table.
#include <string>

#include "core/geometry.hpp"
#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/x_stays/mma/kernel.cuh"
#include "cuda/small_batch/x_stays/mma/search.hpp"

namespace kronsparse::cuda {
namespace {

/// Whether to prefetch weights. Clusters and long sequences of tiles lose by it (measured on an H200).
bool gains_by_prefetch(const x_stays_mma::Cut& cut) {
  return cut.cluster == 1 && cut.groups == 1 && cut.segments == 1 && cut.tiles_per_warp <= 24;
}

using XStaysMmaKernel = void (*)(x_stays_mma::Arguments);

template <class T>
XStaysMmaKernel kernel_of(const x_stays_mma::Cut& cut) {
  switch (cut.n_tiles) {
    case 1:
      return gains_by_prefetch(cut) ? x_stays_mma::multiply_x_stays_mma<T, 1, true>
                                    : x_stays_mma::multiply_x_stays_mma<T, 1>;
    case 2:
      return x_stays_mma::multiply_x_stays_mma<T, 2>;
    case 4:
      return x_stays_mma::multiply_x_stays_mma<T, 4>;
    default:
      return x_stays_mma::multiply_x_stays_mma<T, 8>;
  }
}

struct XStaysMma {
  using Cut = x_stays_mma::Cut;
  using Arguments = x_stays_mma::Arguments;
  static constexpr const char* name = "x-stays-mma";
  static constexpr const char* kernel_name = "multiply_x_stays_mma";
  static constexpr const char* summary =
      "batches up to 64: x stays in shared memory, weights pass once; tensor cores for half types";
  static constexpr const char* uncut = "has no way to cut a pattern of this size into blocks";

  static std::string refusal(const Problem& problem) {
    if (problem.operation == Operation::gradient) return "computes products, not the gradient of the values";
    if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
      return message("multiplies f16, bf16 and f32, not {}", kronsparse::name(problem.dtype));
    return batch_refusal(problem, x_stays_mma::max_batch);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 80); }
  static x_stays_mma::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return x_stays_mma::choose(problem, facts);
  }
  static std::vector<x_stays_mma::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return x_stays_mma::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.n_tiles,        cut.j_group, cut.cluster,  cut.warps_per_row,
            cut.rows_per_group, cut.groups,  cut.segments, cut.tiles_per_warp};
  }
  static x_stays_mma::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return x_stays_mma::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return x_stays_mma::dispatch_type(
        dtype, [&]<class T>() { return reinterpret_cast<const void*>(kernel_of<T>(cut)); });
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

CutFamily x_stays_mma_cuts() { return cuts_of<XStaysMma>(); }
Implementation x_stays_mma_implementation() { return implementation_by_cuts<XStaysMma>(); }

}  // namespace kronsparse::cuda
