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
  bool x_in_pairs = true, y_in_pairs = true;

  void sort(const cuda::SortArguments& arguments) {
    if (arguments.sort.tiles != 0) x_in_pairs = arguments.sort.in_pairs;
    if (arguments.unsort.tiles != 0) y_in_pairs = arguments.unsort.in_pairs;
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
  if (config.chunk == 0) throw EmulationError("too little L2");
  const cuda::StagedParts parts(one.problem, config, gpu);
  const cuda::GemmConfig& gemm = parts.whole.config;
  Recorder recorder{.kernel = one.problem.dtype == DType::bf16 ? cuda::gemm_bf16_kernel(gemm.shape_index)
                                                               : cuda::gemm_f16_kernel(gemm.shape_index),
                    .sort_shared_bytes = static_cast<int>(cuda::sort_shared_bytes(one.problem.pattern().d)),
                    .launches = {}};
  run_steps(one, PackedOrder::of(cuda::staged_order(one.problem, gemm)), parts.scratch.bytes,
            [&](const Operands& operands, const void* weights) {
              cuda::StagedSteps(parts, weights, operands, recorder).all();
              return recorder.launches;
            });
  return {config.chunk < one.problem.batch, config.blocks_i < one.problem.pattern().a,
          parts.last.samples < parts.whole.samples, recorder.x_in_pairs, recorder.y_in_pairs};
}

}  // namespace kronsparse::emulation
