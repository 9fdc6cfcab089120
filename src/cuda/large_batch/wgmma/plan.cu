// The kernel `wgmma`: its launch and its entry in the table.
#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <utility>

#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/wgmma/kernels.hpp"
#include "cuda/packing/packing.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

WgmmaKernel kernel_of(const WgmmaConfig& config) {
  switch (config.arithmetic) {
    case Arithmetic::f16:
      return wgmma_f16_kernel(config.shape_index);
    case Arithmetic::bf16:
      return wgmma_bf16_kernel(config.shape_index);
    case Arithmetic::tf32:
      return wgmma_tf32_kernel(config.shape_index);
    case Arithmetic::tf32x3:
      return wgmma_tf32x3_kernel(config.shape_index);
  }
  throw Error(ErrorCode::internal, "wgmma: unknown arithmetic");
}

class WgmmaExecutor final : public CudaExecutor {
 public:
  WgmmaExecutor(const Problem& problem, Device device, const WgmmaConfig& config)
      : CudaExecutor(device, packed_order(config.order, is_transposed(problem.operation)),
                     pack_layout(problem, config.order)),
        problem_(problem),
        config_(config),
        kernel_(kernel_of(config)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    // Blocks that begin while the packing kernel ends are shared out unevenly: products took up to 1.7 times
    // as long on an H200.
    launch("multiply_wgmma", reinterpret_cast<const void*>(kernel_),
           {.blocks = static_cast<unsigned>(config_.blocks),
            .threads = kProducerThreads + kConsumerThreads,
            .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
            .overlapping = !weights.just_packed},
           operands.stream, wgmma_arguments(problem_, config_, operands, weights.data));
  }

 private:
  Problem problem_;
  WgmmaConfig config_;
  WgmmaKernel kernel_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = tensor_core_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  const WgmmaConfig config = wgmma_config(problem, facts);
  if (std::string reason =
          tile_refusal(facts, config.shared_bytes, config.order.groups(), problem.batch / config.tile_n + 1);
      !reason.empty())
    return refused(std::move(reason));
  return proposal_of<WgmmaExecutor>(problem, device, config, packed_as,
                                    wgmma_seconds(problem, config, facts));
}

}  // namespace

Implementation wgmma_implementation() {
  return {.name = "wgmma",
          .backend = Backend::cuda,
          .summary = "Hopper tensor cores (wgmma), one fused pass over x and y in either layout",
          .propose = propose};
}

}  // namespace kronsparse::cuda
