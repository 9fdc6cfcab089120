// The kernel `gemm`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/gemm/kernels.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace {

class GemmExecutor final : public CudaExecutor {
 public:
  GemmExecutor(const Problem& problem, Device device, const GemmConfig& config)
      : CudaExecutor(device, packed_order(config.order, is_transposed(problem.operation)),
                     pack_layout(problem, config.order)),
        problem_(problem),
        config_(config),
        kernel_(problem.dtype == DType::bf16 ? gemm_bf16_kernel(config.shape_index)
                                             : gemm_f16_kernel(config.shape_index)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    GemmArguments arguments = gemm_arguments(problem_, config_, operands, weights.data);
    arguments.just_packed = weights.just_packed;
    launch("multiply_gemm", reinterpret_cast<const void*>(kernel_),
           {.blocks = static_cast<unsigned>(config_.blocks()),
            .threads = kGemmProducerThreads + kGemmConsumerThreads,
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .overlapping = true},
           operands.stream, arguments);
  }

 private:
  Problem problem_;
  GemmConfig config_;
  GemmKernel kernel_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return refused(std::move(reason));
  if (problem.layout == Layout::batch_first && problem.pattern().d != 1)
    return refused(message("takes batch_first with d = 1 only, not d = {}", problem.pattern().d));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  const GemmConfig config = gemm_config(problem, facts);
  if (std::string reason =
          tile_refusal(facts, config.shared_bytes, config.order.groups(), config.passes * config.n_tiles);
      !reason.empty())
    return refused(std::move(reason));
  return proposal_of<GemmExecutor>(problem, device, config, packed_as, gemm_seconds(problem, config, facts));
}

}  // namespace

Implementation gemm_implementation() {
  return {.name = "gemm",
          .backend = Backend::cuda,
          .summary = "Hopper tensor cores on tensor copies, half types where rows are contiguous",
          .propose = propose};
}

}  // namespace kronsparse::cuda
