// Plans of the kernels for small batches, resident, direct, stream and narrow, which differ in their cuts and
// arguments alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "cuda/launch.hpp"
#include "cuda/packed_weights.cuh"
#include "cuda/product.hpp"
#include "cuda/runtime.hpp"

namespace kronsparse::cuda {

/// Which arguments the ordinary kernel is for, of those that have one beside that for all.
template <class Arguments>
[[nodiscard]] bool is_ordinary(const Arguments& /*args*/) {
  return false;
}

/// Beside a Cut there are weight_bytes(cut, product), arguments_of(problem, cut, weights) and
/// with_operands(arguments, product, operands).
template <class Cut, class Arguments>
class CutExecutor final : public Executor {
 public:
  CutExecutor(const char* name, const Problem& problem, Device device, const Cut& cut, const void* kernel,
              const void* ordinary_kernel, const LaunchShape& shape)
      : name_(name),
        problem_(problem),
        product_(product_of(problem)),
        device_(device.index),
        kernel_(kernel),
        ordinary_kernel_(ordinary_kernel),
        shape_(shape) {
    const DeviceGuard guard(device_);
    allow_shared_memory(kernel_, gpu(device));
    allow_shared_memory(ordinary_kernel_, gpu(device));
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(weight_bytes(cut, product_)));
    arguments_ = arguments_of(problem, cut, weights_.data());
  }

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    pack_by_cut(arguments_.cut, problem_, values, weights_, stream);
    fresh_.packed_on(stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    const Arguments arguments = with_operands(arguments_, product_, operands);
    const void* kernel = is_ordinary(arguments) ? ordinary_kernel_ : kernel_;
    fresh_.run(operands.stream, [&](bool may_overlap) {
      LaunchShape shape = shape_;
      shape.overlapping = may_overlap;
      launch(name_, kernel, shape, operands.stream, arguments);
    });
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override { return weights_.bytes(); }

 private:
  const char* name_;
  Problem problem_;
  Product product_;
  int device_;
  const void* kernel_;
  const void* ordinary_kernel_;  ///< the same where there is no other
  LaunchShape shape_;
  DeviceMemory weights_;
  FreshWeights fresh_;
  Arguments arguments_{};  ///< all but the operands
};

/// The entry in the table of a kernel with many cuts. `Family` has the types Cut and Arguments and says
///   name, kernel_name, summary, uncut          texts; the last is the refusal where no cut is possible
///   refusal(problem), gpu_refusal(facts)       why not, empty when it can
///   choose(problem, facts)                     the cheapest cut
///   kernel(dtype, cut), launch_shape(cut, product, facts)
///   ordinary_kernel(dtype, cut)                if it has one, and is_ordinary(arguments) beside Arguments
template <class Family>
[[nodiscard]] Implementation implementation_by_cuts() {
  return {.name = Family::name,
          .backend = Backend::cuda,
          .summary = Family::summary,
          .refuse = [](const Problem& problem, Device device) -> std::string {
            if (std::string reason = Family::refusal(problem); !reason.empty()) return reason;
            const GpuFacts& facts = gpu(device);
            if (std::string reason = Family::gpu_refusal(facts); !reason.empty()) return reason;
            return std::isfinite(Family::choose(problem, facts).seconds) ? "" : Family::uncut;
          },
          .predict = [](const Problem& problem,
                        Device device) { return Family::choose(problem, gpu(device)).seconds; },
          .make = [](const Problem& problem, Device device) -> std::unique_ptr<Executor> {
            const GpuFacts& facts = gpu(device);
            const typename Family::Cut cut = Family::choose(problem, facts).cut;
            const void* kernel = Family::kernel(problem.dtype, cut);
            const void* ordinary_kernel = kernel;
            if constexpr (requires { Family::ordinary_kernel(problem.dtype, cut); })
              ordinary_kernel = Family::ordinary_kernel(problem.dtype, cut);
            return std::make_unique<CutExecutor<typename Family::Cut, typename Family::Arguments>>(
                Family::kernel_name, problem, device, cut, kernel, ordinary_kernel,
                Family::launch_shape(cut, product_of(problem), facts));
          }};
}

}  // namespace kronsparse::cuda
