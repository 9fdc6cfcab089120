// The product for small batches on Hopper: packing, launch, its entry in the table.
#include <cmath>
#include <memory>
#include <string>

#include "core/implementation.hpp"
#include "cuda/backend.hpp"
#include "cuda/cut_executor.cuh"
#include "cuda/multiply_stream.cuh"
#include "cuda/stream_config.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace stream {
namespace {

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  if (std::string reason = batch_refusal(problem, max_batch); !reason.empty()) return reason;
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
      "multiply_stream", problem, device, cut,
      reinterpret_cast<const void*>(stream_kernel(problem.dtype, cut.samples)),
      LaunchShape{.blocks = static_cast<unsigned>(blocks_of_weights(cut, p) * sample_blocks(cut, p)),
                  .threads = cut.threads + producer_threads,
                  .shared_bytes = static_cast<std::size_t>(shared_layout(cut).total),
                  .cluster_blocks = cut.cluster});
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
