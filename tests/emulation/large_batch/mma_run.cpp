#include "large_batch/mma_run.hpp"

#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/mma/kernels.hpp"

namespace kronsparse::emulation {
namespace {

using cuda::Arithmetic;

cuda::mma::Kernel kernel_of(Arithmetic arithmetic, std::size_t shape) {
  switch (arithmetic) {
    case Arithmetic::f16:
      return cuda::mma_f16_kernel(shape);
    case Arithmetic::bf16:
      return cuda::mma_bf16_kernel(shape);
    case Arithmetic::tf32:
      return cuda::mma_tf32_kernel(shape);
    case Arithmetic::tf32x3:
      return cuda::mma_tf32x3_kernel(shape);
  }
  throw EmulationError("unknown arithmetic");
}

}  // namespace

MmaCut run_mma(const ProductCase& one, const cuda::mma::Config& config) {
  const cuda::mma::Arguments& cut = config.arguments;
  MmaCut result{one.problem.dtype, one.problem.layout, config.shape_index, 0, 0,
                cut.chunks > 1,    cut.passes > 1};
  const PackedOrder order{.elements = config.order.elements(),
                          .place = [&](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
                            return config.order.place(i, k, l, j);
                          }};
  const Arithmetic arithmetic = cuda::arithmetic_of(one.problem);
  run_product(
      one, order, arithmetic == Arithmetic::tf32x3, [&](const Operands& operands, const void* weights) {
        const cuda::mma::Arguments arguments =
            cuda::mma::arguments_of(one.problem, config, operands, weights);
        result.x_width = arguments.from.width;
        result.y_width = arguments.to.width;
        return Launch{static_cast<int>(config.tiles), config.threads, config.shared_bytes,
                      [arguments, kernel = kernel_of(arithmetic, config.shape_index)] { kernel(arguments); }};
      });
  return result;
}

MmaCut run_mma(const ProductCase& one) {
  const auto config = cuda::mma::best_config(one.problem, one.gpu());
  if (!config) throw EmulationError("no tile fits");
  return run_mma(one, *config);
}

}  // namespace kronsparse::emulation
