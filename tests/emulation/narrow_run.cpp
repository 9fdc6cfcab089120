#include "narrow_run.hpp"

#include <memory>

namespace kronsparse::emulation {

NarrowCut run_narrow(const ProductCase& one, const cuda::narrow::Cut& cut) {
  namespace narrow = cuda::narrow;
  const cuda::Product p = cuda::product_of(one.problem);
  NarrowCut how{one.problem.dtype, cut, false, false};
  const PackedOrder order = PackedOrder::of(p, narrow::weight_bytes(cut, p) / 2, [&](std::int64_t index) {
    return narrow::packed_place(cut, index);
  });
  run_product(one, order, false, [&](const Operands& operands, const void* weights) {
    const auto arguments = std::make_shared<narrow::Arguments>(
        narrow::with_operands(narrow::arguments_of(one.problem, cut, weights), p, operands));
    how.boxes = arguments->boxes;
    how.y_vectors = arguments->y_vectors;
    const cuda::NarrowKernel kernel = cuda::narrow_kernel(one.problem.dtype, cut.shape);
    return Launch{static_cast<int>(narrow::blocks_of(cut, p)), cut.threads() + narrow::producer_threads,
                  narrow::shared_layout(cut).total, [arguments, kernel] { kernel(*arguments); }, cut.splits};
  });
  return how;
}

}  // namespace kronsparse::emulation
