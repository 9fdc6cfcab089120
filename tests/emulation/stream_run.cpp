#include "stream_run.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <tuple>

namespace kronsparse::emulation {
namespace {

/// Packing goes from places to weights, the test the other way round.
PackedOrder order_of(const cuda::stream::Cut& cut, const cuda::Product& p) {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  const auto places = std::make_shared<std::map<Key, std::int64_t>>();
  const std::int64_t elements = cuda::stream::weight_bytes(cut, p) / 2;
  for (std::int64_t index = 0; index < elements; ++index) {
    const auto at = cuda::stream::PackedPlace::at<__half>(cut, index);
    if (at.k < p.b && at.l < p.c && at.j < p.d && !places->emplace(Key{at.i, at.k, at.l, at.j}, index).second)
      throw EmulationError("a weight has two places");
  }
  if (static_cast<std::int64_t>(places->size()) != p.a * p.b * p.c * p.d)
    throw EmulationError("a weight has no place");
  const auto place = [places](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
    return places->at({i, k, l, j});
  };
  return {elements, place};
}

}  // namespace

StreamCut run_stream(const ProductCase& one) {
  const cuda::stream::Choice choice = cuda::stream::choose(one.problem, one.gpu());
  if (!std::isfinite(choice.seconds)) throw EmulationError("there is no way to cut it");
  const cuda::Product p = cuda::product_of(one.problem);
  const cuda::stream::Cut& cut = choice.cut;
  StreamCut how{one.problem.dtype, cut, false, 0, 0};
  run_product(one, order_of(cut, p), false, [&](const Operands& operands, const void* weights) {
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
