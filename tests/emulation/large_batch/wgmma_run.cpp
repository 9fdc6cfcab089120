#include "large_batch/wgmma_run.hpp"

#include "cuda/device/tensor_core.cuh"

namespace kronsparse::emulation {
namespace {

using cuda::Arithmetic;
using cuda::WgmmaConfig;

cuda::WgmmaKernel kernel_of(const WgmmaConfig& config) {
  switch (config.arithmetic) {
    case Arithmetic::f16:
      return cuda::wgmma_f16_kernel(config.shape_index);
    case Arithmetic::bf16:
      return cuda::wgmma_bf16_kernel(config.shape_index);
    case Arithmetic::tf32:
      return cuda::wgmma_tf32_kernel(config.shape_index);
    case Arithmetic::tf32x3:
      return cuda::wgmma_tf32x3_kernel(config.shape_index);
  }
  throw EmulationError("unknown arithmetic");
}

}  // namespace

WgmmaCut run_wgmma(const ProductCase& one) {
  const cuda::GpuFacts gpu = one.gpu();
  const WgmmaConfig config = cuda::wgmma_config(one.problem, gpu);
  if (static_cast<std::size_t>(config.shared_bytes) > gpu.shared_bytes)
    throw EmulationError("the tiles do not fit");
  WgmmaCut cut{config.arithmetic, config.shape_index, config.resident, 0, 0};
  run_product(
      one, PackedOrder::of(config.order), config.arithmetic == Arithmetic::tf32x3,
      [&](const Operands& operands, const void* weights) {
        const cuda::WgmmaArguments arguments = cuda::wgmma_arguments(one.problem, config, operands, weights);
        cut.x_copy = arguments.x_copy;
        cut.y_store = arguments.y_store;
        return Launch{config.blocks, cuda::kProducerThreads + cuda::kConsumerThreads, config.shared_bytes,
                      [arguments, kernel = kernel_of(config)] { kernel(arguments); }};
      });
  return cut;
}

}  // namespace kronsparse::emulation
