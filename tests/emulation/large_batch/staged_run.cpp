#include "large_batch/staged_run.hpp"

#include <memory>

#include "cuda/large_batch/gemm/kernels.hpp"
#include "cuda/large_batch/staged/steps.hpp"

namespace kronsparse::emulation {
namespace {

/// Records launches for later.
struct Recorder {
  cuda::GemmKernel kernel;
  int sort_shared_bytes;
  std::vector<Launch> launches;
  bool x_in_pieces = true, y_in_pieces = true;

  void sort(const cuda::SortArguments& arguments) {
    if (arguments.sort.tiles != 0) x_in_pieces = arguments.sort.in_pieces;
    if (arguments.unsort.tiles != 0) y_in_pieces = arguments.unsort.in_pieces;
    launches.push_back({static_cast<int>(arguments.unsort.tiles + arguments.sort.tiles), cuda::kSortThreads,
                        sort_shared_bytes, [arguments] { cuda::sort_by_j_kernel()(arguments); }});
  }

  void multiply(const cuda::GemmConfig& config, const cuda::GemmArguments& arguments) {
    const auto kept = std::make_shared<cuda::GemmArguments>(arguments);
    launches.push_back({config.blocks(), cuda::kGemmProducerThreads + cuda::kGemmConsumerThreads,
                        config.shared_bytes, [kept, run = kernel] { run(*kept); }});
  }
};

}  // namespace

StagedCut run_staged(const ProductCase& one) {
  const cuda::GpuFacts gpu = one.gpu();
  const cuda::StagedConfig config = cuda::staged_config(one.problem, gpu);
  if (config.levels.empty()) throw EmulationError("too few samples");
  std::vector<cuda::StagedLevelParts> levels;
  for (const cuda::StagedLevel& level : config.levels) levels.emplace_back(one.problem, level, gpu);
  const cuda::GemmConfig& gemm = levels.front().whole.config;
  Recorder recorder{.kernel = one.problem.dtype == DType::bf16 ? cuda::gemm_bf16_kernel(gemm.shape_index)
                                                               : cuda::gemm_f16_kernel(gemm.shape_index),
                    .sort_shared_bytes = static_cast<int>(cuda::sort_shared_bytes(one.problem.pattern().d)),
                    .launches = {}};
  run_steps(one, PackedOrder::of(cuda::staged_order(one.problem, gemm)), config.rest_first,
            [&](const Operands& operands, const void* weights) {
              for (const cuda::StagedLevelParts& level : levels)
                cuda::StagedSteps(level, weights, operands, recorder).all();
              return recorder.launches;
            });
  StagedCut cut{levels.size(), false, false, recorder.x_in_pieces, recorder.y_in_pieces};
  for (const cuda::StagedLevelParts& level : levels) {
    cut.splits_i |= level.level.blocks_i < one.problem.pattern().a;
    cut.has_shorter |= level.last.samples < level.whole.samples;
  }
  return cut;
}

}  // namespace kronsparse::emulation
