#include <algorithm>
#include <cmath>

#include "cuda/alignment.hpp"
#include "cuda/epilogue.cuh"
#include "cuda/held_config.hpp"
#include "cuda/tensor_map.hpp"

namespace kronsparse::cuda::held {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;
constexpr std::int64_t max_tiles = 64;  ///< of a block

TensorView x_view(const Product& p, const void* x) {
  return {.data = x,
          .sizes = {row_elements, p.batch, p.c * p.d / row_elements, p.a},
          .strides = {p.x_sample, row_elements, p.c * p.d},
          .box = {row_elements, tile_samples, box_rows, 1}};
}

/// Of a kernel that leaves fewer multiprocessors free than it has blocks, as many blocks begin long before
/// others. They have time to ask for so many bytes each, and of more than so many in all the kernel ahead,
/// which is still reading weights of its own, becomes slower.
void let_first_blocks_ask(Cut& cut, const Product& p, const GpuFacts& facts) {
  constexpr std::int64_t of_each = 600 << 10, of_all = 8 << 20;
  const std::int64_t blocks = blocks_of(cut, p), free = facts.multiprocessors - blocks;
  if (free < 1 || free >= blocks) return;
  const std::int64_t bytes_of_tile = p.a * cut.k_blocks * tile_weight_bytes;
  cut.early_tiles =
      static_cast<int>(std::min<std::int64_t>(cut.tiles, std::min(free * of_each, of_all) / bytes_of_tile));
  if (cut.early_tiles > 0) cut.early_blocks = static_cast<int>(free);
}

/// The parts of a run's seconds.
struct Parts {
  double working, reading;  ///< beside each other
  double added;             ///< to the longest
  double factor;            ///< of all
};
constexpr double shortest = 2.65e-6;  // however little there is to do
constexpr double sharpness = 7.6;     // of the largest of three

/// Fitted to 1,516 cuts of 92 problems on an H200: what they prefer takes 1.02 times as long as the best in
/// the mean, and 8 % more or less than they say.
Parts parts_of(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const int d = cut.shape.d;
  const double tile_seconds = d == 4 ? 0.674e-6 : d == 8 ? 0.810e-6 : 0.855e-6;
  constexpr double start = 1.29e-6, wave_seconds = 1.73e-6;
  constexpr double memory_start = 1.49e-6, memory_share = 0.944;  // of the time to read weights
  constexpr double weights_rate = 53.8e12, x_rate = 30.9e12;      // from L2, beside all else
  constexpr double missing_samples = 1.4;  // of boxes that have less than half of theirs
  constexpr double only_reader = 1.2;  // of weights: none of a later tile's are in L2 when it asks for them

  const double blocks = static_cast<double>(blocks_of(cut, p));
  const double waves = std::ceil(blocks / std::max(facts.multiprocessors, 1));
  const double working = start + waves * cut.tiles * tile_seconds + (waves - 1) * wave_seconds;
  const double reading =
      memory_start + memory_share * static_cast<double>(weight_bytes(cut, p)) / facts.memory_rate;
  return {.working = working,
          .reading = reading,
          .added = blocks * cut.tiles * tile_weight_bytes / weights_rate +
                   blocks * warps * warp_boxes * box_bytes / x_rate,
          .factor = p.batch < tile_samples / 2 ? missing_samples
                    : p.batch <= tile_samples  ? only_reader
                                               : 1};
}

double seconds_of(const Parts& parts) {
  const double longest = parts.working * std::pow(1 + std::pow(shortest / parts.working, sharpness) +
                                                      std::pow(parts.reading / parts.working, sharpness),
                                                  1 / sharpness);
  return (longest + parts.added) * parts.factor;
}
/// At least; takes less time to compute.
double bound_of(const Parts& parts) {
  return (std::max({parts.working, parts.reading, shortest}) + parts.added) * parts.factor;
}

/// Visits cuts, without what the first blocks ask for, which does not change the seconds.
template <class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, const Cut* packed_as, Visitor&& visit) {
  if (p.x_feature != 1 || p.y_feature != 1 || p.batch > max_samples) return;
  const auto* shape = std::ranges::find(shapes, Shape{static_cast<int>(std::min<std::int64_t>(p.d, 64))});
  if (shape == shapes.end() || p.c > shape->terms() || p.c * p.d % row_elements != 0) return;
  if (!x_view(p, nullptr).strides_fit()) return;
  if (static_cast<std::size_t>(shared_layout().total) > facts.shared_bytes) return;
  const std::int64_t all_tiles = divided_up(p.b, tile_outputs);
  const std::int64_t sample_blocks = divided_up(p.batch, tile_samples);
  for (std::int64_t tiles = 1; tiles <= std::min(all_tiles, max_tiles); ++tiles) {
    const std::int64_t k_blocks = divided_up(all_tiles, tiles);
    if (divided_up(all_tiles, k_blocks) != tiles) continue;  // fewer would do
    if (k_blocks > max_blocks / p.a / sample_blocks) continue;
    const Cut cut{.shape = *shape,
                  .tiles = static_cast<int>(tiles),
                  .k_blocks = static_cast<int>(k_blocks),
                  .sample_blocks = static_cast<int>(sample_blocks)};
    if (packed_as == nullptr || same_order(cut, *packed_as)) visit(cut);
  }
}

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  BestCut<Cut> best;
  for_each_cut(p, facts, packed_as, [&](const Cut& cut) {
    const Parts parts = parts_of(cut, p, facts);
    if (!best.excludes(bound_of(parts))) best.offer(cut, seconds_of(parts), cut.tiles);
  });
  Choice choice = best.choice();
  if (std::isfinite(choice.seconds)) let_first_blocks_ask(choice.cut, p, facts);
  return choice;
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  std::vector<Choice> all;
  for_each_cut(p, facts, nullptr, [&](const Cut& cut) {
    all.push_back({cut, seconds_of(parts_of(cut, p, facts))});
    let_first_blocks_ask(all.back().cut, p, facts);
  });
  return all;
}

Choice choose(const Problem& problem, const GpuFacts& facts) { return search(problem, facts, nullptr); }
Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
  return search(problem, facts, &packed_as);
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights) {
  const Product p = product_of(problem);
  return {.x_map = {},
          .weights = static_cast<const std::byte*>(weights),
          .blocks_of_samples = Divisor(static_cast<std::uint32_t>(cut.sample_blocks)),
          .k_blocks = Divisor(static_cast<std::uint32_t>(cut.k_blocks)),
          .cut = cut,
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .boxes = false,
          .y_vectors = p.batch == 1 || p.y_sample % cut.shape.unit() == 0,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = static_cast<int>(p.b),
          .x_rows = static_cast<int>(p.c * p.d / row_elements),
          .warp_pieces = static_cast<int>(p.a * cut.k_blocks * warps),
          .x_sample = p.x_sample,
          .y_sample = p.y_sample};
}

Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands) {
  const TensorView x = x_view(p, operands.x);
  arguments.boxes = x.fits();
  if (arguments.boxes) arguments.x_map = tensor_map(x);
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  arguments.y_vectors = arguments.y_vectors && is_aligned(operands.y, 2 * arguments.cut.shape.unit());
  return arguments;
}

bool is_ordinary(const Arguments& args) { return args.boxes && is_plain(args); }

}  // namespace kronsparse::cuda::held
