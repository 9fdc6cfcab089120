// The small-batch kernel `weights-stay`: its launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/weights_stay/search.hpp"

namespace kronsparse::cuda {
namespace {

struct WeightsStay {
  using Cut = weights_stay::Cut;
  using Arguments = weights_stay::Arguments;
  static constexpr const char* name = "weights-stay";
  static constexpr const char* kernel_name = "multiply_weights_stay";
  static constexpr const char* summary =
      "batches up to 64 of half types, sums of rows of at most 8 KB: weights stay in registers, x passes by";
  static constexpr const char* uncut =
      "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    if (problem.layout != Layout::batch_first) return "takes batch_first only, not batch_last";
    if (std::string reason = batch_refusal(problem, weights_stay::max_samples); !reason.empty())
      return reason;
    const Product p = product_of(problem);
    if (p.d != 4 && p.d != 8 && p.d != 16 && p.d != 32 && p.d != 64)
      return message("takes d = 4, 8, 16, 32 or 64, not {}", p.d);
    return row_refusal(p, weights_stay::row_elements, weights_stay::max_elements);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 90); }
  static weights_stay::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return weights_stay::choose(problem, facts);
  }
  static std::vector<weights_stay::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return weights_stay::choices(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) {
    return {cut.shape.d, cut.shape.fragments, cut.passes, cut.k_tiles, cut.sample_blocks};
  }
  static weights_stay::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return weights_stay::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(weights_stay_kernel(dtype, cut.shape));
  }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& /*facts*/) {
    const Product p = product_of(problem);
    return {.blocks = static_cast<unsigned>(blocks_of(cut, p)),
            .threads = weights_stay::threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total)};
  }
};

}  // namespace

CutFamily weights_stay_cuts() { return cuts_of<WeightsStay>(); }
Implementation weights_stay_implementation() { return implementation_by_cuts<WeightsStay>(); }

}  // namespace kronsparse::cuda
