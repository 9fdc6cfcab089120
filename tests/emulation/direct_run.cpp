#include "direct_run.hpp"

#include <memory>

namespace kronsparse::emulation {

DirectCut run_direct(const ProductCase& one, const cuda::direct::Cut& cut) {
  namespace direct = cuda::direct;
  const cuda::Product p = cuda::product_of(one.problem);
  DirectCut how{one.problem.dtype, cut, false, false};
  const PackedOrder order = PackedOrder::of(p, direct::weight_bytes(cut, p) / 2, [&](std::int64_t index) {
    return direct::packed_place(cut, index);
  });
  run_product(one, order, false, [&](const Operands& operands, const void* weights) {
    const auto arguments = std::make_shared<direct::Arguments>(
        direct::with_operands(direct::arguments_of(one.problem, cut, weights), p, operands));
    how.x_vectors = arguments->x_vectors;
    how.y_vectors = arguments->y_vectors;
    const cuda::DirectKernel kernel = cuda::direct_kernel(one.problem.dtype, cut.shape);
    return Launch{static_cast<int>(direct::blocks_of(cut, p)), cut.warps() * 32,
                  direct::shared_layout(cut).total, [arguments, kernel] { kernel(*arguments); }};
  });
  return how;
}

}  // namespace kronsparse::emulation
