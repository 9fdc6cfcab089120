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

/// With blocks that exchange j (gradient_exchange.cuh), or without.
enum class Way { alone, exchanged };

GradientConfig config_of(const Problem& problem, Way way, const GpuFacts& facts) {
  return gradient_config(problem, way == Way::exchanged, facts);
}

/// Blocks of a cluster that every Hopper GPU can run without being asked.
constexpr int kPortableCluster = 8;

class GradientMmaExecutor final : public Executor {
 public:
  GradientMmaExecutor(const Problem& problem, Way way, Device device)
      : problem_(problem),
        device_(device.index),
        config_(config_of(problem, way, gpu(device))),
        kernel_(reinterpret_cast<const void*>(problem.dtype == DType::bf16
                                                  ? gradient_bf16_kernel(config_.shape_index)
                                                  : gradient_f16_kernel(config_.shape_index))) {
    const DeviceGuard guard(device_);
    allow_shared_memory(kernel_, gpu(device));
    if (config_.cluster_blocks() > kPortableCluster)
      check(cudaFuncSetAttribute(kernel_, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
            "asking for large clusters");
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
            .cluster_blocks = config_.cluster_blocks(),
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

template <Way W>
std::string refuse(const Problem& problem, Device device) {
  if (problem.operation != Operation::gradient)
    return "computes the gradient of the values, not products with the matrix";
  if (problem.dtype != DType::f16 && problem.dtype != DType::bf16)
    return message("its tensor cores multiply f16 and bf16, not {}", name(problem.dtype));
  const GpuFacts& facts = gpu(device);
  constexpr int least_capability = W == Way::exchanged ? 90 : 80;
  if (facts.compute_capability < least_capability)
    return message("needs compute capability {}.0, {} has {}.{}", least_capability / 10, facts.name,
                   facts.compute_capability / 10, facts.compute_capability % 10);
  const Pattern& pattern = problem.pattern;
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (pattern.b >= limit || pattern.c >= limit || pattern.d >= limit) return "counts b, c and d in 32 bits";
  const bool first = problem.layout == Layout::batch_first;
  if (W == Way::exchanged && (!first || pattern.d < 16 || pattern.d % 8 != 0))
    return "for batch_first and d = 16 or another multiple of 8 above it";
  if (W == Way::alone && first && pattern.d % 2 != 0 && pattern.d > kGradientMaxOddJ)
    return message("in batch_first it takes an even d, or one up to {}, not {}", kGradientMaxOddJ, pattern.d);
  const GradientConfig config = config_of(problem, W, facts);
  if (config.split_samples > kGradientMaxSum)
    return message("sums of {} samples are too long for tensor cores, which truncate; at most {} here",
                   problem.batch, kGradientMaxSum * config.splits);
  return tile_refusal(facts, config.shared_bytes, pattern.a * config.j_groups,
                      config.k_tiles * config.l_tiles * config.cluster_blocks());
}

template <Way W>
double predict(const Problem& problem, Device device) {
  return gradient_seconds(problem, config_of(problem, W, gpu(device)), gpu(device));
}

template <Way W>
std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<GradientMmaExecutor>(problem, W, device);
}

}  // namespace

Implementation gradient_mma_implementation() {
  return {.name = "gradient-mma",
          .backend = Backend::cuda,
          .summary = "gradient of the values on tensor cores (mma.sync), f16 and bf16, sums in a fixed order",
          .refuse = refuse<Way::alone>,
          .predict = predict<Way::alone>,
          .make = make<Way::alone>};
}

Implementation gradient_exchange_implementation() {
  return {.name = "gradient-exchange",
          .backend = Backend::cuda,
          .summary = "the same for d >= 16 in batch_first: blocks of a cluster exchange neighbouring j",
          .refuse = refuse<Way::exchanged>,
          .predict = predict<Way::exchanged>,
          .make = make<Way::exchanged>};
}

}  // namespace kronsparse::cuda
