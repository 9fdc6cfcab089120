// The small-batch kernel `x-stays-mma`: the search for the cheapest cut, and the cost model.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>

#include "cuda/host/alignment.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/small_batch/x_stays/mma/search.hpp"
#include "cuda/small_batch/x_stays/panels.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::x_stays_mma {
namespace {

using x_stays::Panel, x_stays::usable_share;

constexpr double max_blocks = 1 << 30;

/// The costs of a GPU: bytes and clocks per second by its speeds.
struct Costs : tuning::XStaysMma {
  explicit Costs(const GpuFacts& facts) : tuning::XStaysMma(tuning_of(facts).x_stays_mma.costs) {
    const double by_clock = relative_clock(facts);
    all_l2 *= relative_l2(facts);
    l2_of_one *= relative_l2_of_one(facts);
    weights_of_one *= by_clock;
    exchanged *= by_clock;
    clock *= by_clock;
  }
};

/// Registers of a thread, approximately.
double registers_of(int n_tiles) { return n_tiles < 4 ? 168 : 255; }
/// Seconds for blocks or warps to add up.
double meeting_seconds(const Costs& costs, int cluster) {
  return cluster > 1 ? costs.meeting + costs.meeting_of_each * cluster : costs.meeting_of_warps;
}
/// Seconds of a thread to store sums of this many parts.
double finish_seconds(const Costs& costs, int parts) {
  return (costs.finish_of_part * parts + costs.finish_start) * costs.finish;
}

/// Neighbouring j of x that are fetched with those of a panel. Sectors of 32 bytes come whole: if features
/// are contiguous, with every j of the sector.
template <class T>
double fetched_j_of(const Cut& cut, const Product& p, double samples) {
  const double sector = 32.0 / sizeof(T);
  return cut.vector ? cut.j_group
         : p.x_feature == 1
             ? std::max<double>(cut.j_group, std::min<double>(static_cast<double>(p.d), sector))
             : cut.j_group * std::max(1.0, sector / samples);
}

/// Seconds of a run, from what an SM takes in and what its blocks wait for.
template <class T>
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts, const Costs& costs) {
  const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.n_tiles * 8));
  const double chunks = std::ceil(static_cast<double>(p.batch) / (cut.n_tiles * 8));
  const double blocks = static_cast<double>(blocks_of_weights(cut, p)) * chunks;
  const double threads = cut.warps() * 32;

  const SharedLayout shared = shared_layout<T>(cut, static_cast<int>(samples), j_fastest(cut));
  const double registers = registers_of(cut.n_tiles);
  const double at_once = std::max(
      1.0,
      std::floor(std::min({16.0, (static_cast<double>(facts.shared_bytes) + 1024) / (shared.total + 1024.0),
                           65536 / (registers * threads)})));
  const double sms = std::floor(facts.multiprocessors * usable_share(costs, cut.cluster));
  const double rounds = std::ceil(blocks / sms);  // blocks that one SM works on, at once or in turn
  const double turns = std::ceil(rounds / at_once);
  const double active = std::min(blocks, sms);
  const double l2_rate = std::min(costs.all_l2 / active, costs.l2_of_one);

  const double weight_bytes = static_cast<double>(bytes_of_block(cut));
  const double fetched_j = fetched_j_of<T>(cut, p, samples);
  const double stagings = cut.segments > 1 ? cut.groups : 1;
  const double x_elements = samples * cut.positions<T>() * cut.segments * stagings;
  const double outputs = cut.groups * cut.rows_per_group * Tile<T>::tile_k * samples;  // before splits are
                                                                                       // added up
  // The loads that warps have in flight come once per latency.
  const double warps = cut.warps() * std::min(at_once, rounds);
  const double in_flight = warps * std::min(tiles_in_flight<T>(cut.n_tiles), cut.tiles_per_warp) * tile_bytes;
  const double loads =
      turns < rounds ? (blocks / active + rounds) / 2 : rounds;  // blocks of an SM, as DRAM sees them
  // The blocks of other samples find the weights in L2.
  const double weight_rate = facts.memory_rate / active * (chunks > 1 ? costs.other_samples : 1.0);
  const double weights =
      loads * weight_bytes / std::min({weight_rate, costs.weights_of_one, in_flight / costs.memory_latency});
  // Blocks that share an SM stage x while others multiply.
  const double exposed = turns < rounds ? costs.exposed + costs.exposed_of_each * rounds : rounds;
  const double x = exposed * x_elements * fetched_j * sizeof(T) / l2_rate;
  const double exchange = rounds * outputs * cut.warps_per_row * 4 * (cut.cluster - 1) / 2 / costs.exchanged;

  // How often a thread waits for x. It has some loads in flight, of 16 bytes or of one element.
  const bool is_copied = cut.vector && cut.run == Tile<T>::vector;
  const double x_loads = x_elements * cut.j_group / Tile<T>::vector / threads;
  const double waits = is_copied ? cut.segments * stagings
                       : cut.vector
                           ? std::max(1.0, x_loads / loads_in_flight(cut.n_tiles))
                           : std::max(1.0, x_loads) * (samples > 1 ? costs.waits_of_samples : costs.waits);
  const double staging = x + turns * waits * costs.l2_latency;

  const double vectors = rounds * weight_bytes / 16;
  const double multiplying =
      (Tile<T>::tensor_core ? vectors / 32 * cut.n_tiles * costs.tensor_clocks : vectors * samples / 32) /
      costs.clock * std::max(1.0, costs.fewest_warps / warps);
  const double last_tiles =
      !is_copied && cut.n_tiles == 1
          ? 0
          : std::min(tiles_in_flight<T>(cut.n_tiles), cut.tiles_per_warp) * costs.last_tile;
  const double finishing = outputs / cut.cluster / threads * finish_seconds(costs, cut.parts());
  const double meeting = meeting_seconds(costs, cut.cluster);
  const double barriers =
      cut.groups * meeting + (cut.groups - 1) * costs.group + (cut.segments * stagings - 1) * costs.segment;
  return costs.start + costs.memory_latency + staging + std::max(weights, multiplying) + last_tiles +
         exchange + turns * (finishing + barriers) + (turns - 1) * costs.turn + (rounds - 1) * costs.round;
}

/// A lower bound, in seconds, for the cuts with the same j_group, n_tiles, cluster and warps_per_row. The
/// rest is taken as good as it can be for each part of the prediction.
template <class T>
class Bound {
 public:
  Bound(const Cut& cut, const Product& p, const GpuFacts& facts, const Costs& costs) : costs_(costs) {
    const double samples = static_cast<double>(std::min<std::int64_t>(p.batch, cut.n_tiles * 8));
    const double chunks = static_cast<double>(ceil_div<std::int64_t>(p.batch, cut.n_tiles * 8));
    sms_ = std::floor(facts.multiprocessors * usable_share(costs, cut.cluster));
    panels_ = static_cast<double>(p.a) * cut.j_groups * cut.cluster * chunks;
    most_warps_ = static_cast<int>(65536 / (registers_of(cut.n_tiles) * 32));

    // The work of all blocks, without the rows and terms that are padding.
    const double all_rows =
        panels_ * static_cast<double>(ceil_div<std::int64_t>(p.b, Tile<T>::tile_k) * cut.j_group);
    const double l_tiles = static_cast<double>(ceil_div<std::int64_t>(p.c, Tile<T>::tile_l));
    const double tiles = std::ceil(l_tiles / (cut.cluster * cut.warps_per_row));
    const double row_tiles = cut.warps_per_row * tiles;
    const double weight_bytes = all_rows * row_tiles * tile_bytes;
    const double in_flight = std::max(max_warps, most_warps_) *
                             std::min<double>(tiles_in_flight<T>(cut.n_tiles), tiles) * tile_bytes;
    const double weights =
        weight_bytes /
        std::min(facts.memory_rate * (chunks > 1 ? costs.other_samples : 1.0),
                 std::min(all_rows, sms_) * std::min(costs.weights_of_one, in_flight / costs.memory_latency));
    const double multiplying = weight_bytes / sms_ / (16 * 32) *
                               (Tile<T>::tensor_core ? cut.n_tiles * costs.tensor_clocks : samples) /
                               costs.clock;

    const double x_elements = samples * row_tiles * Tile<T>::tile_l;
    const double x_loads = x_elements * cut.j_group / (Tile<T>::vector * 32);
    const bool is_copied = cut.vector && cut.run == Tile<T>::vector;
    waits_of_warp_ = is_copied ? 0 : cut.vector ? x_loads / loads_in_flight(cut.n_tiles) : x_loads;
    wait_ = costs.l2_latency * (cut.vector ? 1 : samples > 1 ? costs.waits_of_samples : costs.waits);
    // There are as few segments as possible: more than half of what fits is staged at once.
    const double all_x = x_elements * cut.j_group * sizeof(T),
                 memory = static_cast<double>(facts.shared_bytes);
    is_segmented_ = all_x > memory;
    at_once_ = static_cast<int>((memory + 1024) / (std::min({all_x, memory / 2, 65536.0}) + 1024));
    x_ = x_elements * fetched_j_of<T>(cut, p, samples) * sizeof(T) / costs.l2_of_one;
    const double row_outputs = Tile<T>::tile_k * samples;
    const double exchange = std::max(1.0, all_rows / sms_) * row_outputs * cut.warps_per_row * 4 *
                            (cut.cluster - 1) / 2 / costs.exchanged;
    const double finishing = row_outputs / (cut.parts() * 32) * finish_seconds(costs, cut.parts());
    group_ = meeting_seconds(costs, cut.cluster) + finishing;
    common_ = costs.start + costs.memory_latency + std::max(weights, multiplying) + exchange;
  }

  /// A bound for cuts with at least this many groups of rows.
  [[nodiscard]] double seconds(int groups = 1) const {
    return common_ + staging(groups, 1, 1, max_warps) + finishing(groups);
  }
  /// The same with these warps and blocks of rows; more blocks take more rounds.
  [[nodiscard]] double seconds(const Cut& cut) const {
    const double rounds = std::ceil(panels_ * cut.k_blocks / sms_);
    const double at_once = std::max(1, std::min(at_once_, most_warps_ / cut.warps()));
    const double turns = at_once == 1 ? rounds : std::ceil(rounds / at_once);
    const double exposed = turns < rounds ? costs_.exposed + costs_.exposed_of_each * rounds : rounds;
    return common_ + staging(cut.groups, exposed, turns, cut.warps()) + turns * finishing(cut.groups) +
           (rounds - 1) * costs_.round + (turns - 1) * costs_.turn;
  }

 private:
  /// Every group stages x again if x does not fit as a whole.
  [[nodiscard]] double staging(int groups, double exposed, double turns, int warps) const {
    const double stagings = is_segmented_ ? groups : 1;
    return stagings * exposed * x_ + turns * std::max(1.0, stagings * waits_of_warp_ / warps) * wait_;
  }
  [[nodiscard]] double finishing(int groups) const { return groups * group_ + (groups - 1) * costs_.group; }

  const Costs& costs_;
  double sms_ = 0, panels_ = 0;
  int most_warps_ = 0, at_once_ = 0;  ///< warps of an SM at once; blocks of an SM, by memory alone
  bool is_segmented_ = false;
  double common_ = 0;  ///< the part that does not depend on rows
  double x_ = 0, waits_of_warp_ = 0, wait_ = 0, group_ = 0;
};

/// Visits the beginnings of cuts: how j, samples and l are shared out.
template <class T, class Visitor>
void for_each_beginning(const Product& p, const GpuFacts& facts, const Cut* packed_as, Visitor&& visit) {
  constexpr int vector = Tile<T>::vector;
  const int largest_cluster = facts.has_clusters() ? 8 : 1;
  const std::int64_t l_tiles = ceil_div<std::int64_t>(p.c, Tile<T>::tile_l);
  x_stays::for_each_panel(p, vector, packed_as == nullptr ? 0 : packed_as->j_group, [&](const Panel& panel) {
    Cut cut;
    cut.j_group = panel.j_group;
    cut.j_groups = panel.j_groups;
    cut.vector = panel.takes_vectors;
    cut.run = cut.vector && p.d < vector ? vector / static_cast<int>(p.d) : 1;
    for (cut.n_tiles = 1; cut.n_tiles <= 8; cut.n_tiles *= 2) {
      if (cut.n_tiles > 1 && cut.n_tiles * 4 >= p.batch) break;  // half of it would do
      for (cut.cluster = 1; cut.cluster <= largest_cluster; cut.cluster *= 2) {
        if (packed_as != nullptr && packed_as->cluster != cut.cluster) continue;
        for (cut.warps_per_row = 1; cut.warps_per_row <= max_warps; cut.warps_per_row *= 2) {
          const int splits = cut.cluster * cut.warps_per_row;
          if (splits > l_tiles && splits > 1) break;
          if (packed_as == nullptr || packed_as->segments == 1 ||
              packed_as->warps_per_row == cut.warps_per_row)
            visit(cut);
        }
      }
    }
  });
}

/// Visits the ways to complete a cut: every number of rows for a block, each with as few segments as shared
/// memory allows. may_have_groups(groups) and may_be(cut) can leave out cuts with at least this many groups,
/// or with such blocks.
template <class T, class MayHave, class MayBe, class Visitor>
void for_each_completion(Cut cut, const Product& p, const GpuFacts& facts, const Cut* packed_as,
                         MayHave&& may_have_groups, MayBe&& may_be, Visitor&& visit) {
  const int samples = static_cast<int>(std::min<std::int64_t>(p.batch, cut.n_tiles * 8));
  const std::int64_t l_tiles = ceil_div<std::int64_t>(p.c, Tile<T>::tile_l);
  const std::int64_t rows = ceil_div<std::int64_t>(p.b, Tile<T>::tile_k) * cut.j_group;
  const std::int64_t splits = std::int64_t{cut.cluster} * cut.warps_per_row;
  const double panels = static_cast<double>(p.a) * cut.j_groups * cut.cluster;
  for (cut.rows_per_group = 1; cut.warps() <= max_warps; cut.rows_per_group *= 2) {
    const std::int64_t groups = ceil_div<std::int64_t>(rows, cut.rows_per_group);
    for (const int per_block : {1, 2, 3, 4, 5, 6, 8, 12, 16, 32}) {
      if (per_block > groups || !may_have_groups(per_block)) break;
      cut.groups = per_block;
      const std::int64_t k_blocks = ceil_div<std::int64_t>(groups, per_block);
      if (panels * static_cast<double>(k_blocks) > max_blocks) continue;
      cut.k_blocks = static_cast<int>(k_blocks);
      if (packed_as != nullptr && !same_order_of_rows(cut, *packed_as)) continue;
      if (!may_be(cut)) continue;
      for (std::int64_t segments = 1;; segments *= 2) {
        // Beyond 64 KiB of terms the shared memory of any GPU is full.
        const std::int64_t tiles = ceil_div(l_tiles, splits * segments);
        if (tiles * cut.warps_per_row * Tile<T>::tile_l > 1 << 16) continue;
        cut.segments = static_cast<int>(segments);
        cut.tiles_per_warp = static_cast<int>(tiles);
        if (static_cast<std::size_t>(shared_layout<T>(cut, samples, j_fastest(cut)).total) <=
            facts.shared_bytes) {
          if (packed_as == nullptr || same_order(cut, *packed_as)) visit(cut);
          break;
        }
        if (tiles == 1) break;
      }
    }
  }
}

constexpr int max_branches = 4 * 4 * 4 * 4;  // choices of j_group, n_tiles, cluster and warps_per_row

Choice search(const Problem& problem, const GpuFacts& facts, const Cut* packed_as) {
  const Product p = planned_product_of(problem);
  const Costs costs(facts);
  BestCut<Cut> best;
  dispatch_type(problem.dtype, [&]<class T>() {
    Branches<Cut, max_branches> branches;
    for_each_beginning<T>(p, facts, packed_as, [&](const Cut& cut) {
      branches.add(cut, Bound<T>(cut, p, facts, costs).seconds());
    });
    branches.visit_promising(best, [&](const Cut& beginning, int branch) {
      const Bound<T> bound(beginning, p, facts, costs);
      int number = branch * 64;  // more than the ways to complete a cut
      const auto may_have_groups = [&](int groups) { return !best.excludes(bound.seconds(groups)); };
      const auto may_be = [&](const Cut& cut) { return !best.excludes(bound.seconds(cut)); };
      for_each_completion<T>(beginning, p, facts, packed_as, may_have_groups, may_be, [&](const Cut& cut) {
        best.offer(cut, predict_cut<T>(cut, p, facts, costs), number++);
      });
    });
  });
  return best.choice();
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  const Product p = planned_product_of(problem);
  const Costs costs(facts);
  std::vector<Choice> all;
  const auto any = [](const auto&) { return true; };
  dispatch_type(problem.dtype, [&]<class T>() {
    for_each_beginning<T>(p, facts, nullptr, [&](const Cut& beginning) {
      for_each_completion<T>(beginning, p, facts, nullptr, any, any, [&](const Cut& cut) {
        all.push_back({cut, predict_cut<T>(cut, p, facts, costs)});
      });
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
  return {.weights = static_cast<const uint4*>(weights),
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .batch = static_cast<int>(p.batch),
          .j_fastest_log2 = std::countr_zero(static_cast<unsigned>(j_fastest(cut))),
          .activation = problem.activation,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .x_sample = p.x_sample,
          .x_feature = p.x_feature,
          .y_sample = p.y_sample,
          .y_feature = p.y_feature,
          // Four neighbouring features of y are four j or four k of one block.
          .quads = p.y_feature == 1 && (p.batch == 1 || p.y_sample % 4 == 0) &&
                   (p.d == 1 ? p.b % 4 == 0 : p.d % 4 == 0 && j_fastest(cut) % 4 == 0),
          .quad_bytes = 4 * static_cast<int>(size_of(problem.dtype))};
}

Arguments with_operands(Arguments arguments, const Product& /*p*/, const Operands& operands) {
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  arguments.cut.vector = arguments.cut.vector && is_aligned(operands.x, 16);
  arguments.quads = arguments.quads && is_aligned(operands.y, arguments.quad_bytes);
  return arguments;
}

}  // namespace kronsparse::cuda::x_stays_mma
