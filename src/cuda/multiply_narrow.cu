// The product for small batches in blocks of few outputs: launch and its entry in the table.
#include <cmath>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/cut_executor.cuh"
#include "cuda/narrow_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace narrow {
namespace {

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (problem.layout != Layout::batch_first) return "takes batch_first only";
  if (std::string reason = batch_refusal(problem, max_samples); !reason.empty()) return reason;
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
  const Cut cut = choose(problem, gpu(device)).cut;
  const Product p = product_of(problem);
  return std::make_unique<CutExecutor<Cut, Arguments>>(
      "multiply_narrow", problem, device, cut,
      reinterpret_cast<const void*>(narrow_kernel(problem.dtype, cut.shape)),
      LaunchShape{.blocks = static_cast<unsigned>(blocks_of(cut, p)),
                  .threads = cut.threads() + producer_threads,
                  .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
                  .cluster_blocks = cut.splits});
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
