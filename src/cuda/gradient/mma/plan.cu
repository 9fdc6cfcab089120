// The gradient of the values on tensor cores: its launch and its entry in the table.

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/gradient/mma/kernels.hpp"
#include "cuda/gradient/refusals.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace {

class GradientMmaExecutor final : public CudaExecutor {
 public:
  GradientMmaExecutor(const Problem& problem, Device device, const GradientConfig& config)
      : CudaExecutor(device),
        problem_(problem),
        config_(config),
        kernel_(reinterpret_cast<const void*>(problem.dtype == DType::bf16
                                                  ? gradient_bf16_kernel(config_.shape_index)
                                                  : gradient_f16_kernel(config_.shape_index))) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(kernel_, gpu(device));
    allow_cluster(kernel_, config_.splits);
    overlapping_ = can_overlap(kernel_);
  }

  void run(const Operands& operands, const Weights& /*weights*/) const override {
    const DeviceGuard guard(device());
    GradientArguments arguments = gradient_arguments(problem_, config_, operands);
    arguments.overlaps = overlapping_;
    launch("gradient_mma", kernel_,
           {.blocks = static_cast<unsigned>(config_.blocks(problem_.pattern().a)),
            .threads = config_.threads(),
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .cluster_blocks = config_.splits,
            .overlapping = overlapping_},
           operands.stream, arguments);
  }

 private:
  Problem problem_;
  GradientConfig config_;
  const void* kernel_;
  bool overlapping_ = false;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = gradient_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return refused(std::move(reason));
  const GradientConfig config = gradient_config(problem, facts);
  if (config.shared_bytes == kNoGradientConfig) return refused(shared_memory_refusal(facts));
  if (config.split_samples > kGradientMaxSum)
    return refused(
        message("takes batches of at most {} on {}, because tensor cores truncate long sums; not {}",
                kGradientMaxSum * config.splits, facts.name, problem.batch));
  if (std::string reason = tile_refusal(facts, config.shared_bytes, problem.pattern().a * config.j_groups,
                                        config.k_tiles * config.l_tiles * config.splits);
      !reason.empty())
    return refused(std::move(reason));
  if (std::string reason = order_refusal({}, packed_as); !reason.empty()) return refused(std::move(reason));
  return {.refusal = {},
          .seconds = gradient_seconds(problem, config, facts),
          .packing_seconds = 0,
          .make = [problem, device, config]() -> std::unique_ptr<Executor> {
            return std::make_unique<GradientMmaExecutor>(problem, device, config);
          }};
}

}  // namespace

Implementation gradient_mma_implementation() {
  return {.name = "gradient-mma",
          .backend = Backend::cuda,
          .summary = "gradient of the values on tensor cores (mma.sync), f16 and bf16, sums in a fixed order",
          .propose = propose};
}

}  // namespace kronsparse::cuda
