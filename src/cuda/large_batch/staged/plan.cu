// The kernel `staged`: half types in batch_first with d > 1 and large blocks.
//
// It takes chunks of samples through three steps: sort_by_j sorts x by j, the gemm kernel multiplies, and
// sort_by_j sorts the results back. In between, chunks lie in later rows of y, few enough to stay in L2. So x
// and y still cross the memory's bus once, and a run needs no memory of its own. The last samples have no
// later rows; another kernel takes them.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/gemm/kernels.hpp"
#include "cuda/large_batch/staged/steps.hpp"
#include "cuda/large_batch/wgmma/search.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t element_bytes = 2;
constexpr std::int64_t most_d = 256;  // so that a tile of sort_by_j fits into shared memory

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

/// The weights for gemm, followed by those for the remaining samples.
PackedOrder order_of(const Problem& problem, const WgmmaOrder& gemm, const PackedOrder& rest) {
  PackedOrder order = packed_order(gemm, is_transposed(problem.operation));
  std::ranges::copy(std::span(rest.numbers).first(7), order.numbers.begin() + 8);
  order.family = "staged";
  order.bytes += rest.bytes;
  return order;
}

class StagedExecutor final : public CudaExecutor {
 public:
  StagedExecutor(const Problem& problem, Device device, const StagedConfig& config, const GemmConfig& gemm,
                 std::unique_ptr<Executor> rest)
      : CudaExecutor(device, order_of(problem, staged_order(problem, gemm), rest->order()),
                     layouts_of(problem, gemm, *rest)),
        problem_(problem),
        p_(planned_product_of(problem)),
        rest_first_(config.rest_first),
        rest_weights_(order().bytes - rest->order().bytes),
        rest_(std::move(rest)),
        kernel_(problem.dtype == DType::bf16 ? gemm_bf16_kernel(gemm.shape_index)
                                             : gemm_f16_kernel(gemm.shape_index)) {
    const GpuFacts& facts = gpu(device);
    for (const StagedLevel& level : config.levels) levels_.emplace_back(problem, level, facts);
    const DeviceGuard guard(device.index);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), facts);
    allow_shared_memory(reinterpret_cast<const void*>(sort_by_j_kernel()), facts);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    Launcher launcher(problem_, kernel_, operands.stream, !weights.just_packed);
    for (const StagedLevelParts& level : levels_) StagedSteps(level, weights.data, operands, launcher).all();
    Operands rest = operands;
    rest.x = static_cast<const std::byte*>(operands.x) + rest_first_ * p_.x_sample * element_bytes;
    rest.y = static_cast<std::byte*>(operands.y) + rest_first_ * p_.y_sample * element_bytes;
    // The first launch has waited for the packing.
    rest_->run(rest, {static_cast<const std::byte*>(weights.data) + rest_weights_, false});
  }

 private:
  static std::vector<PackLayout> layouts_of(const Problem& problem, const GemmConfig& gemm,
                                            const Executor& rest) {
    std::vector<PackLayout> layouts = static_cast<const CudaExecutor&>(rest).layouts();
    layouts.insert(layouts.begin(), pack_layout(problem, staged_order(problem, gemm)));
    return layouts;
  }

  Problem problem_;
  Product p_;
  std::vector<StagedLevelParts> levels_;
  std::int64_t rest_first_;
  std::size_t rest_weights_;  ///< offset of its weights
  std::unique_ptr<Executor> rest_;
  GemmKernel kernel_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return refused(std::move(reason));
  const Product p = product_of(problem);
  if (problem.layout != Layout::batch_first || p.d < 2 || p.d > most_d || p.d % 2 != 0)
    return refused(message("takes batch_first with even d up to {}, not {} with d = {}", most_d,
                           name(problem.layout), p.d));
  if (p.b % kRunFeatures != 0 || p.c % kRunFeatures != 0)
    return refused(message("takes b and c that are multiples of {}, not {} and {}", kRunFeatures,
                           problem.pattern().b, problem.pattern().c));
  if (p.y_sample != p.a * p.b * p.d)
    return refused(
        message("needs y without gaps, because chunks lie there in between; its rows have {} elements and "
                "lie {} apart",
                p.a * p.b * p.d, p.y_sample));
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return refused(std::move(reason));
  const GemmConfig tile = gemm_config(staged_part(problem, 1, 1), facts);
  if (std::string reason = tile_refusal(facts, tile.shared_bytes, tile.order.groups() * p.a, 1);
      !reason.empty())
    return refused(std::move(reason));
  const StagedConfig config = staged_config(problem, facts);
  if (config.levels.empty())
    return refused(message(
        "needs a larger batch, because chunks lie in the rows of later samples; {} are too few", p.batch));
  const Problem rest_problem = staged_rest(problem, config);
  Proposal rest = wgmma_implementation().propose(rest_problem, device, nullptr);
  if (!rest.refusal.empty()) return rest;
  // The tiles of all chunks are alike.
  const PackedOrder order =
      order_of(problem, staged_order(problem, tile),
               packed_order(wgmma_config(rest_problem, facts).order, is_transposed(problem.operation)));
  if (std::string reason = order_refusal(order, packed_as); !reason.empty())
    return refused(std::move(reason));
  return {
      .refusal = {},
      .seconds = staged_seconds(problem, config, facts) + rest.seconds,
      .packing_seconds = packing_seconds(facts, problem, order),
      .make = [problem, device, config, tile, rest = std::move(rest.make)]() -> std::unique_ptr<Executor> {
        return std::make_unique<StagedExecutor>(problem, device, config, tile, rest());
      }};
}

}  // namespace

Implementation staged_implementation() {
  return {.name = "staged",
          .backend = Backend::cuda,
          .summary = "gemm on chunks sorted by j, half types in batch_first with large blocks",
          .propose = propose};
}

}  // namespace kronsparse::cuda
