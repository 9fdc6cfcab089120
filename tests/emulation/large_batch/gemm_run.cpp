#include "large_batch/gemm_run.hpp"

#include <memory>
#include <new>

#include "cuda/large_batch/gemm/kernels.hpp"

namespace kronsparse {
namespace cuda {

/// Takes the place of the driver's encoder.
CUtensorMap tensor_map(const TensorView& view) {
  CUtensorMap map{};
  static_assert(sizeof(emulation::Tensor) <= sizeof(map));
  new (&map) emulation::Tensor{static_cast<const std::byte*>(view.data),
                               view.sizes,
                               {0, view.stride_bytes(1), view.stride_bytes(2), view.stride_bytes(3)},
                               view.box,
                               view.swaps_halves};
  return map;
}

}  // namespace cuda

namespace emulation {

GemmCut run_gemm(const ProductCase& one) {
  const cuda::GpuFacts gpu = one.gpu();
  const cuda::GemmConfig config = cuda::gemm_config(one.problem, gpu);
  if (static_cast<std::size_t>(config.shared_bytes) > gpu.shared_bytes)
    throw EmulationError("the tiles do not fit");
  GemmCut cut{one.problem.dtype, config.shape_index, config.w_slots, false, false};
  run_product(one, PackedOrder::of(config.order), false, [&](const Operands& operands, const void* weights) {
    const auto arguments =
        std::make_shared<cuda::GemmArguments>(cuda::gemm_arguments(one.problem, config, operands, weights));
    cut.x_tensor_copies = arguments->x_tensor_copies;
    cut.y_tensor_copies = arguments->y_tensor_copies;
    const cuda::GemmKernel kernel = one.problem.dtype == DType::bf16
                                        ? cuda::gemm_bf16_kernel(config.shape_index)
                                        : cuda::gemm_f16_kernel(config.shape_index);
    return Launch{config.blocks(), cuda::kGemmProducerThreads + cuda::kGemmConsumerThreads,
                  config.shared_bytes, [arguments, kernel] { kernel(*arguments); }};
  });
  return cut;
}

}  // namespace emulation
}  // namespace kronsparse
