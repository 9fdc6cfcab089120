// The small-batch kernel `x-stays-wgmma`: the search for the cheapest cut, and the cost model.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "cuda/host/alignment.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/small_batch/x_stays/panels.hpp"
#include "cuda/small_batch/x_stays/wgmma/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::x_stays_wgmma {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;  // blocks of weights
constexpr int vector = 8;                                   // elements in 16 bytes

using x_stays::Panel, x_stays::usable_share;

constexpr double registers = 96;

using Costs = tuning::XStaysWgmma;

/// Neighbouring j of x that are fetched with those of a panel: whole sectors of 32 bytes.
double fetched_j_of(const Cut& cut, const Product& p) {
  return cut.bytes != 0 || p.x_feature != 1
             ? cut.j_group
             : std::max<double>(cut.j_group, std::min<double>(static_cast<double>(p.d), 16));
}

/// Seconds that the threads take to bring x, turn by turn: they wait for their loads in flight.
double staging_of(const Costs& costs, const Cut& cut, double x_elements, double threads, double turns) {
  const bool is_copied = cut.bytes != 0 && cut.run == vector;
  const double loads = x_elements * cut.j_group / vector / threads;
  const double waits = is_copied ? 0 : std::max(1.0, cut.bytes != 0 ? loads / vector : loads) - 1;
  return costs.staging + turns * (waits * costs.load_latency +
                                  loads * (cut.bytes != 0 ? costs.load : costs.load_of_elements));
}

/// Clocks of a warpgroup's instruction.
double step_clocks(const Costs& costs, const Cut& cut) {
  return std::max(costs.step_start + cut.samples * costs.step_sample, cut.samples * costs.step_least);
}

/// Seconds to add up the sums of a cluster's blocks.
double exchange_of(const Costs& costs, const Cut& cut, double outputs, double threads) {
  return cut.cluster == 1 ? 0
                          : costs.exchange + outputs * 4 * (1 - 1.0 / cut.cluster) / costs.exchanged +
                                outputs / threads * costs.added;
}

double storing_of(const Costs& costs, const Cut& cut, const Product& p, double samples, double outputs,
                  double threads) {
  return cut.rows * cut.samples / 2 * costs.stored +
         (cut.collects ? costs.collecting + outputs / cut.cluster / threads / vector * costs.collected
          : p.d > 1    ? cut.rows * samples * costs.stored_of_several_j
                       : 0);
}

/// A factor that is measured, not explained.
double margin_of(const Costs& costs, const Product& p) {
  return p.batch <= 32 ? 1 : p.d > 1 ? costs.margin_several_j : p.c < 512 ? costs.margin_short : 1;
}

/// With two blocks on an SM, a kernel's weights come while the kernel before it still runs.
double body_of(const Costs& costs, bool overlaps, double weights, double x, double multiplying) {
  return overlaps
             ? std::max(weights, x + multiplying)
             : costs.waiting + std::max(costs.weights_late + weights, x) + costs.multiplying * multiplying;
}

/// Seconds of a run, from what an SM takes in and what its blocks wait for.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const Costs& costs = tuning_of(facts).x_stays_wgmma.costs;
  const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.samples));
  const double sample_blocks = std::ceil(static_cast<double>(p.batch) / cut.samples);
  const double blocks = static_cast<double>(blocks_of_weights(cut, p)) * sample_blocks;
  const double threads = cut.threads;
  const double at_once =
      std::max(1.0, std::floor(std::min((static_cast<double>(facts.shared_bytes) + 1024) /
                                            (shared_layout(cut).total + 1024.0),
                                        65536 / ((threads + producer_threads) * registers))));
  const double sms = std::floor(facts.multiprocessors * usable_share(costs, cut.cluster));
  const double rounds = std::ceil(blocks / sms), turns = std::ceil(rounds / at_once);
  const double l2_rate = std::min(costs.all_l2 / std::min(blocks, sms), costs.l2_of_one);

  const double weight_bytes = static_cast<double>(block_chunks(cut)) * chunk_bytes;
  const double weights =
      std::max(blocks / sample_blocks * weight_bytes / facts.memory_rate, rounds * weight_bytes / l2_rate);

  const double x_elements = samples * cut.positions();
  const double x = rounds * x_elements * fetched_j_of(cut, p) * 2 / l2_rate +
                   (cut.boxes ? costs.box_latency : staging_of(costs, cut, x_elements, threads, turns));

  const double steps = static_cast<double>(block_chunks(cut)) * chunk_steps;
  const double multiplying =
      rounds * steps * step_clocks(costs, cut) / costs.clock + turns * cut.rows * costs.row;
  const double outputs = cut.block_outputs() * samples;
  const double body = body_of(costs, at_once >= 2 * rounds, weights, x, multiplying);
  return margin_of(costs, p) * (costs.start + body +
                                turns * (exchange_of(costs, cut, outputs, threads) +
                                         storing_of(costs, cut, p, samples, outputs, threads)) +
                                (turns - 1) * costs.turn);
}

/// A lower bound, in seconds, for the cuts with the same samples, j group and split of l.
class Bound {
 public:
  Bound(const Cut& cut, const Product& p, const GpuFacts& facts)
      : costs_(tuning_of(facts).x_stays_wgmma.costs),
        p_(p),
        margin_(margin_of(costs_, p)),
        memory_seconds_(1 / facts.memory_rate),
        sample_blocks_(static_cast<double>(quotient_up(p.batch, cut.samples))),
        sms_(std::floor(facts.multiprocessors * usable_share(costs_, cut.cluster))),
        panels_(static_cast<double>(p.a) * cut.j_groups * cut.cluster),
        chunk_seconds_(chunk_steps * step_clocks(costs_, cut) / costs_.clock),
        all_l2_seconds_(1 / costs_.all_l2),
        l2_seconds_of_one_(1 / costs_.l2_of_one),
        shared_bytes_(static_cast<double>(facts.shared_bytes)),
        shared_x_(cut.j_group * (cut.positions() / 8) * (cut.samples * 16.0 + 16)) {
    constexpr double most_threads = max_warpgroups * 128;
    const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.samples));
    const double x_elements = samples * cut.positions();
    x_bytes_ = x_elements * fetched_j_of(cut, p) * 2;
    staging_ = cut.boxes ? costs_.box_latency : staging_of(costs_, cut, x_elements, most_threads, 0);
    staging_of_turn_ = cut.boxes ? 0 : staging_of(costs_, cut, x_elements, most_threads, 1) - staging_;
    // The end of a block grows with its rows, and with the rows of a warpgroup.
    const auto ending = [&](int rows, double block_rows) {
      Cut with_rows = cut;
      with_rows.rows = rows;
      const double outputs = block_rows * tile_k * samples;
      return exchange_of(costs_, with_rows, outputs, most_threads) +
             storing_of(costs_, with_rows, p, samples, outputs, most_threads);
    };
    ending_ = ending(0, 0);
    ending_of_row_ = ending(1, 0) - ending_;
    ending_of_block_row_ = ending(0, 1) - ending_;
  }

  /// Whatever the rows of a block.
  [[nodiscard]] double seconds(const Cut& cut) const {
    const double all_rows = panels_ * static_cast<double>(quotient_up(p_.b, tile_k) * cut.j_group);
    const double chunks = all_rows * cut.chunks;
    const double weights =
        chunks * chunk_bytes *
        std::max(memory_seconds_, sample_blocks_ / std::min(costs_.all_l2, sms_ * costs_.l2_of_one));
    const double multiplying = chunks * sample_blocks_ / sms_ * chunk_seconds_;
    return seconds(weights, x_bytes_ / costs_.l2_of_one, multiplying, 1, true, 1, 1);
  }
  /// A bound for cuts with these rows and warpgroups, before stages and other threads are known.
  [[nodiscard]] double seconds_of_rows(const Cut& cut) const {
    const double of_weights = panels_ * cut.k_blocks, blocks = of_weights * sample_blocks_;
    const double rounds = std::ceil(blocks / sms_);
    // Either shared memory holds all weights, or there is no room for another stage.
    const double chunks = static_cast<double>(block_chunks(cut)), bytes = chunks * chunk_bytes;
    const double shared = std::max(
        0.0, std::min(shared_x_ + bytes, shared_bytes_ - cut.warpgroups * (chunk_bytes + barrier_bytes)));
    constexpr auto by_registers = [](int warpgroups) {
      return static_cast<int>(65536 / ((warpgroups * 128 + producer_threads) * registers));
    };
    constexpr int of_one = by_registers(1), of_two = by_registers(2), of_four = by_registers(4);
    int at_once = cut.warpgroups == 1 ? of_one : cut.warpgroups == 2 ? of_two : of_four;
    while (at_once > 1 && at_once * (shared + 1024) > shared_bytes_ + 1024) --at_once;
    const double turns = at_once == 1 ? rounds : std::ceil(rounds / at_once);
    const double byte_seconds = std::max(std::min(blocks, sms_) * all_l2_seconds_, l2_seconds_of_one_);
    const double weights = bytes * std::max(of_weights * memory_seconds_, rounds * byte_seconds);
    return seconds(weights, rounds * x_bytes_ * byte_seconds, rounds * chunks * chunk_seconds_, turns,
                   at_once >= 2 * rounds, cut.rows, cut.block_rows());
  }

 private:
  [[nodiscard]] double seconds(double weights, double x, double multiplying, double turns, bool may_overlap,
                               int rows, int block_rows) const {
    x += staging_ + turns * staging_of_turn_;
    multiplying += turns * rows * costs_.row;
    const double alone = body_of(costs_, false, weights, x, multiplying);
    const double body = may_overlap ? std::min(alone, body_of(costs_, true, weights, x, multiplying)) : alone;
    return margin_ *
           (costs_.start + body +
            turns * (ending_ + rows * ending_of_row_ + block_rows * ending_of_block_row_ + costs_.turn) -
            costs_.turn);
  }

  const Costs& costs_;
  const Product& p_;
  double margin_, memory_seconds_, sample_blocks_, sms_, panels_, chunk_seconds_, all_l2_seconds_,
      l2_seconds_of_one_, shared_bytes_, shared_x_;
  double x_bytes_ = 0, staging_ = 0, staging_of_turn_ = 0;
  double ending_ = 0, ending_of_row_ = 0, ending_of_block_row_ = 0;
};

/// x by chunks of terms, for d = 1.
TensorView x_view(const Product& p, const Cut& cut, const void* x) {
  return {.data = x,
          .sizes = {p.c, p.a, p.batch, 1},
          .strides = {p.c, p.x_sample, 0},
          .box = {chunk_steps * step_l, 1, cut.samples, 1}};
}

/// Visits the ways to complete a cut: every number of warpgroups, and of rows for each. `may_be` is asked
/// before the stages are known.
template <class MayBe, class Visitor>
void for_each_completion(Cut cut, const Product& p, const GpuFacts& facts, const Cut* packed_as,
                         MayBe&& may_be, Visitor&& visit) {
  const std::int64_t rows = quotient_up(p.b, tile_k) * cut.j_group;
  const double panels = static_cast<double>(p.a) * cut.j_groups * cut.cluster;
  const bool is_power = std::has_single_bit(static_cast<unsigned>(cut.j_group));
  for (cut.warpgroups = 1; cut.warpgroups <= max_warpgroups; cut.warpgroups *= 2) {
    for (const int per_warpgroup : {1, 2, 3, 4, 6, 8, 11, 16, 32}) {
      cut.rows = per_warpgroup;
      const bool splits_j = is_power && cut.j_group % cut.block_rows() == 0;
      if (cut.block_rows() % cut.j_group != 0 && !splits_j) continue;
      if (cut.rows > 1 && std::int64_t{cut.warpgroups} * cut.rows > rows) break;
      const std::int64_t k_blocks = quotient_up(rows, cut.block_rows());
      if (panels * static_cast<double>(k_blocks) > static_cast<double>(max_blocks)) continue;
      cut.k_blocks = static_cast<int>(k_blocks);
      if (packed_as != nullptr && !same_order(cut, *packed_as)) continue;
      if (!may_be(cut)) continue;
      cut.stages = 0;
      const std::int64_t room = static_cast<std::int64_t>(facts.shared_bytes) - shared_layout(cut).total;
      const std::int64_t all = std::int64_t{cut.rows} * cut.chunks;
      const std::int64_t stages =
          std::min(all, room / (cut.warpgroups * std::int64_t{chunk_bytes + barrier_bytes}));
      if (stages < std::min<std::int64_t>(all, 3)) continue;
      cut.stages = static_cast<int>(stages);
      for (cut.threads = cut.warpgroups * 128; cut.threads <= max_warpgroups * 128; cut.threads *= 2)
        visit(cut);
    }
  }
}

/// Visits the beginnings of cuts: how j, samples and l are shared out. There is none if x does not fit into
/// shared memory.
template <class Visitor>
void for_each_beginning(const Product& p, const Cut* packed_as, Visitor&& visit) {
  constexpr std::int64_t chunk_l = std::int64_t{chunk_steps} * step_l;
  const bool fits_halves = p.d == 1 && x_stays::rows_fit(p, vector / 2) && p.c % (vector / 2) == 0;
  x_stays::for_each_panel(p, vector, packed_as == nullptr ? 0 : packed_as->j_group, [&](const Panel& panel) {
    Cut cut;
    // Few results are stored directly: collecting them takes longer.
    cut.collects = p.y_feature == 1 && p.batch > (p.d == 1 ? 8 : 2);
    cut.j_group = panel.j_group;
    cut.j_groups = panel.j_groups;
    cut.bytes = panel.takes_vectors ? 16 : fits_halves ? 8 : 0;
    cut.run = cut.bytes != 0 && p.d < vector ? vector / static_cast<int>(p.d) : 1;
    for (cut.samples = 8; cut.samples <= max_batch; cut.samples *= 2) {
      cut.boxes = p.d == 1 && p.x_feature == 1 && x_view(p, cut, nullptr).strides_fit();
      for (cut.cluster = 1; cut.cluster <= std::min(8, cut.samples / 4); cut.cluster *= 2) {
        // Half of the samples would do, with half of the cluster.
        if (cut.samples > 8 && cut.samples / 2 >= p.batch && cut.cluster != cut.samples / 4) continue;
        if (packed_as != nullptr && packed_as->cluster != cut.cluster) continue;
        const std::int64_t chunks = quotient_up(quotient_up(p.c, chunk_l), cut.cluster);
        if (chunks > (1 << 16) || (cut.cluster > 1 && (cut.cluster - 1) * chunks * chunk_l >= p.c)) continue;
        cut.chunks = static_cast<int>(chunks);
        if (std::int64_t{cut.j_group} * cut.positions() * cut.samples <= (1 << 17)) visit(cut);
      }
    }
  });
}

constexpr int max_branches = 3 * 4 * 4;  // choices of j_group, samples and cluster

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  Branches<Cut, max_branches> branches;
  for_each_beginning(p, packed_as,
                     [&](const Cut& cut) { branches.add(cut, Bound(cut, p, facts).seconds(cut)); });
  BestCut<Cut> best;
  branches.visit_promising(best, [&](const Cut& beginning, int branch) {
    const Bound bound(beginning, p, facts);
    int number = branch * 1024;  // more than the ways to complete a cut
    const auto may_be = [&](const Cut& cut) { return !best.excludes(bound.seconds_of_rows(cut)); };
    for_each_completion(beginning, p, facts, packed_as, may_be,
                        [&](const Cut& cut) { best.offer(cut, predict_cut(cut, p, facts), number++); });
  });
  return best.choice();
}

/// The number of features that are neighbours in y, in shared memory and in every block, and so are stored at
/// once.
int y_vector_of(const Product& p, const Cut& cut) {
  if (!cut.collects) return 0;
  for (const int width : {8, 4}) {
    const bool in_rows =
        cut.block_j() == p.d ? (p.b * p.d) % width == 0 : cut.block_j() % width == 0 && p.d % width == 0;
    if (in_rows && (p.batch == 1 || p.y_sample % width == 0)) return width;
  }
  return 1;
}

}  // namespace

std::int64_t blocks_of_weights(const Cut& cut, const Product& p) {
  return p.a * cut.j_groups * cut.k_blocks * cut.cluster;
}

std::int64_t weight_bytes(const Cut& cut, const Product& p) {
  return blocks_of_weights(cut, p) * block_chunks(cut) * chunk_bytes;
}

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  std::vector<Choice> all;
  for_each_beginning(p, nullptr, [&](const Cut& beginning) {
    for_each_completion(
        beginning, p, facts, nullptr, [](const Cut&) { return true; },
        [&](const Cut& cut) {
          all.push_back({cut, predict_cut(cut, p, facts)});
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
  const SharedLayout shared = shared_layout(cut);
  return {.x_map = {},
          .weights = static_cast<const std::byte*>(weights),
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .place = {.sample = p.x_sample,
                    .feature = p.x_feature,
                    .d = p.d,
                    .j_group = cut.j_group,
                    .shared_j = shared.plane,
                    .shared_sample = 16,
                    .shared_vector = shared.vector,
                    .bytes = cut.bytes},
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .y_sample = p.y_sample,
          .y_feature = p.y_feature,
          .y_vector = y_vector_of(p, cut),
          .blocks_of_weights = Divisor(static_cast<std::uint32_t>(blocks_of_weights(cut, p))),
          .cluster = Divisor(static_cast<std::uint32_t>(cut.cluster)),
          .k_blocks = Divisor(static_cast<std::uint32_t>(cut.k_blocks)),
          .j_groups = Divisor(static_cast<std::uint32_t>(cut.j_groups)),
          .j_group = Divisor(static_cast<std::uint32_t>(cut.j_group))};
}

Arguments with_operands(Arguments arguments, const Product& p, const Operands& operands) {
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  if (arguments.cut.boxes) {
    const TensorView x = x_view(p, arguments.cut, operands.x);
    arguments.cut.boxes = x.fits();
    if (arguments.cut.boxes) arguments.x_map = tensor_map(x);
  }
  int& bytes = arguments.place.bytes;
  if (bytes != 0 && !is_aligned(operands.x, bytes)) bytes = 0;
  int& width = arguments.y_vector;
  while (width > 1 && !is_aligned(operands.y, 2 * width)) width = width == 8 ? 4 : 1;
  return arguments;
}

}  // namespace kronsparse::cuda::x_stays_wgmma
