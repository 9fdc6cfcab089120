// The gradient of the values on Hopper's tensor cores: its launch and its entry in the table.

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/gradient/refusals.hpp"
#include "cuda/gradient/wgmma/kernels.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace {

class GradientWgmmaExecutor final : public CudaExecutor {
 public:
  GradientWgmmaExecutor(const Problem& problem, Device device, const GradientWgmmaConfig& config,
                        std::unique_ptr<Executor> unaligned)
      : CudaExecutor(device),
        problem_(problem),
        config_(config),
        kernel_(reinterpret_cast<const void*>(problem.dtype == DType::bf16
                                                  ? gradient_wgmma_bf16_kernel(config.shape_index)
                                                  : gradient_wgmma_f16_kernel(config.shape_index))),
        unaligned_(std::move(unaligned)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(kernel_, gpu(device));
    allow_cluster(kernel_, config_.splits);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());  // tensor maps are made in its context
    std::optional<GradientWgmmaArguments> arguments = gradient_wgmma_arguments(problem_, config_, operands);
    if (!arguments) {  // the copy engine does not take the addresses
      unaligned_->run(operands, weights);
      return;
    }
    arguments->overlaps = true;
    launch("gradient_wgmma", kernel_,
           {.blocks = static_cast<unsigned>(config_.blocks(problem_.pattern().a)),
            .threads = config_.threads(),
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .cluster_blocks = config_.splits,
            .overlapping = true},
           operands.stream, *arguments);
  }

 private:
  Problem problem_;
  GradientWgmmaConfig config_;
  const void* kernel_;
  std::unique_ptr<Executor> unaligned_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  const GpuFacts& facts = gpu(device);
  if (std::string reason = gradient_refusal(problem); !reason.empty()) return refused(std::move(reason));
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  Proposal unaligned = gradient_mma_implementation().propose(problem, device, packed_as);
  if (!unaligned.refusal.empty()) return unaligned;
  const std::optional<GradientWgmmaConfig> config = gradient_wgmma_config(problem, facts);
  const Pattern& pattern = problem.pattern();
  if (!config)
    return refused(message(
        "takes d = 1, 2, 4, 8 or multiples of 16 in batch_first, and rows and strides that are multiples of "
        "16 bytes, as the copy engine needs; not {} with a batch of {}",
        pattern.to_string(), problem.batch));
  if (std::string reason = tile_refusal(facts, config->shared_bytes, pattern.a * config->j_groups,
                                        config->k_tiles * config->l_tiles * config->splits);
      !reason.empty())
    return refused(std::move(reason));
  return {.refusal = {},
          .seconds = config->seconds,
          .packing_seconds = 0,
          .make = [problem, device, config = *config,
                   make_unaligned = std::move(unaligned.make)]() -> std::unique_ptr<Executor> {
            return std::make_unique<GradientWgmmaExecutor>(problem, device, config, make_unaligned());
          }};
}

}  // namespace

Implementation gradient_wgmma_implementation() {
  return {.name = "gradient-wgmma",
          .backend = Backend::cuda,
          .summary = "gradient of the values on Hopper's tensor cores, f16 and bf16, sums in a fixed order",
          .propose = propose};
}

}  // namespace kronsparse::cuda
