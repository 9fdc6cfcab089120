// The small-batch kernel `sums-stay`: its launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/idle_blocks.hpp"
#include "cuda/small_batch/sums_stay/search.hpp"

namespace kronsparse::cuda {
namespace {

struct SumsStay {
  using Cut = sums_stay::Cut;
  using Arguments = sums_stay::Arguments;
  static constexpr const char* name = "sums-stay";
  static constexpr const char* kernel_name = "multiply_sums_stay";
  static constexpr const char* summary =
      "batches up to 64 of half types, d = 1, 2 or 4: few sums a block stay in registers, the rest passes by";
  static constexpr const char* uncut =
      "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    if (problem.layout != Layout::batch_first) return "takes batch_first only, not batch_last";
    if (std::string reason = batch_refusal(problem, sums_stay::max_samples); !reason.empty()) return reason;
    const std::int64_t d = problem.pattern().d;
    if (d != 1 && d != 2 && d != 4) return message("takes d = 1, 2 or 4, not {}", d);
    return {};
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return hopper_refusal(facts); }
  static sums_stay::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return sums_stay::choose(problem, facts);
  }
  static std::vector<sums_stay::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return sums_stay::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.shape.block_j, cut.shape.outputs, cut.rows,     cut.splits,
            cut.warpgroups,    cut.stage_slabs,   cut.x_stages, cut.weight_stages};
  }
  static sums_stay::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return sums_stay::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(sums_stay_kernel(dtype, cut.shape));
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& facts) {
    const Product p = product_of(problem);
    return {.blocks = with_idle_blocks(blocks_of(cut, p), facts, cut.splits),
            .threads = cut.threads() + sums_stay::producer_threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .cluster_blocks = cut.splits};
  }
};

}  // namespace

CutFamily sums_stay_cuts() { return cuts_of<SumsStay>(); }
Implementation sums_stay_implementation() { return implementation_by_cuts<SumsStay>(); }

}  // namespace kronsparse::cuda
