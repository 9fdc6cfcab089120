// Half types in batch_first with d > 1 and large blocks, in chunks of samples: sorted by j, multiplied by the
// gemm kernel, and sorted back on their way out. In between they lie in rows of y that come later, few enough
// to stay in L2: x and y cross the memory's bus once all the same, and a run needs no memory of its own. The
// last samples, which have no later rows, are another kernel's.
#include <cuda_runtime.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "cuda/backend.hpp"
#include "cuda/launch.hpp"
#include "cuda/multiply_gemm.hpp"
#include "cuda/staged_steps.hpp"
#include "cuda/tensor_core.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t element_bytes = 2;
constexpr std::int64_t most_d = 256;  // a tile of sort_by_j then fits into shared memory

/// Launches the steps of a run, each as soon as the one before ends.
class Launcher {
 public:
  Launcher(const Problem& problem, GemmKernel kernel, Stream stream, bool may_overlap)
      : sort_shared_bytes_(sort_shared_bytes(problem.pattern.d)),
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
  bool may_overlap_;  ///< the first launch; the others may
};

class StagedExecutor final : public Executor {
 public:
  StagedExecutor(const Problem& problem, Device device)
      : problem_(problem), p_(planned_product_of(problem)), device_(device.index) {
    const GpuFacts& facts = gpu(device);
    const StagedConfig config = staged_config(problem, facts);
    for (const StagedLevel& level : config.levels) levels_.emplace_back(problem, level, facts);
    rest_first_ = config.rest_first;
    rest_ = wgmma_implementation().make(staged_rest(problem, config), device);

    const GemmConfig& gemm = levels_.front().whole.config;
    kernel_ =
        problem.dtype == DType::bf16 ? gemm_bf16_kernel(gemm.shape_index) : gemm_f16_kernel(gemm.shape_index);
    order_ = staged_order(problem, gemm);
    const DeviceGuard guard(device_);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_), facts);
    allow_shared_memory(reinterpret_cast<const void*>(sort_by_j_kernel()), facts);
    weights_ = DeviceMemory(device_, static_cast<std::size_t>(order_.elements() * element_bytes));
    // Packing writes the weights alone; what pads them stays zero.
    check(cudaMemset(weights_.data(), 0, weights_.bytes()), "staged: clearing the weights");
  }

  void set_values(const void* values, Stream stream) override {
    const DeviceGuard guard(device_);
    pack_weights(order_, element_bytes, values, weights_.data(), is_transposed(problem_.operation), stream);
    fresh_.packed_on(stream);
    rest_->set_values(values, stream);
  }

  void run(const Operands& operands) const override {
    const DeviceGuard guard(device_);
    fresh_.run(operands.stream, [&](bool may_overlap) {
      Launcher launcher(problem_, kernel_, operands.stream, may_overlap);
      for (const StagedLevelParts& level : levels_)
        StagedSteps(level, weights_.data(), operands, launcher).all();
    });
    Operands rest = operands;
    rest.x = static_cast<const std::byte*>(operands.x) + rest_first_ * p_.x_sample * element_bytes;
    rest.y = static_cast<std::byte*>(operands.y) + rest_first_ * p_.y_sample * element_bytes;
    rest_->run(rest);
  }

  [[nodiscard]] std::size_t packed_bytes() const noexcept override {
    return weights_.bytes() + rest_->packed_bytes();
  }

 private:
  Problem problem_;
  Product p_;
  int device_;
  std::vector<StagedLevelParts> levels_;
  std::int64_t rest_first_ = 0;
  std::unique_ptr<Executor> rest_;
  WgmmaOrder order_{};
  GemmKernel kernel_ = nullptr;
  DeviceMemory weights_;
  FreshWeights fresh_;
};

std::string refuse(const Problem& problem, Device device) {
  if (std::string reason = half_refusal(problem); !reason.empty()) return reason;
  const Product p = product_of(problem);
  if (problem.layout != Layout::batch_first || p.d < 2 || p.d > most_d || p.d % 2 != 0)
    return message("takes batch_first with even d up to {}", most_d);
  if (p.b % kRunFeatures != 0 || p.c % kRunFeatures != 0)
    return message("takes b and c that are multiples of {}, not {} and {}", kRunFeatures, problem.pattern.b,
                   problem.pattern.c);
  if (p.y_sample != p.a * p.b * p.d) return "puts chunks into y in between, which has to be without gaps";
  const GpuFacts& facts = gpu(device);
  if (std::string reason = hopper_refusal(facts); !reason.empty()) return reason;
  const GemmConfig tile = gemm_config(staged_part(problem, 1, 1), facts);
  if (std::string reason = tile_refusal(facts, tile.shared_bytes, tile.order.groups() * p.a, 1);
      !reason.empty())
    return reason;
  const StagedConfig config = staged_config(problem, facts);
  if (config.levels.empty())
    return message("needs later samples for a chunk to lie in, {} are too few", p.batch);
  return wgmma_implementation().refuse(staged_rest(problem, config), device);
}

double predict(const Problem& problem, Device device) {
  const StagedConfig config = staged_config(problem, gpu(device));
  return staged_seconds(problem, config, gpu(device)) +
         wgmma_implementation().predict(staged_rest(problem, config), device);
}

std::unique_ptr<Executor> make(const Problem& problem, Device device) {
  return std::make_unique<StagedExecutor>(problem, device);
}

}  // namespace

Implementation staged_implementation() {
  return {.name = "staged",
          .backend = Backend::cuda,
          .summary = "gemm on chunks sorted by j, half types in batch_first with large blocks",
          .refuse = refuse,
          .predict = predict,
          .make = make};
}

}  // namespace kronsparse::cuda
