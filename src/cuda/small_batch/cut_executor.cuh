// The executors of the small-batch kernels. They differ only in their cuts and arguments.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/small_batch/cut_choice.hpp"
#include "cuda/small_batch/cut_family.hpp"

namespace kronsparse::cuda {

/// Whether the ordinary kernel takes these arguments, for families that have one beside the kernel for all
/// arguments.
template <class Arguments>
[[nodiscard]] bool is_ordinary(const Arguments& /*args*/) {
  return false;
}

/// The order of the packed weights.
///
/// A family defines, beside its Cut: weight_bytes(cut, product), pack_layout(problem, cut),
/// packed_order(cut), arguments_of(problem, cut, weights) and with_operands(arguments, product, operands).
template <class Cut>
[[nodiscard]] PackedOrder order_of(const Problem& problem, const Cut& cut) {
  PackedOrder order = packed_order(cut);
  if (!order.is_as_given()) order.numbers.back() = is_transposed(problem.operation);
  order.bytes = static_cast<std::size_t>(weight_bytes(cut, product_of(problem)));
  return order;
}

/// The layout of packed weights; none if they are read as given.
template <class Cut>
[[nodiscard]] std::vector<PackLayout> layouts_of(const Problem& problem, const Cut& cut) {
  if (packed_order(cut).is_as_given()) return {};
  return {pack_layout(problem, cut)};
}

template <class Cut, class Arguments>
class CutExecutor final : public CudaExecutor {
 public:
  CutExecutor(const char* name, const Problem& problem, Device device, const Cut& cut, const void* kernel,
              const void* ordinary_kernel, const LaunchShape& shape)
      : CudaExecutor(device, order_of(problem, cut), layouts_of(problem, cut)),
        name_(name),
        product_(product_of(problem)),
        kernel_(kernel),
        ordinary_kernel_(ordinary_kernel),
        shape_(shape),
        arguments_(arguments_of(problem, cut, nullptr)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(kernel_, gpu(device));
    allow_shared_memory(ordinary_kernel_, gpu(device));
    shape_.overlapping = gpu(device).code.compute_capability >= 90;
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    Arguments arguments = arguments_;
    arguments.weights = static_cast<decltype(arguments.weights)>(weights.data);
    arguments.just_packed = weights.just_packed;
    arguments = with_operands(arguments, product_, operands);
    launch(name_, is_ordinary(arguments) ? ordinary_kernel_ : kernel_, shape_, operands.stream, arguments);
  }

 private:
  const char* name_;
  Product product_;
  const void* kernel_;
  const void* ordinary_kernel_;  ///< equal to kernel_ if there is no other
  LaunchShape shape_;
  Arguments arguments_;  ///< without operands and weights
};

/// Whether a family reads weights as given, without packing.
template <class Family>
inline constexpr bool reads_as_given = [] {
  if constexpr (requires { Family::reads_as_given; })
    return Family::reads_as_given;
  else
    return false;
}();

/// The cheapest cut. If `packed_as` is not null, the cheapest of the cuts that read that order.
template <class Family>
[[nodiscard]] CutChoice<typename Family::Cut> choose_cut(const Problem& problem, const GpuFacts& facts,
                                                         const PackedOrder* packed_as) {
  if (packed_as == nullptr) return Family::choose(problem, facts);
  if constexpr (reads_as_given<Family>) {
    if (packed_as->is_as_given()) return Family::choose(problem, facts);
    return {};
  } else {
    typename Family::Cut cut;
    if (packed_as->family != packed_order(cut).family) return {};
    take_order(cut, *packed_as);
    const CutChoice<typename Family::Cut> choice = Family::choose(problem, facts, cut);
    if (std::isfinite(choice.seconds) && order_of(problem, choice.cut) != *packed_as) return {};
    return choice;
  }
}

/// The executor of a cut.
template <class Family>
[[nodiscard]] std::unique_ptr<Executor> executor_of(const Problem& problem, Device device,
                                                    const typename Family::Cut& cut) {
  const void* kernel = Family::kernel(problem.dtype, cut);
  const void* ordinary_kernel = kernel;
  if constexpr (requires { Family::ordinary_kernel(problem.dtype, cut); })
    ordinary_kernel = Family::ordinary_kernel(problem.dtype, cut);
  return std::make_unique<CutExecutor<typename Family::Cut, typename Family::Arguments>>(
      Family::kernel_name, problem, device, cut, kernel, ordinary_kernel,
      Family::launch_shape(problem, cut, gpu(device)));
}

/// The proposal of a kernel with many cuts. `Family` has the types Cut and Arguments and defines
///   name, kernel_name, summary, uncut          texts; the last begins the refusal if no cut is possible
///   refusal(problem), gpu_refusal(facts)       the reason; empty if there is none
///   choose(problem, facts)                     the cheapest cut
///   choose(problem, facts, cut)                the cheapest cut that reads weights in the order of this one;
///                                              or reads_as_given instead, if no weights are packed
///   kernel(dtype, cut), launch_shape(problem, cut, facts)
///   ordinary_kernel(dtype, cut)                optional, with is_ordinary(arguments) beside Arguments
template <class Family>
[[nodiscard]] Proposal propose_cut(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = Family::refusal(problem); !reason.empty()) return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = Family::gpu_refusal(facts); !reason.empty()) return refused(std::move(reason));
  const auto choice = choose_cut<Family>(problem, facts, packed_as);
  if (!std::isfinite(choice.seconds)) {
    if (packed_as != nullptr) return refused(has_other_order);
    GpuFacts larger = facts;
    larger.shared_bytes = most_shared_bytes;
    if (std::isfinite(Family::choose(problem, larger).seconds)) return refused(shared_memory_refusal(facts));
    return refused(message("{}; the pattern is {}, samples of x lie {} elements apart", Family::uncut,
                           problem.pattern().to_string(), product_of(problem).x_sample));
  }
  const typename Family::Cut& cut = choice.cut;
  return {
      .refusal = {},
      .seconds = choice.seconds,
      .packing_seconds = reads_as_given<Family> ? 0 : packing_seconds(facts, problem, order_of(problem, cut)),
      .make = [problem, device, cut] { return executor_of<Family>(problem, device, cut); }};
}

/// The cuts of a family for programs that measure them. It also has choices(problem, facts), which are all
/// cuts, and numbers(cut), which tell one from the others.
template <class Family>
[[nodiscard]] std::vector<CutWay> ways_of(const Problem& problem, const GpuFacts& facts) {
  std::vector<CutWay> all;
  for (const auto& one : Family::choices(problem, facts))
    all.push_back({Family::numbers(one.cut), one.seconds});
  return all;
}
template <class Family>
[[nodiscard]] std::unique_ptr<Executor> executor_of_way(const Problem& problem, Device device,
                                                        std::size_t way) {
  return executor_of<Family>(problem, device, Family::choices(problem, gpu(device)).at(way).cut);
}
template <class Family>
[[nodiscard]] CutFamily cuts_of() {
  return {.ways = ways_of<Family>, .make = executor_of_way<Family>};
}

/// The family's entry in the table.
template <class Family>
[[nodiscard]] Implementation implementation_by_cuts() {
  return {.name = Family::name,
          .backend = Backend::cuda,
          .summary = Family::summary,
          .propose = propose_cut<Family>};
}

}  // namespace kronsparse::cuda
