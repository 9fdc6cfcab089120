// The product for small batches without shared memory for x: launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/cut_executor.cuh"
#include "cuda/direct_config.hpp"
#include "cuda/idle_blocks.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

/// Why neither of the two takes a problem; empty when they do.
std::string common_refusal(const Problem& problem) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.layout != Layout::batch_first) return "takes batch_first only";
  if (std::string reason = batch_refusal(problem, direct::max_samples); !reason.empty()) return reason;
  const std::int64_t d = problem.pattern().d, terms = product_of(problem).c;
  if (d % 2 != 0 && d != 1) return message("takes even d and 1, not {}", d);
  if (d == 1 && terms % 4 != 0)
    return message("takes d = 1 with sums of a multiple of 4 terms, not {}", terms);
  return {};
}

const void* kernel_of(DType dtype, const direct::Cut& cut) {
  return reinterpret_cast<const void*>(direct_kernel(dtype, cut.shape));
}

struct Direct {
  using Cut = direct::Cut;
  using Arguments = direct::Arguments;
  static constexpr const char* name = "direct";
  static constexpr const char* kernel_name = "multiply_direct";
  static constexpr const char* summary =
      "batches up to 64 of half types, even d or 1: x straight to the registers of tensor cores";
  static constexpr const char* uncut =
      "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";

  static std::string refusal(const Problem& problem) { return common_refusal(problem); }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 90); }
  static direct::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return direct::choose(problem, facts);
  }
  static direct::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return direct::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) { return kernel_of(dtype, cut); }
  static LaunchShape launch_shape(const Cut& cut, const Product& p, const GpuFacts& facts) {
    return {.blocks = with_idle_blocks(blocks_of(cut, p), facts),
            .threads = cut.warps() * 32,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .shared_percent = shared_percent(cut, p, facts)};
  }
};

/// The same with weights as they are given, for those that may change: a product without a kernel that packs
/// them first.
struct Unpacked {
  using Cut = direct::Cut;
  using Arguments = direct::Arguments;
  static constexpr bool reads_as_given = true;
  static constexpr const char* name = "unpacked";
  static constexpr const char* kernel_name = "multiply_direct";
  static constexpr const char* summary =
      "batches up to 64 of half types, even d or 1: weights as they are given, which need no packing";
  static constexpr const char* uncut = Direct::uncut;

  static std::string refusal(const Problem& problem) {
    if (std::string reason = common_refusal(problem); !reason.empty()) return reason;
    if (is_transposed(problem.operation) && problem.pattern().d == 1)
      return "takes transposed products with d of 2 or more, not 1";
    return {};
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 90); }
  static direct::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return direct::choose_as_given(problem, facts);
  }
  static const void* kernel(DType dtype, const Cut& cut) { return kernel_of(dtype, cut); }
  static LaunchShape launch_shape(const Cut& cut, const Product& p, const GpuFacts& facts) {
    return {.blocks = static_cast<unsigned>(blocks_of(cut, p)),
            .threads = cut.warps() * 32,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .shared_percent = shared_percent(cut, p, facts)};
  }
};

}  // namespace

Implementation direct_implementation() { return implementation_by_cuts<Direct>(); }
Implementation unpacked_implementation() { return implementation_by_cuts<Unpacked>(); }

}  // namespace kronsparse::cuda
