// The product for small batches with x that stays in registers: launch and its entry in the table.
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/cut_executor.cuh"
#include "cuda/held_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

struct Held {
  using Cut = held::Cut;
  using Arguments = held::Arguments;
  static constexpr const char* name = "held";
  static constexpr const char* kernel_name = "multiply_held";
  static constexpr const char* summary =
      "batches up to 64 of half types, sums of rows of at most 8 KB: x stays in registers, weights pass by";
  static constexpr const char* uncut =
      "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";

  static std::string refusal(const Problem& problem) {
    if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
    if (problem.layout != Layout::batch_first) return "takes batch_first only";
    if (std::string reason = batch_refusal(problem, held::max_samples); !reason.empty()) return reason;
    const Product p = product_of(problem);
    if (p.d != 4 && p.d != 8 && p.d != 16) return message("takes d = 4, 8 or 16, not {}", p.d);
    return row_refusal(p, held::row_elements, held::max_elements);
  }
  static std::string gpu_refusal(const GpuFacts& facts) { return capability_refusal(facts, 90); }
  static held::Choice choose(const Problem& problem, const GpuFacts& facts) {
    return held::choose(problem, facts);
  }
  static held::Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
    return held::choose(problem, facts, packed_as);
  }
  static const void* kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(held_kernel(dtype, cut.shape, false));
  }
  static const void* ordinary_kernel(DType dtype, const Cut& cut) {
    return reinterpret_cast<const void*>(held_kernel(dtype, cut.shape, true));
  }
  static LaunchShape launch_shape(const Cut& cut, const Product& p, const GpuFacts& /*facts*/) {
    return {.blocks = static_cast<unsigned>(blocks_of(cut, p)),
            .threads = held::threads,
            .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total)};
  }
};

}  // namespace

Implementation held_implementation() { return implementation_by_cuts<Held>(); }

}  // namespace kronsparse::cuda
