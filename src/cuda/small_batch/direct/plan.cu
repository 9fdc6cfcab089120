// The small-batch kernel `direct`: its launch and its entries in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/small_batch/cut_executor.cuh"
#include "cuda/small_batch/direct/search.hpp"
#include "cuda/small_batch/idle_blocks.hpp"

namespace kronsparse::cuda {
namespace {

/// Why neither `direct` nor `unpacked` takes a problem; empty when they may.
std::string common_refusal(const Problem& problem) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.layout != Layout::batch_first) return "takes batch_first only, not batch_last";
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

std::vector<int> numbers_of(const direct::Cut& cut) {
  return {cut.shape.block_j, cut.shape.load, cut.shape.tiles, cut.shape.outputs,
          cut.shape.at_once, cut.steps,      cut.rows,        cut.l_warps,
          cut.sample_warps,  cut.row_blocks, cut.j_groups,    cut.sample_blocks};
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
  static std::vector<direct::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return direct::choices(problem, facts);
  }
  static direct::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return direct::choose(problem, facts, packed_as);
  }
  static std::vector<int> numbers(const Cut& cut) { return numbers_of(cut); }
  static const void* kernel(DType dtype, const Cut& cut) { return kernel_of(dtype, cut); }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& facts) {
    const Product p = product_of(problem);
    return {.blocks = with_idle_blocks(blocks_of(cut, p), facts),
            .threads = cut.warps() * 32,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .shared_percent = shared_percent(cut, p, facts)};
  }
};

/// The same kernel with weights as given, for weights that may change: it saves the kernel that packs them
/// first.
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
  static std::vector<direct::Choice> choices(const Problem& problem, const GpuFacts& facts) {
    return direct::choices_as_given(problem, facts);
  }
  static std::vector<int> numbers(const Cut& cut) { return numbers_of(cut); }
  static const void* kernel(DType dtype, const Cut& cut) { return kernel_of(dtype, cut); }
  static LaunchShape launch_shape(const Problem& problem, const Cut& cut, const GpuFacts& facts) {
    const Product p = product_of(problem);
    return {.blocks = static_cast<unsigned>(blocks_of(cut, p)),
            .threads = cut.warps() * 32,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
            .shared_percent = shared_percent(cut, p, facts)};
  }
};

}  // namespace

CutFamily direct_cuts() { return cuts_of<Direct>(); }
CutFamily unpacked_cuts() { return cuts_of<Unpacked>(); }
Implementation direct_implementation() { return implementation_by_cuts<Direct>(); }
Implementation unpacked_implementation() { return implementation_by_cuts<Unpacked>(); }

}  // namespace kronsparse::cuda
