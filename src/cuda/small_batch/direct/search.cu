// The small-batch kernel `direct`: the search for the cheapest cut, and the cost model.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/host/alignment.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/small_batch/direct/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::direct {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;
constexpr int max_l_warps = 16;
constexpr std::int64_t max_offset = std::int64_t{1} << 31;  // offset of an element of x from the start of its
                                                            // i

/// Blocks of the grid for each multiprocessor.
double blocks_of_each(const Cut& cut, const Product& p, const GpuFacts& facts) {
  return std::ceil(static_cast<double>(blocks_of(cut, p)) / std::max(facts.multiprocessors, 1));
}

/// The shared memory that a multiprocessor needs for one block; 1 KB is the system's.
double shared_bytes_of(const Cut& cut) { return shared_layout(cut).total + 1024.0; }

/// Blocks that fit on a multiprocessor beside each other in `memory` bytes of shared memory.
double room_for_blocks(const Cut& cut, double memory) {
  const double threads = cut.warps() * 32, registers = 40 + cut.shape.registers();
  return std::max(
      1.0,
      std::floor(std::min({memory / shared_bytes_of(cut), 65536 / (registers * threads), 2048 / threads})));
}

/// The shared memory of a multiprocessor when the kernel asks for that of its own blocks: the hardware offers
/// a few sizes.
double shared_bytes_asked_for(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const double all = static_cast<double>(facts.shared_bytes) + 1024;
  const double asked_for = all * shared_percent(cut, p, facts) / 100;
  for (const double kilobytes : {8, 16, 32, 64, 100, 132, 164, 196})
    if (kilobytes * 1024 >= asked_for) return std::min(kilobytes * 1024, all);
  return all;
}

using Costs = tuning::Direct::Costs;

const Costs& costs_of(const Shape& shape, const GpuFacts& facts) {
  const tuning::Direct& both = tuning_of(facts).direct.costs;
  return shape.x_is_left() ? both.one_j : both.several_j;
}

/// Lines of 128 bytes that a warp's load touches: neighbouring terms lie d elements apart.
double lines_of_load(const Shape& shape, const Product& p) {
  return p.d > shape.block_j ? std::max(8.0, static_cast<double>(std::min<std::int64_t>(p.d, 64)) / 2) : 8;
}

/// Seconds of one warp.
double steps_and_ending(const Cut& cut, const Costs& costs) {
  const Shape& shape = cut.shape;
  const double steps = std::ceil(1.0 * cut.steps / shape.at_once) * costs.round + cut.steps * costs.step;
  const double ending = cut.l_warps == 1 ? shape.items() * costs.item
                                         : std::ceil(1.0 * shape.items() / cut.l_warps) * costs.exchanged;
  return steps + ending;
}

/// Seconds of a run.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const Shape& shape = cut.shape;
  const Costs& costs = costs_of(shape, facts);
  const double blocks = static_cast<double>(blocks_of(cut, p)), warps = cut.warps();
  const double of_each = blocks_of_each(cut, p, facts);
  const double waves =
      std::ceil(of_each / room_for_blocks(cut, static_cast<double>(facts.shared_bytes) + 1024));
  // The share of the next kernel's blocks that find room beside this one's, and can request their weights
  // early.
  const double room = room_for_blocks(cut, shared_bytes_asked_for(cut, p, facts)) * facts.multiprocessors;
  const double waiting = 1 - std::clamp(room / blocks - 1, 0.0, 1.0);
  // The share of a block's samples that exist.
  const double existing =
      static_cast<double>(p.batch) /
      static_cast<double>(std::int64_t{cut.sample_blocks} * cut.sample_warps * shape.tiles * tile_samples);
  const double step_loads = shape.loads() * shape.tiles * existing;
  const bool is_part = p.d > shape.block_j;
  const double lines = lines_of_load(shape, p);
  const bool halves_sectors = is_part && cut.rows * shape.block_j % 16 != 0;  // blocks fetch some sectors
                                                                              // twice
  const double weights = static_cast<double>(weight_bytes(cut, p)) / facts.memory_rate;
  const double sums = cut.l_warps == 1 ? 0 : warps * shape.items() * shape.item_floats();
  const double stores = warps / cut.l_warps * shape.items() * existing;

  const double of_a_block =
      steps_and_ending(cut, costs) + warps * costs.warp + (cut.sample_warps > 1 ? costs.sample_warps : 0);
  const double of_all = warps * cut.steps * step_loads * lines * costs.line +
                        warps * cut.steps * shape.operands() * costs.operand + (sums + stores) * costs.sum +
                        (is_part ? warps * 512 * shape.at_once * step_loads * costs.byte_under_way : 0);
  return costs.start + shape.registers() * shape.at_once * costs.registers + waiting * costs.waiting +
         (waves - 1) * costs.wave + blocks * costs.block + waves * of_a_block + of_each * of_all +
         weights * (waiting * costs.weights_ahead + cut.sample_blocks * costs.weights_again) +
         (halves_sectors ? blocks * warps * cut.steps * step_loads * lines * costs.half_sector : 0);
}

/// A lower bound, in seconds, for the cuts of one shape and one split of l.
class Bound {
 public:
  Bound(const Cut& cut, const Product& p, const GpuFacts& facts)
      : costs_(costs_of(cut.shape, facts)), multiprocessors_(std::max(facts.multiprocessors, 1)) {
    const Shape& shape = cut.shape;
    const double row_warps =
        static_cast<double>(p.a * quotient_up(p.b, shape.tile_k()) * cut.j_groups) * cut.l_warps;
    const double weights = row_warps * cut.chunk_bytes() / facts.memory_rate;
    // The work for all rows and samples, however blocks and warps share them.
    const double sample_tiles = static_cast<double>(p.batch) / tile_samples;
    const double lines = cut.steps * shape.loads() * sample_tiles * lines_of_load(shape, p);
    const double operands = cut.steps * shape.operands() * std::ceil(sample_tiles / shape.tiles);
    common_ = costs_.start + shape.registers() * shape.at_once * costs_.registers +
              row_warps * (lines * costs_.line + operands * costs_.operand) / multiprocessors_;
    warp_ = steps_and_ending(cut, costs_);
    again_ = weights * costs_.weights_again;
    ahead_ = costs_.waiting + weights * costs_.weights_ahead;
    registers_ = 32.0 * (40 + shape.registers());
  }

  [[nodiscard]] double seconds() const { return common_ + warp_ + again_; }
  /// The same for given rows and samples of a block.
  [[nodiscard]] double seconds(const Cut& cut, double blocks) const {
    const double warps = cut.warps(), of_each = std::ceil(blocks / multiprocessors_);
    const double room = std::max(1.0, std::floor(65536 / (registers_ * warps)));
    const double waves = std::ceil(of_each / room);
    const double waiting = 1 - std::clamp(room * multiprocessors_ / blocks - 1, 0.0, 1.0);
    return common_ + blocks * costs_.block + (waves - 1) * costs_.wave + waiting * ahead_ +
           cut.sample_blocks * again_ +
           waves * (warp_ + warps * costs_.warp + (cut.sample_warps > 1 ? costs_.sample_warps : 0));
  }

 private:
  const Costs& costs_;
  double multiprocessors_;
  double common_ = 0, warp_ = 0, again_ = 0, ahead_ = 0, registers_ = 0;
};

/// Blocks with weights as given that fit on a multiprocessor. Each of its four parts has registers for a
/// number of warps.
double room_as_given(const Cut& cut) {
  const Shape& shape = cut.shape;
  const int others = shape.x_is_left() ? (shape.outputs == 2 ? 48 : 54) : shape.load == 2 ? 60 : 36;
  const int registers = (others + shape.registers() + 7) / 8 * 8;
  return std::max(1, 4 * (512 / registers) / cut.warps());
}

/// Seconds of a run.
double predict_as_given(const Cut& cut, const Product& p, bool transposed, const GpuFacts& facts) {
  const tuning::Unpacked& costs = tuning_of(facts).unpacked.costs;
  const Shape& shape = cut.shape;
  const double blocks = static_cast<double>(blocks_of(cut, p)), warps = cut.warps();
  const double of_each = blocks_of_each(cut, p, facts), rounds = of_each / room_as_given(cut);
  const double waves = rounds < 3 ? std::ceil(rounds) : rounds;
  const double existing =
      static_cast<double>(p.batch) /
      static_cast<double>(std::int64_t{cut.sample_blocks} * cut.sample_warps * shape.tiles * tile_samples);
  const double x_lines = shape.tiles * existing * lines_of_load(shape, p);
  const double weight_lines = shape.outputs * shape.lane_rows() * (transposed ? 32 : lines_of_load(shape, p));
  const double sums = (cut.l_warps == 1 ? 0 : warps * shape.items() * shape.item_floats()) +
                      warps / cut.l_warps * shape.items() * existing;
  const double of_a_block = std::ceil(1.0 * cut.steps / shape.at_once) * costs.round +
                            cut.steps * costs.step + (cut.l_warps == 1 ? 0 : costs.ending) +
                            warps * costs.warp;
  const double of_all =
      warps * cut.steps * shape.loads() * (x_lines * costs.x_line + weight_lines * costs.weight_line) +
      sums * costs.sum;
  // A sector has 16 weights of neighbouring j.
  const double neighbours =
      std::min<double>({16.0, static_cast<double>(p.d), 1.0 * shape.block_j * cut.rows});
  const double again = p.d > shape.block_j ? 16 / neighbours - 1 : 0;
  const double weights = static_cast<double>(weight_bytes(cut, p)) / facts.memory_rate;
  return costs.start + shape.registers() * costs.registers + (waves - 1) * costs.wave + blocks * costs.block +
         waves * of_a_block + of_each * of_all +
         weights * (costs.weights + again * cut.sample_blocks * costs.sectors);
}

/// The shape with the widest loads that every term of every sample allows; for weights as given, the weights
/// must allow them, too. A load covers several j of one term, or several terms with all their j. A shape
/// without tiles means: none.
Shape widest_shape(const Product& p, bool as_given, bool transposed) {
  for (const Shape shape : {Shape{8, 8, 1}, Shape{4, 8, 1}, Shape{2, 8, 1}, Shape{4, 4, 1}, Shape{2, 2, 1},
                            Shape{1, 8, 1}, Shape{1, 4, 1}}) {
    const bool is_whole =
        shape.terms() == 1 ? p.d % shape.block_j == 0 : p.d == shape.block_j && p.c % shape.terms() == 0;
    // In a transposed product the weights of neighbouring terms are not neighbours.
    const bool takes_weights =
        !as_given || ((shape.terms() == 1 || !transposed) && p.b * p.c * p.d < max_offset);
    if (is_whole && takes_weights && (p.batch == 1 || p.x_sample % shape.load == 0)) return shape;
  }
  return {0, 0, 0};
}

/// Visits the beginnings of cuts: their shapes, and how l is split. `packed_as` is null if any order will do.
template <class Visitor>
void for_each_beginning(const Problem& problem, bool as_given, const Cut* packed_as, Visitor&& visit) {
  const Product p = planned_product_of(problem);
  if (p.x_feature != 1 || p.y_feature != 1) return;
  if (p.c * p.d >= max_offset || p.batch > max_samples || p.x_sample > max_offset / max_samples) return;
  const std::int64_t all_tiles = quotient_up(p.batch, tile_samples);
  const Shape widest = widest_shape(p, as_given, is_transposed(problem.operation));
  for (const Shape& shape : shapes) {
    if (shape.as_given != as_given || shape.block_j != widest.block_j || shape.load != widest.load) continue;
    if (shape.tiles > 1 && shape.tiles / 2 >= all_tiles) continue;  // half of the tiles would do
    const std::int64_t all_steps = quotient_up(p.c, shape.step_l()), j_groups = p.d / shape.block_j;
    // More steps would not fit into shared memory, nor their bytes into an int.
    constexpr std::int64_t max_steps = 1 << 10;
    if (all_steps > max_steps || quotient_up(p.b, shape.tile_k()) * j_groups > max_blocks / p.a) continue;
    Cut cut;
    cut.shape = shape;
    cut.j_groups = static_cast<int>(j_groups);
    const int steps = static_cast<int>(all_steps);
    for (cut.l_warps = 1; cut.l_warps <= std::min(shape.max_warps(), max_l_warps); ++cut.l_warps) {
      cut.steps = (steps + cut.l_warps - 1) / cut.l_warps;
      if (cut.l_warps > 1 && (cut.l_warps - 1) * cut.steps >= steps) continue;
      if (packed_as != nullptr && packed_as->steps * packed_as->l_warps != cut.steps * cut.l_warps) continue;
      visit(cut);
    }
  }
}

/// Visits the ways to complete a cut: rows and samples of a block. `may_be` is asked before the fit into
/// shared memory is checked.
template <class MayBe, class Visitor>
void for_each_completion(Cut cut, const Product& p, const GpuFacts& facts, const Cut* packed_as,
                         MayBe&& may_be, Visitor&& visit) {
  const Shape& shape = cut.shape;
  const std::int64_t all_tiles = quotient_up(p.batch, tile_samples);
  const std::int64_t all_rows = quotient_up(p.b, shape.tile_k()) * cut.j_groups;
  for (cut.rows = 1; cut.rows <= 8; cut.rows *= 2) {
    if (cut.chunks() > shape.max_warps() || (cut.rows > 1 && cut.rows > all_rows)) break;
    cut.row_blocks = static_cast<int>(quotient_up(all_rows, cut.rows));
    if (packed_as != nullptr && !same_order(cut, *packed_as)) continue;
    for (cut.sample_warps = 1; cut.sample_warps <= 8; cut.sample_warps *= 2) {
      if (cut.warps() > shape.max_warps()) break;
      if (cut.sample_warps > 1 && cut.sample_warps / 2 * shape.tiles >= all_tiles) break;
      cut.sample_blocks = static_cast<int>(quotient_up(all_tiles, cut.sample_warps * shape.tiles));
      if (!may_be(cut)) continue;
      if (static_cast<std::size_t>(shared_layout(cut).total) <= facts.shared_bytes) visit(cut);
    }
  }
}

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  Branches<Cut, static_cast<int>(shapes.size()) * max_l_warps> branches;
  for_each_beginning(problem, false, packed_as,
                     [&](const Cut& cut) { branches.add(cut, Bound(cut, p, facts).seconds()); });
  BestCut<Cut> best;
  branches.visit_promising(best, [&](const Cut& beginning, int branch) {
    const Bound bound(beginning, p, facts);
    int number = branch * 16;  // at most 16 ways to complete a cut
    const auto may_be = [&](const Cut& cut) {
      return !best.excludes(bound.seconds(cut, static_cast<double>(blocks_of(cut, p))));
    };
    for_each_completion(beginning, p, facts, packed_as, may_be,
                        [&](const Cut& cut) { best.offer(cut, predict_cut(cut, p, facts), number++); });
  });
  return best.choice();
}

/// Visits every cut with its predicted seconds.
template <class Visitor>
void for_each_choice(const Problem& problem, const GpuFacts& facts, bool as_given, Visitor&& visit) {
  const Product p = planned_product_of(problem);
  const bool transposed = is_transposed(problem.operation);
  for_each_beginning(problem, as_given, nullptr, [&](const Cut& beginning) {
    for_each_completion(
        beginning, p, facts, nullptr, [](const Cut&) { return true; },
        [&](const Cut& cut) {
          visit(cut, as_given ? predict_as_given(cut, p, transposed, facts) : predict_cut(cut, p, facts));
        });
  });
}

std::vector<Choice> all_choices(const Problem& problem, const GpuFacts& facts, bool as_given) {
  std::vector<Choice> all;
  for_each_choice(problem, facts, as_given, [&](const Cut& cut, double seconds) {
    all.push_back({cut, seconds});
  });
  return all;
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  return all_choices(problem, facts, false);
}
std::vector<Choice> choices_as_given(const Problem& problem, const GpuFacts& facts) {
  return all_choices(problem, facts, true);
}
Choice choose_as_given(const Problem& problem, const GpuFacts& facts) {
  BestCut<Cut> best;
  int number = 0;
  for_each_choice(problem, facts, true,
                  [&](const Cut& cut, double seconds) { best.offer(cut, seconds, number++); });
  return best.choice();
}

Choice choose(const Problem& problem, const GpuFacts& facts) { return search(problem, facts, nullptr); }
Choice choose(const Problem& problem, const GpuFacts& facts, const Cut& packed_as) {
  return search(problem, facts, &packed_as);
}

int shared_percent(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const double share =
      blocks_of_each(cut, p, facts) * shared_bytes_of(cut) / (static_cast<double>(facts.shared_bytes) + 1024);
  return static_cast<int>(std::ceil(100 * std::min(share, 1.0)));
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights) {
  const Product p = product_of(problem);
  const bool transposed = is_transposed(problem.operation);
  return {.weights = static_cast<const std::byte*>(weights),
          .weights_of_i = cut.shape.as_given ? static_cast<int>(p.b * p.c * p.d) : 0,
          .k_stride = cut.shape.as_given ? static_cast<int>(transposed ? p.d : p.c * p.d) : 0,
          .l_stride = cut.shape.as_given ? static_cast<int>(transposed ? p.b * p.d : p.d) : 0,
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .x_vectors = true,
          .y_vectors = cut.shape.x_is_left() ? p.b % 2 == 0 && (p.batch == 1 || p.y_sample % 2 == 0)
                                             : p.batch == 1 || p.y_sample % cut.shape.block_j == 0,
          .b = static_cast<int>(p.b),
          .c = static_cast<int>(p.c),
          .d = static_cast<int>(p.d),
          .x_sample = static_cast<int>(p.x_sample),
          .y_sample = p.y_sample,
          .blocks = static_cast<std::uint32_t>(blocks_of(cut, p)),
          .row_blocks = Divisor(static_cast<std::uint32_t>(cut.row_blocks)),
          .blocks_of_samples = Divisor(static_cast<std::uint32_t>(cut.sample_blocks)),
          .j_groups = Divisor(static_cast<std::uint32_t>(cut.j_groups)),
          .sample_warps = Divisor(static_cast<std::uint32_t>(cut.sample_warps)),
          .l_warps = Divisor(static_cast<std::uint32_t>(cut.l_warps))};
}

Arguments with_operands(Arguments arguments, const Product& /*p*/, const Operands& operands) {
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  const Shape& shape = arguments.cut.shape;
  arguments.x_vectors = is_aligned(operands.x, 2 * shape.load) &&
                        (!shape.as_given || is_aligned(arguments.weights, 2 * shape.load));
  arguments.y_vectors =
      arguments.y_vectors && is_aligned(operands.y, 2 * std::max(arguments.cut.shape.block_j, 2));
  return arguments;
}

}  // namespace kronsparse::cuda::direct
