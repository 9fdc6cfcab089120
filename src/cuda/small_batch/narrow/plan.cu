// The small-batch kernel `narrow`: its launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/idle_blocks.hpp"
#include "cuda/small_batch/narrow/search.hpp"

namespace kronsparse::cuda {
namespace {

struct Narrow {
  using Cut = narrow::Cut;
  using Arguments = narrow::Arguments;
  static constexpr const char* name = "narrow";
  static constexpr const char* kernel_name = "multiply_narrow";
  static constexpr const char* summary =
      "batches up to 64 of half types: tensor copies of x, blocks of few outputs on Hopper's tensor "
      "cores";
  static constexpr const char* uncut =
      "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    if (problem.layout != Layout::batch_first) return "takes batch_first only, not batch_last";
    if (std::string reason = batch_refusal(problem, narrow::max_samples); !reason.empty()) return reason;
    const std::int64_t d = problem.pattern().d;
    if (d != 1 && d != 2 && d != 4) return message("takes d = 1, 2 or 4, not {}", d);
    return {};
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return hopper_refusal(facts); }
  static narrow::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return narrow::choose(problem, facts);
  }
  static std::vector<narrow::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return narrow::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.shape.block_j, cut.shape.outputs, cut.rows,     cut.splits,
            cut.warpgroups,    cut.stage_slabs,   cut.x_stages, cut.weight_stages};
  }
  static narrow::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return narrow::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(narrow_kernel(dtype, cut.shape));
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& facts) {
    const Product p = product_of(problem);
    return {.blocks = with_idle_blocks(blocks_of(cut, p), facts, cut.splits),
            .threads = cut.threads() + narrow::producer_threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .cluster_blocks = cut.splits};
  }
};

}  // namespace

CutFamily narrow_cuts() { return cuts_of<Narrow>(); }
Implementation narrow_implementation() { return implementation_by_cuts<Narrow>(); }

}  // namespace kronsparse::cuda
