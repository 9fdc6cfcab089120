// The kernel `mma`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/mma/kernels.hpp"
#include "cuda/large_batch/mma/search.hpp"
#include "cuda/packing/packing.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace mma {
namespace {

Kernel kernel_of(const Problem& problem, std::size_t shape) {
  switch (arithmetic_of(problem)) {
    case Arithmetic::f16:
      return mma_f16_kernel(shape);
    case Arithmetic::bf16:
      return mma_bf16_kernel(shape);
    case Arithmetic::tf32:
      return mma_tf32_kernel(shape);
    case Arithmetic::tf32x3:
      return mma_tf32x3_kernel(shape);
  }
  throw Error(ErrorCode::internal, "mma: unknown arithmetic");
}

class MmaExecutor final : public CudaExecutor {
 public:
  MmaExecutor(const Problem& problem, Device device, const Config& config)
      : CudaExecutor(device, packed_order(config.order, is_transposed(problem.operation)),
                     pack_layout(problem, config.order)),
        problem_(problem),
        config_(config),
        kernel_(kernel_of(problem, config.shape_index)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
    has_overlap_ = can_overlap(reinterpret_cast<const void*>(kernel_));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    launch("multiply_mma", reinterpret_cast<const void*>(kernel_),
           {.blocks = static_cast<unsigned>(config_.tiles),
            .threads = config_.threads,
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .overlapping = has_overlap_},
           operands.stream, arguments_of(problem_, config_, operands, weights.data));
  }

 private:
  Problem problem_;
  Config config_;
  Kernel kernel_;
  bool has_overlap_ = false;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = tensor_core_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 80); !reason.empty()) return refused(std::move(reason));
  const std::optional<Config> config = best_config(problem, facts);
  if (!config)
    return refused(
        message("cuts into tiles with {} bytes of shared memory and numbers of 31 bits; {} has none",
                facts.shared_bytes, problem.pattern().to_string()));
  return proposal_of<MmaExecutor>(problem, device, *config, packed_as, config->seconds);
}

}  // namespace

std::unique_ptr<Executor> make_executor(const Problem& problem, Device device, const Config& config) {
  return std::make_unique<MmaExecutor>(problem, device, config);
}

}  // namespace mma

Implementation mma_implementation() {
  return {.name = "mma",
          .backend = Backend::cuda,
          .summary = "tensor cores (mma.sync), one fused pass over x and y of any shape and alignment",
          .propose = mma::propose,
          .at_least = [](const Problem& problem, Device device) {
            return mma::least_seconds(problem, gpu(device));
          }};
}

}  // namespace kronsparse::cuda
