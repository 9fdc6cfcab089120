// The gradient of the values on Hopper's tensor cores: its launch and its entry in the table.

#include <cuda_runtime.h>

#include <memory>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/gradient_wgmma.hpp"
#include "cuda/launch.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

class GradientWgmmaExecutor final : public Executor {
 public:
  GradientWgmmaExecutor(const Problem& problem, Device device, const GradientWgmmaConfig& config)
      : problem_(problem),
        device_(device.index),
        config_(config),
        kernel_(reinterpret_cast<const void*>(problem.dtype == DType::bf16
                                                  ? gradient_wgmma_bf16_kernel(config.shape_index)
                                                  : gradient_wgmma_f16_kernel(config.shape_index))),
        unaligned_(gradient_mma_implementation().make(problem, device)) {
    const DeviceGuard guard(device_);
    allow_shared_memory(kernel_, gpu(device));
    allow_cluster(kernel_, config_.splits);
  }

  void set_values(const void* /*values*/, Stream /*stream*/) override {}
  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return 0; }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);  // tensor maps are made in its context
    std::optional<GradientWgmmaArguments> arguments = gradient_wgmma_arguments(problem_, config_, operands);
    if (!arguments) {  // the copy engine does not take the addresses
      unaligned_->run(operands);
      return;
    }
    arguments->overlaps = true;
    launch("gradient_wgmma", kernel_,
           {.blocks = static_cast<unsigned>(config_.blocks(problem_.pattern.a)),
            .threads = config_.threads(),
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .cluster_blocks = config_.splits,
            .overlapping = true},
           operands.stream, *arguments);
  }

 private:
  Problem problem_;
  int device_;
  GradientWgmmaConfig config_;
  const void* kernel_;
  std::unique_ptr<Executor> unaligned_;
};

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = gradient_mma_implementation().refuse(problem, device); !reason.empty())
    return reason;
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  const std::optional<GradientWgmmaConfig> config = gradient_wgmma_config(problem, facts);
  const Pattern& pattern = problem.pattern;
  if (!config)
    return message(
        "takes d = 1, 2, 4, 8 or multiples of 16 in batch_first, and what the copy engine does (rows and "
        "strides of multiples "
        "of 16 bytes), not {} with a batch of {}",
        pattern.to_string(), problem.batch);
  return tile_refusal(facts, config->shared_bytes, pattern.a * config->j_groups,
                      config->k_tiles * config->l_tiles * config->splits);
}

double predict(const Problem& problem, Device device) {
  return gradient_wgmma_config(problem, gpu(device)).value().seconds;
}

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<GradientWgmmaExecutor>(problem, device,
                                                 gradient_wgmma_config(problem, gpu(device)).value());
}

}  // namespace

Implementation gradient_wgmma_implementation() {
  return {.name = "gradient-wgmma",
          .backend = Backend::cuda,
          .summary = "gradient of the values on Hopper's tensor cores, f16 and bf16, sums in a fixed order",
          .refuse = refuse,
          .predict = predict,
          .make = make};
}

}  // namespace kronsparse::cuda
