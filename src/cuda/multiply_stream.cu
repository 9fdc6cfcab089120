// The product for small batches on Hopper: packing, launch, its entry in the table.
#include <cmath>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/multiply_stream.cuh"
#include "cuda/stream_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace stream {
namespace {

class StreamExecutor final : public Executor {
 public:
  StreamExecutor(const Problem& problem, Device device, const Cut& cut)
      : problem_(problem), product_(product_of(problem)), device_(device.index) {
    const DeviceGuard guard(device_);
    kernel_ = reinterpret_cast<const void*>(stream_kernel(problem.dtype, cut.samples));
    allow_shared_memory(kernel_, gpu(device));
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(weight_bytes(cut, product_)));
    arguments_ = arguments_of(problem, cut, weights_.data());
    shape_ = {
        .blocks = static_cast<unsigned>(blocks_of_weights(cut, product_) * sample_blocks(cut, product_)),
        .threads = cut.threads + producer_threads,
        .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
        .cluster_blocks = cut.cluster};
  }

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    pack_by_cut(arguments_.cut, problem_, values, weights_, stream);
    fresh_.packed_on(stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    const Arguments arguments = with_operands(arguments_, product_, operands);
    LaunchShape shape = shape_;
    fresh_.run(operands.stream, [&](bool may_overlap) {
      shape.overlapping = may_overlap;
      launch("multiply_stream", kernel_, shape, operands.stream, arguments);
    });
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return weights_.bytes(); }

 private:
  Problem problem_;
  Product product_;
  int device_;
  const void* kernel_ = nullptr;
  DeviceMemory weights_;
  FreshWeights fresh_;
  Arguments arguments_{};  ///< all but the operands
  LaunchShape shape_;
};

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.batch > max_batch)
    return message("is for batches of at most {}, not {}", max_batch, problem.batch);
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  if (!std::isfinite(choose(problem, facts).seconds))
    return "has no way to cut a pattern of this size into blocks";
  return {};
}

double predict(const Problem& problem, Device device) { return choose(problem, gpu(device)).seconds; }

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<StreamExecutor>(problem, device, choose(problem, gpu(device)).cut);
}

}  // namespace
}  // namespace stream

Implementation stream_implementation() {
  return {.name = "stream",
          .backend = Backend::cuda,
          .summary =
              "batches up to 64 of half types: weights streamed by the copy engine to Hopper's tensor cores",
          .refuse = stream::refuse,
          .predict = stream::predict,
          .make = stream::make};
}

}  // namespace kronsparse::cuda
