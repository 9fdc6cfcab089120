// The gradient of the values on tensor cores: its launch and its entry in the table.

#include <cuda_runtime.h>

#include <memory>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/divisor.hpp"
#include "cuda/gradient_mma.hpp"
#include "cuda/launch.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

class GradientMmaExecutor final : public Executor {
 public:
  GradientMmaExecutor(const Problem& problem, Device device)
      : problem_(problem),
        device_(device.index),
        config_(gradient_config(problem, gpu(device))),
        kernel_(reinterpret_cast<const void*>(problem.dtype == DType::bf16
                                                  ? gradient_bf16_kernel(config_.shape_index)
                                                  : gradient_f16_kernel(config_.shape_index))) {
    const DeviceGuard guard(device_);
    allow_shared_memory(kernel_, gpu(device));
    allow_cluster(kernel_, config_.splits);
    overlapping_ = can_overlap(kernel_);
  }

  void set_values(const void* /*values*/, Stream /*stream*/) override {}
  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return 0; }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    GradientArguments arguments = gradient_arguments(problem_, config_, operands);
    arguments.overlaps = overlapping_;
    launch("gradient_mma", kernel_,
           {.blocks = static_cast<unsigned>(config_.blocks(problem_.pattern.a)),
            .threads = config_.threads(),
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .cluster_blocks = config_.splits,
            .overlapping = overlapping_},
           operands.stream, arguments);
  }

 private:
  Problem problem_;
  int device_;
  GradientConfig config_;
  const void* kernel_;
  bool overlapping_ = false;
};

std::string refuse(const Problem& problem, Device device) {
  if (problem.operation != Operation::gradient)
    return "computes the gradient of the values, not products with the matrix";
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    return message("its tensor cores multiply f16 and bf16, not {}", name(problem.dtype));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return reason;
  const Pattern& pattern = problem.pattern;
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (pattern.b >= limit || pattern.c >= limit || pattern.d >= limit) return "counts b, c and d in 32 bits";
  const bool first = problem.layout == Layout::batch_first;
  if (first && pattern.d % 2 != 0 && pattern.d > kGradientMaxOddJ)
    return message("in batch_first it takes an even d, or one up to {}, not {}", kGradientMaxOddJ, pattern.d);
  const GradientConfig config = gradient_config(problem, facts);
  if (config.split_samples > kGradientMaxSum)
    return message("sums of {} samples are too long for tensor cores, which truncate; at most {} here",
                   problem.batch, kGradientMaxSum * config.splits);
  return tile_refusal(facts, config.shared_bytes, pattern.a * config.j_groups,
                      config.k_tiles * config.l_tiles * config.splits);
}

double predict(const Problem& problem, Device device) {
  return gradient_seconds(problem, gradient_config(problem, gpu(device)), gpu(device));
}

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<GradientMmaExecutor>(problem, device);
}

}  // namespace

Implementation gradient_mma_implementation() {
  return {.name = "gradient-mma",
          .backend = Backend::cuda,
          .summary = "gradient of the values on tensor cores (mma.sync), f16 and bf16, sums in a fixed order",
          .refuse = refuse,
          .predict = predict,
          .make = make};
}

}  // namespace kronsparse::cuda
