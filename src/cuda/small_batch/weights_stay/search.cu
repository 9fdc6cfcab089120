// The small-batch kernel `weights-stay`: the search for the cheapest cut, and the cost model.
#include <algorithm>
#include <cmath>

#include "cuda/host/alignment.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/small_batch/weights_stay/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::weights_stay {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;

TensorView x_view(const Product& p, const Shape& shape, const void* x) {
  const std::int64_t rows = p.c * p.d / row_elements;
  if (shape.by_rows())
    return {.data = x,
            .sizes = {row_elements, p.batch, rows, p.a},
            .strides = {p.x_sample, row_elements, p.c * p.d},
            .box = {row_elements, tile_samples, shape.box_rows(), 1}};
  return {.data = x,
          .sizes = {row_elements, rows, p.batch, p.a},
          .strides = {row_elements, p.x_sample, p.c * p.d},
          .box = {row_elements, shape.box_rows(), 1, 1}};
}

/// Seconds of a run.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const tuning::WeightsStay& costs = tuning_of(facts).weights_stay.costs;
  const int d = cut.shape.d;
  const double start = costs.start + (d >= 32 ? costs.start_of_32_j : d >= 8 ? costs.start_of_8_j : 0);
  const double l2_rate = costs.l2_rate * relative_l2(facts);  // to all multiprocessors
  const double work = d >= 64   ? costs.work_of_64_j
                      : d >= 32 ? costs.work_of_32_j
                      : d >= 8  ? costs.work_of_8_j
                                : 0;

  const double size = cut.shape.fragments / 32.0;  // size of a block
  const double blocks = static_cast<double>(blocks_of(cut, p)), passes = cut.passes;
  const double of_each = std::ceil(blocks / std::max(facts.multiprocessors, 1));
  const double waves = std::ceil(of_each / cut.shape.blocks_at_once());
  const double weights = static_cast<double>(weight_bytes(cut, p));
  const double x = blocks * passes * tile_samples * cut.shape.rows() * row_bytes;
  return start + costs.weights * weights / facts.memory_rate +
         (costs.weights_again * weights * cut.sample_blocks + costs.x_again * x) / l2_rate +
         (waves - 1) * costs.wave + waves * (passes - 1) * costs.pass +
         of_each * size * (costs.block + passes * work);
}

template <class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, const Cut* packed_as, Visitor&& visit) {
  if (p.x_feature != 1 || p.y_feature != 1 || p.batch > max_samples) return;
  for (const Shape& shape : shapes) {
    if (shape.d != p.d || p.c > shape.terms() || p.c * p.d % row_elements != 0) continue;
    if (!x_view(p, shape, nullptr).strides_fit()) continue;
    const std::int64_t k_tiles = quotient_up(p.b, tile_outputs), tiles = quotient_up(p.batch, tile_samples);
    for (std::int64_t sample_blocks = 1; sample_blocks <= tiles; ++sample_blocks) {
      const std::int64_t passes = quotient_up(tiles, sample_blocks);
      if (quotient_up(tiles, passes) != sample_blocks) continue;  // fewer blocks would do
      if (k_tiles > max_blocks / p.a / sample_blocks) continue;
      const Cut cut{.shape = shape,
                    .passes = static_cast<int>(passes),
                    .k_tiles = static_cast<int>(k_tiles),
                    .sample_blocks = static_cast<int>(sample_blocks)};
      if (packed_as != nullptr && !same_order(cut, *packed_as)) continue;
      if (static_cast<std::size_t>(shared_layout(cut).total) <= facts.shared_bytes) visit(cut);
    }
  }
}

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  BestCut<Cut> best;
  int number = 0;
  for_each_cut(p, facts, packed_as,
               [&](const Cut& cut) { best.offer(cut, predict_cut(cut, p, facts), number++); });
  return best.choice();
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  std::vector<Choice> all;
  for_each_cut(p, facts, nullptr, [&](const Cut& cut) { all.push_back({cut, predict_cut(cut, p, facts)}); });
  return all;
}

Choice choose(const Problem& problem, const GpuFacts& facts) { return search(problem, facts, nullptr); }
Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
  return search(problem, facts, &packed_as);
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights) {
  const Product p = product_of(problem);
  return {.x_map = {},
          .weights = static_cast<const uint4*>(weights),
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .boxes = false,
          .y_vectors = p.batch == 1 || p.y_sample % cut.shape.unit() == 0,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = static_cast<int>(p.b),
          .x_rows = static_cast<int>(p.c * p.d / row_elements),
          .x_sample = p.x_sample,
          .y_sample = p.y_sample,
          .k_tiles = Divisor(static_cast<std::uint32_t>(cut.k_tiles)),
          .blocks_of_samples = Divisor(static_cast<std::uint32_t>(cut.sample_blocks))};
}

Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands) {
  const Shape& shape = arguments.cut.shape;
  const TensorView x = x_view(p, shape, operands.x);
  arguments.boxes = x.fits();
  if (arguments.boxes) arguments.x_map = tensor_map(x);
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  arguments.y_vectors = arguments.y_vectors && is_aligned(operands.y, 2 * shape.unit());
  return arguments;
}

}  // namespace kronsparse::cuda::weights_stay
