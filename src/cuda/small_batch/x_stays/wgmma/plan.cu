// The small-batch kernel `x-stays-wgmma`: its launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/x_stays/wgmma/search.hpp"

namespace kronsparse::cuda {
namespace {

struct XStaysWgmma {
  using Cut = x_stays_wgmma::Cut;
  using Arguments = x_stays_wgmma::Arguments;
  static constexpr const char* name = "x-stays-wgmma";
  static constexpr const char* kernel_name = "multiply_x_stays_wgmma";
  static constexpr const char* summary =
      "batches up to 64 of half types: x stays in shared memory, weights pass by Hopper's tensor cores";
  static constexpr const char* uncut = "has no way to cut a pattern of this size into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    return batch_refusal(problem, x_stays_wgmma::max_batch);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return hopper_refusal(facts); }
  static x_stays_wgmma::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return x_stays_wgmma::choose(problem, facts);
  }
  static std::vector<x_stays_wgmma::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return x_stays_wgmma::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.samples, cut.j_group, cut.cluster, cut.warpgroups, cut.threads, cut.rows, cut.stages};
  }
  static x_stays_wgmma::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return x_stays_wgmma::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(x_stays_wgmma_kernel(dtype, cut.samples));
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& /*facts*/) {
    const Product p = product_of(problem);
    return {.blocks = static_cast<unsigned>(blocks_of_weights(cut, p) * sample_blocks(cut, p)),
            .threads = cut.threads + x_stays_wgmma::producer_threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .cluster_blocks = cut.cluster};
  }
};

}  // namespace

CutFamily x_stays_wgmma_cuts() { return cuts_of<XStaysWgmma>(); }
Implementation x_stays_wgmma_implementation() { return implementation_by_cuts<XStaysWgmma>(); }

}  // namespace kronsparse::cuda
