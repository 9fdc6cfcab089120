// The kernel `staged`: half types in batch_first with d > 1 and large blocks.
//
// It takes chunks of samples through three steps: sort_by_j sorts x by j, the gemm kernel multiplies, and
// sort_by_j sorts the results back. In between, chunks lie in the run's workspace, and are small enough to
// stay in L2. So x and y still cross the memory's bus once.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/gemm/kernels.hpp"
#include "cuda/large_batch/staged/steps.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t most_d = 1024;  // so that a tile of sort_by_j fits into shared memory

/// Launches the steps of a run. Each may start as soon as the one before ends; the first starts after the
/// packing has ended.
class Launcher {
 public:
  Launcher(const Problem& problem, GemmKernel kernel, Stream stream, bool may_overlap)
      : sort_shared_bytes_(sort_shared_bytes(problem.pattern().d)),
        kernel_(kernel),
        stream_(stream),
        may_overlap_(may_overlap) {}

  void sort(const SortArguments& arguments) {
    launch("sort_by_j", sort_by_j_kernel(),
           {.blocks = arguments.unsort.tiles + arguments.sort.tiles,
            .threads = kSortThreads,
            .shared_bytes = sort_shared_bytes_,
            .overlapping = std::exchange(may_overlap_, true)},
           stream_, arguments);
  }

  void multiply(const GemmConfig& config, const GemmArguments& arguments) {
    launch("multiply_gemm", reinterpret_cast<const void*>(kernel_),
           {.blocks = static_cast<unsigned>(config.blocks()),
            .threads = kGemmProducerThreads + kGemmConsumerThreads,
            .shared_bytes = static_cast<std::size_t>(config.shared_bytes),
            .overlapping = true},
           stream_, arguments);
  }

 private:
  std::size_t sort_shared_bytes_;
  GemmKernel kernel_;
  Stream stream_;
  bool may_overlap_;  ///< for the next launch
};

PackedOrder order_of(const Problem& problem, const GemmConfig& gemm) {
  PackedOrder order = packed_order(staged_order(problem, gemm), is_transposed(problem.operation));
  order.family = "staged";
  return order;
}

class StagedExecutor final : public CudaExecutor {
 public:
  StagedExecutor(const Problem& problem, Device device, const StagedConfig& config, const GemmConfig& gemm)
      : CudaExecutor(device, order_of(problem, gemm), {pack_layout(problem, staged_order(problem, gemm))}),
        problem_(problem),
        parts_(problem, config, gpu(device)),
        kernel_(problem.dtype == DType::bf16 ? gemm_bf16_kernel(gemm.shape_index)
                                             : gemm_f16_kernel(gemm.shape_index)) {
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), gpu(device));
    allow_shared_memory(reinterpret_cast<const void*>(sort_by_j_kernel()), gpu(device));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    Launcher launcher(problem_, kernel_, operands.stream, !weights.just_packed);
    StagedSteps(parts_, weights.data, operands, launcher).all();
  }

 private:
  Problem problem_;
  StagedParts parts_;
  GemmKernel kernel_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const Product p = planned_product_of(problem);
  if (problem.layout != Layout::batch_first || p.d < 2 || p.d > most_d)
    return refused(message("takes batch_first with d from 2 to {}, not {} with d = {}", most_d,
                           name(problem.layout), p.d));
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (p.a >= limit / sorted_length(std::max(p.b, p.c)) / p.d)
    return refused("needs fewer than 2^31 features of x and of y");
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  const GemmConfig tile = gemm_config(staged_part(problem, 1, 1), facts);
  if (std::string reason = tile_refusal(facts, tile.shared_bytes, tile.order.groups() * p.a, 1);
      !reason.empty())
    return refused(std::move(reason));
  const StagedConfig config = staged_config(problem, facts);
  if (config.chunk == 0)
    return refused(
        message("needs a tile of samples with one block i to fit into L2, of {} bytes", facts.l2_bytes));
  // The tiles of all chunks are alike.
  const PackedOrder order = order_of(problem, tile);
  if (std::string reason = order_refusal(order, packed_as); !reason.empty())
    return refused(std::move(reason));
  return {.refusal = {},
          .seconds = staged_seconds(problem, config, facts),
          .packing_seconds = packing_seconds(facts, problem, order),
          .make = [problem, device, config, tile]() -> std::unique_ptr<Executor> {
            return std::make_unique<StagedExecutor>(problem, device, config, tile);
          },
          .workspace_bytes = static_cast<std::size_t>(staged_scratch(problem, config).bytes)};
}

}  // namespace

Implementation staged_implementation() {
  return {.name = "staged",
          .backend = Backend::cuda,
          .summary = "gemm on chunks sorted by j, half types in batch_first with large blocks",
          .propose = propose};
}

}  // namespace kronsparse::cuda
