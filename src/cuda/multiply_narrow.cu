// The product for small batches in blocks of few outputs: launch and its entry in the table.
#include <cmath>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/narrow_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace narrow {
namespace {

class NarrowExecutor final : public Executor {
 public:
  NarrowExecutor(const Problem& problem, Device device, const Cut& cut)
      : problem_(problem), product_(product_of(problem)), device_(device.index) {
    const DeviceGuard guard(device_);
    kernel_ = reinterpret_cast<const void*>(narrow_kernel(problem.dtype, cut.shape));
    allow_shared_memory(kernel_, gpu(device));
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(weight_bytes(cut, product_)));
    arguments_ = arguments_of(problem, cut, weights_.data());
    shape_ = {.blocks = static_cast<unsigned>(blocks_of(cut, product_)),
              .threads = cut.threads() + producer_threads,
              .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
              .cluster_blocks = cut.splits};
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
      launch("multiply_narrow", kernel_, shape, operands.stream, arguments);
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
  if (problem.layout != Layout::batch_first) return "takes batch_first only";
  if (problem.batch > max_samples)
    return message("is for batches of at most {}, not {}", max_samples, problem.batch);
  const std::int64_t d = problem.pattern.d;
  if (d != 1 && d != 2 && d != 4 && d % 8 != 0)
    return message("takes d = 1, 2, 4 or multiples of 8, not {}", d);
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  if (!std::isfinite(choose(problem, facts).seconds))
    return "has no way to cut a pattern of this size into blocks";
  return {};
}

double predict(const Problem& problem, Device device) { return choose(problem, gpu(device)).seconds; }

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<NarrowExecutor>(problem, device, choose(problem, gpu(device)).cut);
}

}  // namespace
}  // namespace narrow

Implementation narrow_implementation() {
  return {.name = "narrow",
          .backend = Backend::cuda,
          .summary =
              "batches up to 64 of half types: tensor copies of x, blocks of few outputs on Hopper's tensor "
              "cores",
          .refuse = narrow::refuse,
          .predict = narrow::predict,
          .make = narrow::make};
}

}  // namespace kronsparse::cuda
