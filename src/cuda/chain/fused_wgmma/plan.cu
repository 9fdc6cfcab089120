// The kernel `fused_wgmma`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/chain/fused_wgmma/kernels.hpp"
#include "cuda/chain/fused_wgmma/search.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace fused_wgmma {
namespace {

class FusedWgmmaExecutor final : public CudaExecutor {
 public:
  FusedWgmmaExecutor(const Problem& problem, Device device, std::span<const Link> links, const Config& config)
      : CudaExecutor(device, packed_order(problem, links), chain_parts(problem, links)),
        problem_(problem),
        config_(config),
        kernel_(problem.dtype == DType::bf16 ? fused_wgmma_bf16_kernel(config.shape_index)
                                             : fused_wgmma_f16_kernel(config.shape_index)) {
    const DeviceGuard guard(device.index);
    const GpuFacts& facts = gpu(device);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), facts);
    blocks_ = std::clamp<std::int64_t>(config.arguments.tiles, 1,
                                       std::int64_t{facts.multiprocessors} * config.shape.blocks_at_once);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    launch("multiply_fused_wgmma", reinterpret_cast<const void*>(kernel_),
           {.blocks = static_cast<unsigned>(blocks_),
            .threads = config_.shape.warpgroups * warpgroup_threads + producer_threads,
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .overlapping = true},
           operands.stream, arguments_of(problem_, config_, operands, weights.data));
  }

 private:
  Problem problem_;
  Config config_;
  Kernel kernel_;
  std::int64_t blocks_ = 1;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (problem.operation == Operation::gradient)
    return refused("multiplies only, the gradient goes factor by factor");
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    return refused(message("takes the half types f16 and bf16, not {}", name(problem.dtype)));
  if (problem.layout != Layout::batch_first) return refused("takes batch_first, not batch_last");
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  constexpr std::int64_t most_features = 8192;  // more than any shared memory holds
  for (const Pattern& factor : problem.chain.factors())
    if (factor.rows() > most_features || factor.cols() > most_features)
      return refused(
          message("takes factors of up to {} rows and columns, not {}", most_features, factor.to_string()));
  std::vector<std::vector<Link>> ways = ways_of(problem);
  if (ways.empty())
    return refused(
        message("needs at most {} products after neighbours are multiplied together; the chain is {}",
                most_links, problem.chain.to_string()));
  std::string reason;
  std::erase_if(ways, [&](const std::vector<Link>& links) {
    const std::string refusal = refusal_of(links);
    if (reason.empty()) reason = refusal;
    return !refusal.empty();
  });
  if (ways.empty()) return refused(std::move(reason));
  if (!x_view(problem, shapes.front(), nullptr).strides_fit())
    return refused("needs rows of x whose length and stride are multiples of 16 bytes, for the copy engine");
  if (packed_as != nullptr)
    std::erase_if(ways, [&](const auto& links) { return packed_order(problem, links) != *packed_as; });
  if (ways.empty()) return refused(has_other_order);
  const std::optional<Cut> cut = best_cut(problem, ways, facts);
  if (!cut)
    return refused(message("needs shared memory for 64 samples between two factors; {} has {} bytes",
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
  return std::make_unique<FusedWgmmaExecutor>(problem, device, links, config);
}

}  // namespace fused_wgmma

Implementation fused_wgmma_implementation() {
  return {.name = "fused_wgmma",
          .backend = Backend::cuda,
          .summary = "chains in one pass over x and y, half types on Hopper's tensor cores (wgmma)",
          .propose = fused_wgmma::propose,
          .takes_chains = true};
}

}  // namespace kronsparse::cuda
