// The product for small batches where neighbouring j lie together: launch and its entry in the table.
#include <cmath>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/cut_executor.cuh"
#include "cuda/direct_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace direct {
namespace {

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.layout != Layout::batch_first) return "takes batch_first only";
  if (std::string reason = batch_refusal(problem, max_samples); !reason.empty()) return reason;
  if (problem.pattern.d % 2 != 0) return message("takes even d, not {}", problem.pattern.d);
  const GpuFacts& facts = gpu(device);
  if (std::string reason = capability_refusal(facts, 90); !reason.empty()) return reason;
  if (!std::isfinite(choose(problem, facts).seconds))
    return "has no way to cut a pattern of this size, or rows of x this far apart, into blocks";
  return {};
}

double predict(const Problem& problem, Device device) { return choose(problem, gpu(device)).seconds; }

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  const Cut cut = choose(problem, gpu(device)).cut;
  const Product p = product_of(problem);
  return std::make_unique<CutExecutor<Cut, Arguments>>(
      "multiply_direct", problem, device, cut,
      reinterpret_cast<const void*>(direct_kernel(problem.dtype, cut.shape)),
      LaunchShape{.blocks = static_cast<unsigned>(blocks_of(cut, p)),
                  .threads = cut.warps() * 32,
                  .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
                  .shared_percent = shared_percent(cut, p, gpu(device))});
}

}  // namespace
}  // namespace direct

Implementation direct_implementation() {
  return {.name = "direct",
          .backend = Backend::cuda,
          .summary = "batches up to 64 of half types, even d: x straight to the registers of tensor cores",
          .refuse = direct::refuse,
          .predict = direct::predict,
          .make = direct::make};
}

}  // namespace kronsparse::cuda
