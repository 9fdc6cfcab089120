#include <cuda_runtime.h>

#include <memory>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/multiply_gemm.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

class GemmExecutor final : public Executor {
 public:
  GemmExecutor(const Problem& problem, Device device)
      : problem_(problem),
        device_(device.index),
        config_(gemm_config(problem, gpu(device))),
        kernel_(problem.dtype == DType::bf16 ? gemm_bf16_kernel(config_.shape_index)
                                             : gemm_f16_kernel(config_.shape_index)) {
    const DeviceGuard guard(device_);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(config_.order.elements()) * element_bytes);
    // Packing writes the weights alone; what pads them stays zero.
    check(cudaMemset(weights_.data(), 0, weights_.bytes()), "gemm: clearing the weights");
  }

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    pack_weights(config_.order, element_bytes, values, weights_.data(), is_transposed(problem_.operation),
                 stream);
    fresh_.packed_on(stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    const auto arguments = gemm_arguments(problem_, config_, operands, weights_.data());
    fresh_.run(operands.stream, [&](bool may_overlap) {
      launch("multiply_gemm", reinterpret_cast<const void*>(kernel_),
             {.blocks = static_cast<unsigned>(config_.blocks()),
              .threads = kGemmProducerThreads + kGemmConsumerThreads,
              .shared_bytes = static_cast<std::size_t>(config_.shared_bytes),
              .overlapping = may_overlap},
             operands.stream, arguments);
    });
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return weights_.bytes(); }

 private:
  static constexpr std::size_t element_bytes = 2;

  Problem problem_;
  int device_;
  GemmConfig config_;
  GemmKernel kernel_;
  DeviceMemory weights_;
  FreshWeights fresh_;
};

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.layout == Layout::batch_first && problem.pattern.d != 1)
    return message("takes batch_first with d = 1 only, not d = {}", problem.pattern.d);
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  const GemmConfig config = gemm_config(problem, facts);
  if (!gemm_x_view(problem, nullptr).strides_fit() || !gemm_y_view(problem, config, nullptr).strides_fit())
    return "the copy engine takes rows of whole units of 16 bytes, at multiples of 16 bytes";
  return tile_refusal(facts, config.shared_bytes, config.order.groups(), config.passes * config.n_tiles);
}

double predict(const Problem& problem, Device device) {
  return gemm_seconds(problem, gemm_config(problem, gpu(device)), gpu(device));
}

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<GemmExecutor>(problem, device);
}

}  // namespace

Implementation gemm_implementation() {
  return {.name = "gemm",
          .backend = Backend::cuda,
          .summary = "Hopper tensor cores on tensor copies, half types where rows are contiguous",
          .refuse = refuse,
          .predict = predict,
          .make = make};
}

}  // namespace kronsparse::cuda
