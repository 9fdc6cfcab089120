// The kernel `fused`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/chain/fused/kernels.hpp"
#include "cuda/chain/fused/search.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/tuning.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace fused {
namespace {

Kernel kernel_of(const Problem& problem, std::size_t shape) {
  switch (arithmetic_of(problem)) {
    case Arithmetic::f16:
      return fused_f16_kernel(shape);
    case Arithmetic::bf16:
      return fused_bf16_kernel(shape);
    case Arithmetic::tf32:
      return fused_tf32_kernel(shape);
    case Arithmetic::tf32x3:
      return fused_tf32x3_kernel(shape);
  }
  throw Error(ErrorCode::internal, "fused: unknown arithmetic");
}

class FusedExecutor final : public CudaExecutor {
 public:
  FusedExecutor(const Problem& problem, Device device, std::span<const Link> links, const Config& config)
      : CudaExecutor(device, packed_order(problem, links), chain_parts(problem, links)),
        problem_(problem),
        config_(config),
        kernel_(kernel_of(problem, config.shape_index)) {
    const DeviceGuard guard(device.index);
    const GpuFacts& facts = gpu(device);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), facts);
    int places = clusters_at_once(config_, facts);
    if (config_.ranks() > 1) {
      allow_cluster(reinterpret_cast<const void*>(kernel_), config_.ranks());
      places = max_clusters(reinterpret_cast<const void*>(kernel_), shape());
    }
    clusters_ = std::clamp<std::int64_t>(config_.arguments.tiles, 1, places);
    has_overlap_ = facts.code.compute_capability >= 90;
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    launch("multiply_fused", reinterpret_cast<const void*>(kernel_), shape(), operands.stream,
           arguments_of(problem_, config_, operands, weights.data));
  }

 private:
  [[nodiscard]] LaunchShape shape() const {
    return {.blocks = static_cast<unsigned>(clusters_ * config_.ranks()),
            .threads = config_.threads,
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .cluster_blocks = config_.ranks(),
            .overlapping = has_overlap_};
  }
  Problem problem_;
  Config config_;
  Kernel kernel_;
  std::int64_t clusters_ = 1;
  bool has_overlap_ = false;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (problem.operation == Operation::gradient)
    return refused("multiplies only, the gradient goes factor by factor");
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16 && problem.dtype != DType::f32)
    return refused(message("tensor cores here multiply f16, bf16 and f32, not {}", name(problem.dtype)));
  if (problem.dtype == DType::f32 && problem.mode == Mode::ieee)
    return refused("the mode ieee allows FMA units only");
  constexpr std::int64_t most_features = 65536;  // more than any shared memory holds
  for (const Pattern& factor : problem.chain.factors())
    if (factor.rows() > most_features || factor.cols() > most_features)
      return refused(
          message("takes factors of up to {} rows and columns, not {}", most_features, factor.to_string()));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return refused(std::move(reason));
  std::vector<std::vector<Link>> ways = ways_of(problem);
  if (ways.empty())
    return refused(message(
        "needs at most {} products after neighbours are multiplied together, and in f32 sums of 16 terms or "
        "more in each; the chain is {}",
        most_steps, problem.chain.to_string()));
  if (packed_as != nullptr)
    std::erase_if(ways, [&](const auto& links) { return packed_order(problem, links) != *packed_as; });
  if (ways.empty()) return refused(has_other_order);
  const std::optional<Cut> cut = best_cut(problem, ways, facts);
  if (!cut)
    return refused(message("needs shared memory for 16 samples between two factors; {} has {} bytes",
                           facts.name, facts.shared_bytes));
  const double value_bytes =
      static_cast<double>(problem.chain.nnz()) * static_cast<double>(size_of(problem.dtype));
  const double packed_bytes = static_cast<double>(packed_order(problem, cut->links).bytes);
  return {.refusal = {},
          .seconds = cut->config.seconds,
          .packing_seconds =
              packing_seconds(facts, value_bytes, packed_bytes) + merging_seconds(facts, problem, cut->links),
          .make = [problem, device, cut = *cut] {
            return make_executor(problem, device, cut.links, cut.config);
          }};
}

}  // namespace

std::unique_ptr<Executor> make_executor(const Problem& problem, Device device, std::span<const Link> links,
                                        const Config& config) {
  return std::make_unique<FusedExecutor>(problem, device, links, config);
}

}  // namespace fused

Implementation fused_implementation() {
  return {.name = "fused",
          .backend = Backend::cuda,
          .summary = "chains of two or more factors in one pass over x and y, on tensor cores (mma.sync)",
          .propose = fused::propose,
          .takes_chains = true};
}

}  // namespace kronsparse::cuda
