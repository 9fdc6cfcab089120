#include "stream_run.hpp"

#include <cmath>
#include <memory>

namespace kronsparse::emulation {

StreamCut run_stream(const ProductCase& one) {
  const cuda::stream::Choice choice = cuda::stream::choose(one.problem, one.gpu());
  if (!std::isfinite(choice.seconds)) throw EmulationError("there is no way to cut it");
  const cuda::Product p = cuda::product_of(one.problem);
  const cuda::stream::Cut& cut = choice.cut;
  StreamCut how{one.problem.dtype, cut, false, 0, 0};
  const PackedOrder order =
      PackedOrder::of(p, cuda::stream::weight_bytes(cut, p) / 2,
                      [&](std::int64_t index) { return cuda::stream::packed_place(cut, index); });
  run_product(one, order, false, [&](const Operands& operands, const void* weights) {
    const auto arguments = std::make_shared<cuda::stream::Arguments>(
        cuda::stream::with_operands(cuda::stream::arguments_of(one.problem, cut, weights), p, operands));
    how.boxes = arguments->cut.boxes;
    how.x_bytes = arguments->place.bytes;
    how.y_vector = arguments->y_vector;
    const cuda::StreamKernel kernel = cuda::stream_kernel(one.problem.dtype, cut.samples);
    const std::int64_t blocks = cuda::stream::blocks_of_weights(cut, p) * cuda::stream::sample_blocks(cut, p);
    return Launch{static_cast<int>(blocks), cut.threads + cuda::stream::producer_threads,
                  cuda::stream::shared_layout(cut).total, [arguments, kernel] { kernel(*arguments); },
                  cut.cluster};
  });
  return how;
}

}  // namespace kronsparse::emulation
