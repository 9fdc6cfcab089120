// Table entries of the amx family: what it takes, and at what predicted cost.

#include "cpu/amx/amx.hpp"

#include <cmath>
#include <vector>

#include "core/message.hpp"
#include "cpu/amx/drivers.hpp"
#include "cpu/amx/weights.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/packing.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace amx {
namespace {

/// Neighbouring j that no driver sorts: samples become columns first.
bool is_turned(const Problem& problem) { return can_be_turned(problem) && j_block(problem.pattern().d) == 0; }

std::string refuse(const KernelSet& kernels, const Problem& problem) {
  if (problem.dtype != DType::bf16 && problem.dtype != DType::f16)
    return message("needs dtype f16 or bf16; here {}", name(problem.dtype));
  if (problem.operation == Operation::gradient) return "multiplies only; here the operation is gradient";
  if (problem.layout == Layout::batch_first && j_block(problem.pattern().d) == 0 && !is_turned(problem))
    return message("needs d = 1, 2, 4, 8 or a multiple of 16 for so few samples in batch_first; here {}",
                   problem.pattern().d);
  const bool batch_first = problem.layout == Layout::batch_first && !is_turned(problem);
  // Two blocks of two strips, for every j that is taken together, and room for weights.
  const std::int64_t depth = simd::shape_of(problem).depth;
  const std::int64_t most =
      static_cast<std::int64_t>(cpu_info().l2_bytes) * 3 / 4 /
      (128 * format_of(problem.dtype).pieces * (batch_first ? j_block(problem.pattern().d) : 1));
  if (depth > most)
    return message("needs sums of at most {} terms, so that X stays in L2; here {}", most, depth);
  // Last: it asks the system for the registers, which a process that never multiplies halves can do without.
  return kernels.usable() ? "" : kernels.missing;
}

/// Seconds for each real of X and of Y.
struct RealCosts {
  double x, y;
};
RealCosts costs_of_reals(const Problem& problem) {
  if (problem.dtype == DType::bf16) return {4.5e-10, 4.5e-10};
  // So that f16 goes where it was measured to be faster: by simd with few terms (48x48) or outputs that are
  // many more than terms (256x64 in batch_last), by tiles otherwise. Where 16 j are sorted, pieces of 16
  // strips are more than L1 holds.
  if (problem.layout == Layout::batch_last) return {6.5e-10, 7.7e-10};
  return j_block(problem.pattern().d) == 16 ? RealCosts{1e-9, 1e-9} : RealCosts{6.5e-10, 6.5e-10};
}

double seconds_alone(const Problem& given) {
  const Problem problem = is_turned(given) ? turned(given) : given;
  // 1.4 times what a Xeon takes: so are the predictions of simd, with which these are compared.
  constexpr double seconds_per_run = 1e-6;
  constexpr double seconds_per_product = 2.5e-8;  // of two tiles, beside a busy sibling; 1e-8 without
  const RealCosts costs = costs_of_reals(problem);
  const simd::Shape shape = simd::shape_of(problem);
  const Format format = format_of(problem.dtype);
  const auto parts = [](std::int64_t total, int part) {
    return std::ceil(static_cast<double>(total) / part);
  };
  const double products = parts(shape.batch, tile_rows) * parts(shape.outs, tile_rows) *
                          parts(shape.depth, format.terms) * format.pieces;
  const double packing = parts(shape.batch, tile_rows) * tile_rows *
                         (parts(shape.depth, format.terms) * format.terms * costs.x +
                          parts(shape.outs, tile_rows) * tile_rows * costs.y);
  return seconds_per_run + (is_turned(given) ? turning_seconds(given) : 0.0) +
         static_cast<double>(shape.a) * static_cast<double>(shape.d) *
             (products * seconds_per_product + packing);
}

std::unique_ptr<Executor> make(const KernelSet& kernels, const Problem& problem) {
  if (is_turned(problem)) {
    return make_turned(problem, seconds_alone(problem), [&kernels](const Problem& part) {
      constexpr double on_one_thread = 0;
      return make_columns({part, kernels, on_one_thread});
    });
  }
  const Job job{problem, kernels, seconds_alone(problem)};
  if (problem.layout == Layout::batch_first) return make_rows(job);
  return make_columns(job);
}

/// `is_for_tests`: days, so that nobody chooses it.
template <const KernelSet& kernels, bool is_for_tests>
Proposal propose(const Problem& problem, Device /*device*/, const PackedOrder* packed_as) {
  if (std::string reason = refuse(kernels, problem); !reason.empty()) return {.refusal = std::move(reason)};
  const auto made = [problem] { return make(kernels, problem); };
  if (packed_as != nullptr && made()->order() != *packed_as) return {.refusal = other_order};
  return {.seconds = is_for_tests ? 1e6 : seconds_on_threads(seconds_alone(problem)),
          .packing_seconds = packing_seconds(problem),
          .make = made};
}

const std::vector<Implementation>& table() {
  static const std::vector<Implementation> all = {
#if defined(__x86_64__)
    {tiles_of_cpu.implementation, Backend::cpu, "tiles of halves in registers of 1 KiB, X packed once",
     propose<tiles_of_cpu, false>},
#endif
#if defined(KRONSPARSE_WITH_EMULATED_TILES)
    {emulated_tiles.implementation, Backend::cpu, "what amx does, on any CPU: for tests",
     propose<emulated_tiles, true>},
#endif
  };
  return all;
}

}  // namespace
}  // namespace amx

std::span<const Implementation> amx_implementations() { return amx::table(); }

}  // namespace kronsparse
