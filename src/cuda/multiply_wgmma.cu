#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/multiply_wgmma.hpp"
#include "cuda/runtime.hpp"
#include "cuda/tensor_core.hpp"
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

class WgmmaExecutor final : public Executor {
 public:
  WgmmaExecutor(const Problem& problem, Device device)
      : problem_(problem),
        device_(device.index),
        config_(wgmma_config(problem, gpu(device))),
        kernel_(kernel_of(config_)) {
    const DeviceGuard guard(device_);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(config_.order.elements()) * element_bytes());
    // Packing writes the weights alone; what pads them stays zero.
    check(cudaMemset(weights_.data(), 0, weights_.bytes()), "wgmma: clearing the weights");
  }

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    pack_weights(config_.order, element_bytes(), values, weights_.data(), is_transposed(problem_.operation),
                 stream);
    fresh_.packed_on(stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    const auto arguments = wgmma_arguments(problem_, config_, operands, weights_.data());
    fresh_.run(operands.stream, [&](bool may_overlap) {
      launch("multiply_wgmma", reinterpret_cast<const void*>(kernel_),
             {.blocks = static_cast<unsigned>(config_.blocks),
              .threads = kProducerThreads + kConsumerThreads,
              .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
              .overlapping = may_overlap},
             operands.stream, arguments);
    });
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return weights_.bytes(); }

 private:
  [[nodiscard]] std::size_t element_bytes() const { return problem_.dtype == DType::f32 ? 4 : 2; }

  Problem problem_;
  int device_;
  WgmmaConfig config_;
  WgmmaKernel kernel_;
  DeviceMemory weights_;
  FreshWeights fresh_;
};

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = tensor_core_refusal(problem); !reason.empty()) return reason;
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  const WgmmaConfig config = wgmma_config(problem, facts);
  return tile_refusal(facts, config.shared_bytes, config.order.groups(), problem.batch / config.tile_n + 1);
}

double predict(const Problem& problem, Device device) {
  return wgmma_seconds(problem, wgmma_config(problem, gpu(device)), gpu(device));
}

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<WgmmaExecutor>(problem, device);
}

}  // namespace

Implementation wgmma_implementation() {
  return {.name = "wgmma",
          .backend = Backend::cuda,
          .summary = "Hopper tensor cores (wgmma), one fused pass over x and y in either layout",
          .refuse = refuse,
          .predict = predict,
          .make = make};
}

}  // namespace kronsparse::cuda
