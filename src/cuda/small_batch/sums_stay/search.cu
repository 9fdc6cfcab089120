// The small-batch kernel `sums-stay`: the search for the cheapest cut, and the cost model.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/host/alignment.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/small_batch/sums_stay/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::sums_stay {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;
constexpr std::int64_t max_slabs = std::int64_t{1} << 20;
constexpr int max_stage_slabs = 4;
constexpr int most_blocks = 8;  // blocks that fit on a multiprocessor

/// x as a tensor: terms and j of a sample are contiguous, in whole boxes or not.
TensorView x_view(const Product& p, const Cut& cut, const void* x) {
  constexpr int box_elements = box_row_bytes / 2;
  if (cut.joins_boxes)
    return {.data = x,
            .sizes = {box_elements, p.batch, p.c * p.d / box_elements, p.a},
            .strides = {p.x_sample, box_elements, p.c * p.d},
            .box = {box_elements, cut.rows, cut.stage_slabs, 1}};
  return {.data = x,
          .sizes = {p.c * p.d, p.a, p.batch, 1},
          .strides = {p.c * p.d, p.x_sample, 0},
          .box = {box_elements, 1, cut.rows, 1}};
}

using Costs = tuning::SumsStay;

/// Blocks of this and the next kernel that fit on a multiprocessor.
double room_for_blocks(const Cut& cut, const GpuFacts& facts) {
  const double by_memory =
      std::floor((static_cast<double>(facts.shared_bytes) + 1024) / (shared_layout(cut).total + 1024));
  const double by_threads = std::floor(2048.0 / (cut.threads() + producer_threads));
  return std::max(1.0, std::min<double>({by_memory, by_threads, most_blocks}));
}

double slab_seconds_of(const Costs& costs, const Shape& shape) {
  return (costs.slab + costs.output * shape.block_outputs()) / costs.clock;
}

/// Seconds that the next kernel gains, because its first weights are there when it begins.
double gained_seconds(const Costs& costs, double from_memory, double to_blocks) {
  return costs.gained + std::min(costs.gained_share * std::min(from_memory, to_blocks), costs.most_gained);
}

/// Seconds to add up the sums of this many warpgroups, and of two blocks.
double ending_seconds(const Costs& costs, const Cut& cut, double at_work) {
  if (cut.splits > 1)
    return costs.pair + cut.received_bytes() / (costs.paired * costs.clock) + (at_work - 1) * costs.lending;
  return costs.add + (at_work + 2) * cut.rows * cut.shape.block_outputs() * 4 / (costs.added * costs.clock);
}

/// Seconds of a run.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const Costs& costs = tuning_of(facts).sums_stay.costs;
  const double fillings = cut.fillings(), slabs = cut.slabs;
  const double blocks = static_cast<double>(blocks_of(cut, p));
  const double multiprocessors = std::max(facts.multiprocessors, 1);
  const double of_each = std::ceil(blocks / multiprocessors);
  const double room = room_for_blocks(cut, facts);
  const double waves = std::ceil(of_each / room);
  // The share of the next kernel that begins beside this one and requests its weights.
  const double overlap = std::clamp(room * multiprocessors / blocks - 1, 0.0, 1.0);

  const double w_bytes = slabs * cut.shape.slab_weight_bytes();
  const double from_memory = blocks * w_bytes / (costs.memory * facts.memory_rate);
  const double to_blocks = of_each * (w_bytes + slabs * cut.box_bytes()) / (costs.copied * costs.clock);

  const double at_work = std::min<double>(cut.warpgroups, fillings);
  const double slab_seconds = slab_seconds_of(costs, cut.shape);
  const double multiplying = waves * (slabs * slab_seconds + fillings * costs.wait / costs.clock) / at_work;
  const double x_copies = cut.joins_boxes ? fillings : slabs;
  const double working = std::max(multiplying, of_each * x_copies * costs.request / costs.clock);
  const auto refilling = [&](int stages, double seconds) {
    return stages < cut.fillings() ? waves * fillings / stages * seconds : 0.0;
  };
  const double x_refills = refilling(cut.x_stages, costs.x_refill),
               weight_refills = refilling(cut.weight_stages, costs.weight_refill);
  const double longest = std::max({from_memory, to_blocks, working, x_refills, weight_refills});
  const double other = std::max(from_memory + to_blocks + working - longest, 0.0);
  // The next kernel's first weights are there when it begins; for the rest it waits as this one does.
  const double gained = gained_seconds(costs, from_memory, to_blocks);
  // If cuts are equal so far, those with more stages of both rings are better.
  const double body =
      longest + costs.mixed * other + costs.refills * (x_refills + weight_refills) - overlap * gained;

  return costs.start + body + cut.stage_slabs * slab_seconds + waves * ending_seconds(costs, cut, at_work) +
         (waves - 1) * costs.wave;
}

/// A factor for predictions.
double margin_of(const Costs& costs, const Product& p) {
  if (p.d == 1)
    return p.c < 512 ? costs.margin_one_j_short : p.batch > 16 ? costs.margin_one_j : costs.margin_one_j_few;
  if (p.batch <= 16) return costs.margin_few;
  return p.c >= 1000 ? costs.margin_long : p.c * p.d >= 1024 ? costs.margin_rows : costs.margin;
}

/// A lower bound, in seconds, for the cuts of one shape and one split of l, before the stages are known.
class Bound {
 public:
  Bound(const Cut& cut, const Product& p, const GpuFacts& facts)
      : costs_(tuning_of(facts).sums_stay.costs),
        cut_(cut),
        memory_(static_cast<double>(facts.shared_bytes) + 1024),
        multiprocessors_(std::max(facts.multiprocessors, 1)),
        blocks_(static_cast<double>(blocks_of(cut, p))),
        of_each_(std::ceil(blocks_ / multiprocessors_)),
        room_share_(multiprocessors_ / blocks_),
        slab_seconds_(slab_seconds_of(costs_, cut.shape)),
        wait_seconds_(costs_.wait / costs_.clock),
        request_seconds_(costs_.request / costs_.clock) {
    const double w_bytes = static_cast<double>(cut.slabs) * cut.shape.slab_weight_bytes();
    from_memory_ = blocks_ * w_bytes / (costs_.memory * facts.memory_rate);
    to_blocks_ = of_each_ * (w_bytes + static_cast<double>(cut.slabs) * cut.box_bytes()) /
                 (costs_.copied * costs_.clock);
    gained_ = gained_seconds(costs_, from_memory_, to_blocks_);
  }

  /// Whatever the warpgroups and the slabs of a stage.
  [[nodiscard]] double seconds() const {
    const int fewest = (cut_.slabs + max_stage_slabs - 1) / max_stage_slabs;
    const int at_work = std::min(max_warpgroups, cut_.slabs);
    return seconds(most_blocks, fewest, at_work, 1, ending_seconds(costs_, cut_, 1));
  }
  /// A bound for cuts with these warpgroups and slabs, and at least this many stages.
  [[nodiscard]] double seconds(const Cut& cut, int stages) const {
    const double stage_bytes =
        cut.stage_slabs * (static_cast<double>(cut.box_bytes()) + cut.shape.slab_weight_bytes());
    const double block_bytes = stages * stage_bytes + 1024;
    int room = std::min(most_blocks, 2048 / (cut.threads() + producer_threads));
    while (room > 1 && room * block_bytes > memory_) --room;
    const int fillings = cut.fillings();
    const double at_work = std::min(cut.warpgroups, fillings);
    return seconds(room, fillings, at_work, cut.stage_slabs, ending_seconds(costs_, cut_, at_work));
  }
  /// A bound for cuts with these stages: the time to refill them again and again, each ring by itself.
  [[nodiscard]] double refill_seconds(const Cut& cut) const {
    const double fillings = cut.fillings();
    const double x = cut.x_stages < fillings ? fillings / cut.x_stages * costs_.x_refill : 0;
    const double weights =
        cut.weight_stages < fillings ? fillings / cut.weight_stages * costs_.weight_refill : 0;
    return costs_.start + std::max(x, weights) - gained_ + cut.stage_slabs * slab_seconds_;
  }

 private:
  [[nodiscard]] double seconds(double room, double fillings, double at_work, double stage_slabs,
                               double ending) const {
    const double waves = of_each_ <= room ? 1 : std::ceil(of_each_ / room);
    const double overlap = std::clamp(room * room_share_ - 1, 0.0, 1.0);
    const double multiplying = waves * (cut_.slabs * slab_seconds_ + fillings * wait_seconds_) / at_work;
    const double x_copies = cut_.joins_boxes ? fillings : cut_.slabs;
    const double working = std::max(multiplying, of_each_ * x_copies * request_seconds_);
    const double longest = std::max({from_memory_, to_blocks_, working});
    const double body =
        longest + costs_.mixed * (from_memory_ + to_blocks_ + working - longest) - overlap * gained_;
    return costs_.start + body + stage_slabs * slab_seconds_ + waves * ending + (waves - 1) * costs_.wave;
  }

  const Costs& costs_;
  Cut cut_;
  double memory_, multiprocessors_, blocks_, of_each_, room_share_, slab_seconds_, wait_seconds_,
      request_seconds_;
  double from_memory_ = 0, to_blocks_ = 0, gained_ = 0;
};

/// Visits the ways to complete a cut: warpgroups, and stages that fill a multiprocessor or half of it. Stages
/// of x are a few, or as many as those of the weights. `may_be` is asked before the stages are known, with
/// the fewest there can be.
template <class MayBe, class Visitor>
void for_each_completion(Cut cut, const GpuFacts& facts, MayBe&& may_be, Visitor&& visit) {
  const int received_bytes = cut.received_bytes();
  for (cut.warpgroups = 3 - cut.splits; cut.warpgroups <= max_warpgroups; ++cut.warpgroups)
    for (cut.stage_slabs = 1; cut.stage_slabs <= max_stage_slabs; cut.stage_slabs *= 2) {
      if (cut.fillings() < cut.warpgroups) continue;
      if (cut.stage_slabs > 1 &&
          (2 * cut.stage_slabs > cut.slabs || cut.stage_slabs * cut.box_bytes() > (32 << 10)))
        continue;
      // A stage that is filled again must go to the same warpgroup. Another warpgroup could mistake a used
      // filling for the one that has not come yet.
      const auto whole_rounds = [&cut, fillings = cut.fillings()](int stages) {
        return stages < fillings ? stages - stages % cut.warpgroups : fillings;
      };
      const int x_bytes = cut.stage_slabs * cut.box_bytes(),
                weight_bytes = cut.stage_slabs * cut.shape.slab_weight_bytes();
      const int fewest = whole_rounds(std::max(3, 2 * cut.warpgroups));
      if (!may_be(cut, fewest)) continue;
      for (const int at_once : {2, 1}) {
        const auto room = (static_cast<int>(facts.shared_bytes) + 1024) / at_once - 1024;
        int before = 0;
        for (const int x_share : {16, 32, 64, 96, 128, 0}) {  // KB; 0: as many stages as weights have
          const int most = x_share == 0 ? room / (x_bytes + weight_bytes) : (x_share << 10) / x_bytes;
          cut.x_stages = whole_rounds(std::max(most, x_share == 0 ? 0 : fewest));
          if (cut.x_stages < fewest || cut.x_stages <= before) continue;
          // With more stages the rings alone would not fit.
          cut.weight_stages =
              whole_rounds((room - received_bytes - cut.x_stages * (x_bytes + barrier_bytes)) /
                           (weight_bytes + barrier_bytes));
          while (cut.weight_stages >= fewest && shared_layout(cut).total > room)
            cut.weight_stages = whole_rounds(cut.weight_stages - 1);
          if (cut.weight_stages < fewest || (cut.warpgroups > 1 && !cut.has_room_to_lend())) continue;
          before = cut.x_stages;
          visit(cut);
        }
      }
    }
}

/// Whether so many neighbouring results are a vector in y.
bool fits_vectors(const Product& p, int features) {
  return p.b * p.d % features == 0 && (p.batch == 1 || p.y_sample % features == 0);
}

/// Visits the beginnings of cuts: their shapes, and how l is split.
template <class Visitor>
void for_each_beginning(const Product& p, const Cut* packed_as, Visitor&& visit) {
  for (const Shape& shape : shapes) {
    if (shape.block_j != p.d || (packed_as != nullptr && packed_as->shape != shape)) continue;
    const std::int64_t all_slabs = quotient_up(p.c, shape.slab_terms()),
                       k_blocks = quotient_up(p.b, shape.outputs);
    Cut cut;
    cut.shape = shape;
    cut.rows = static_cast<int>(quotient_up(p.batch, 8) * 8);
    cut.joins_boxes = p.c * p.d % (box_row_bytes / 2) == 0;
    // If the copy engine does not take boxes of one slab, it takes no larger ones.
    if (!x_view(p, cut, nullptr).strides_fit()) continue;
    for (cut.splits = 1; cut.splits <= 2; ++cut.splits) {
      const std::int64_t slabs = quotient_up(all_slabs, cut.splits);
      if (slabs > max_slabs || (cut.splits - 1) * slabs >= all_slabs) continue;
      if (k_blocks > max_blocks / p.a / cut.splits) continue;
      cut.slabs = static_cast<int>(slabs);
      cut.k_blocks = static_cast<int>(k_blocks);
      if (packed_as == nullptr || same_order(cut, *packed_as)) visit(cut);
    }
  }
}

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  const double margin = margin_of(tuning_of(facts).sums_stay.costs, p);
  Branches<Cut, 2 * static_cast<int>(shapes.size())> branches;  // shapes and splits of l
  for_each_beginning(p, packed_as,
                     [&](const Cut& cut) { branches.add(cut, margin * Bound(cut, p, facts).seconds()); });
  BestCut<Cut> best;
  branches.visit_promising(best, [&](const Cut& beginning, int branch) {
    const Bound bound(beginning, p, facts);
    int number = branch * 1024;  // more than the ways to complete a cut
    const auto may_be = [&](const Cut& cut, int stages) {
      return !best.excludes(margin * bound.seconds(cut, stages));
    };
    for_each_completion(beginning, facts, may_be, [&](const Cut& cut) {
      if (best.excludes(margin * bound.refill_seconds(cut))) return;
      best.offer(cut, margin * predict_cut(cut, p, facts), number++);
    });
  });
  return best.choice();
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  std::vector<Choice> all;
  const double margin = margin_of(tuning_of(facts).sums_stay.costs, p);
  for_each_beginning(p, nullptr, [&](const Cut& beginning) {
    for_each_completion(
        beginning, facts, [](const Cut&, int) { return true; },
        [&](const Cut& cut) {
          all.push_back({cut, margin * predict_cut(cut, p, facts)});
        });
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
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .boxes = false,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .x_sample = p.x_sample,
          .y_sample = p.y_sample,
          .y_vectors = fits_vectors(p, 4),
          .y_direct = problem.activation == Activation::none && fits_vectors(p, cut.shape.lane_features()),
          .blocks = static_cast<std::uint32_t>(blocks_of(cut, p)),
          .splits = Divisor(static_cast<std::uint32_t>(cut.splits)),
          .k_blocks = Divisor(static_cast<std::uint32_t>(cut.k_blocks)),
          .lending = lending_of(cut)};
}

Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands) {
  const TensorView x = x_view(p, arguments.cut, operands.x);
  arguments.boxes = x.fits();
  if (arguments.boxes) arguments.x_map = tensor_map(x);
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  arguments.y_vectors = arguments.y_vectors && is_aligned(operands.y, 8);
  const int lane_bytes = arguments.cut.shape.lane_features() * 2;
  arguments.y_direct =
      arguments.y_direct && is_aligned(operands.y, lane_bytes) && is_aligned(operands.bias, lane_bytes);
  return arguments;
}

}  // namespace kronsparse::cuda::sums_stay
