// The kernel `fused`: the choice of a config and the cost model.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include "cuda/chain/fused/kernels.hpp"
#include "cuda/chain/fused/search.hpp"
#include "cuda/host/alignment.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/packing/merging.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::fused {
namespace {

int real_int(std::int64_t value) { return static_cast<int>(value); }
template <class Number>
Number up_to_multiple(Number value, std::type_identity_t<Number> of) {
  return (value + of - 1) / of * of;
}

/// The element sizes that layouts in shared memory depend on.
struct Elements {
  int bytes;
  [[nodiscard]] int in_unit() const { return 16 / bytes; }
  [[nodiscard]] int in_k_step() const { return 2 * in_unit(); }
};

Elements elements_of(const Problem& problem) { return {static_cast<int>(size_of(problem.dtype))}; }

/// The bytes from the first packed weight to a link's fragments, to its exponents, and past them.
struct WeightPlace {
  std::size_t fragments, exponents, end;
};

std::vector<WeightPlace> weight_places(DType dtype, std::span<const Link> links) {
  constexpr std::size_t fragment_bytes = 512;
  std::vector<WeightPlace> all;
  std::size_t at = 0;
  for (const Link& link : links) {
    const Product& p = link.product;
    const int k_step = Elements{static_cast<int>(size_of(dtype))}.in_k_step();
    const std::int64_t fragments = p.a * p.d * divided_up(p.b, 16) * divided_up(p.c, k_step) * link.repeats;
    const std::size_t exponents = at + static_cast<std::size_t>(fragments) * fragment_bytes;
    const std::size_t end = link.factors == 1
                                ? exponents
                                : exponents + up_to_multiple(static_cast<std::size_t>(p.a * p.b * p.d), 16);
    all.push_back({at, exponents, end});
    at = end;
  }
  return all;
}

/// How often the busiest bank is asked for when the first unit of each line is read or written at once.
int conflicts(const Line& form, std::span<const int> lines, int shift) {
  std::array<int, 8> asked{};
  for (const int line : lines) ++asked[static_cast<std::size_t>(line_entry(form, line, shift) / 16 % 8)];
  return *std::ranges::max_element(asked);
}

/// The line of a feature in its space, in its rank.
int line_of(const Space& space, int feature) {
  constexpr Line any{.samples = 64, .element_bytes = 2};
  return static_cast<int>(address_of(entry_of(any, space, feature)) / 128);
}

/// The swizzle with the fewest conflicts, for a space whose lines are written by outputs `output_step`
/// features apart, and read as neighbours, or for y in the order of its stores.
int best_shift(const Space& space, int features, int output_step, bool is_y, const Line& form) {
  const int least = form.units() == 2 ? 2 : 1;  // lines of one row of 128 bytes have one swizzle
  std::array<int, 8> written{}, read{};
  for (int n = 0; n < 8; ++n) {
    const auto at = static_cast<std::size_t>(n);
    written[at] = line_of(space, std::min(n * output_step, features - 1));
    read[at] = is_y ? n / 2 * 8 + n % 2 : n;
  }
  int best = 31, fewest = 100;
  for (int shift = 31; shift >= least; shift = shift == 31 ? 12 : shift - 1) {
    const int all = 2 * conflicts(form, read, shift) + conflicts(form, written, shift);
    if (all < fewest) {
      fewest = all;
      best = shift;
    }
  }
  return best;
}

/// Makes a config, as far as its sizes in shared memory.
class Maker {
 public:
  Maker(const Problem& problem, std::span<const Link> links, const GpuFacts& gpu)
      : problem_(problem), links_(links), gpu_(gpu), elements_(elements_of(problem)) {
    for (std::size_t at = 0; at < all_ranks.size(); ++at) {
      Divided& one = divided_[at];
      one.arguments.ranks = all_ranks[at];
      one.arguments.steps = static_cast<int>(links_.size());
      one.arguments.samples_first = problem_.layout == Layout::batch_first;
      one.arguments.activation = problem_.activation;
      one.is_possible = (all_ranks[at] == 1 || gpu_.has_clusters()) && divide(one.arguments);
    }
  }

  /// Blocks of a cluster that may share a chain.
  static constexpr std::array all_ranks = {1, 2, 4, 8};

  /// Nothing if ranks (a place in all_ranks) or parts do not divide the chain, or if it does not fit.
  [[nodiscard]] std::optional<Config> make(std::size_t shape_index, const Shape& shape, std::size_t ranks,
                                           int parts, int x_buffers) const {
    if (parts > 1 && links_.back().product.b % (16 * parts) != 0) return {};
    const Divided& divided = divided_[ranks];
    if (!divided.is_possible || least_bytes(divided.arguments, shape.samples) > gpu_.shared_bytes) return {};
    Config config;
    config.shape_index = shape_index;
    config.shape = shape;
    Arguments& all = config.arguments;
    all = divided.arguments;
    all.parts = parts;
    all.tiles = divided_up(std::max<std::int64_t>(problem_.batch, 1), shape.samples);
    set_y(all);
    set_x(all, x_buffers);
    // Two small blocks overlap one's products with the other's copies.
    for (const int threads : {most_threads / 2, most_threads}) {
      config.threads = threads;
      cut_outputs(config);
      lay_out(config);
      const int at_once = most_threads / threads;
      constexpr int reserved = 1024;  // of each block, by the driver
      if (static_cast<std::size_t>(at_once * (config.shared_bytes + reserved)) <=
          gpu_.shared_bytes + reserved) {
        config.blocks_at_once = at_once;
        // A cut into parts may divide no item.
        return all.step[all.steps - 1].m_groups > 0 ? std::optional(config) : std::nullopt;
      }
    }
    return {};
  }

  void set_shifts(Config& config) const {
    Arguments& all = config.arguments;
    const int samples = config.shape.samples;
    const int last = all.steps;
    for (int s = 1; s < last; ++s) set_shift(all, s, all.step[s - 1].d, samples);
    // x comes as neighbouring features.
    if (all.samples_first && !all.x_rows) set_shift(all, 0, 1, samples);
    set_shift(all, last, all.step[last - 1].d, samples);
    for (int s = 0; s < last; ++s) all.step[s].in_shift = all.space[s].shift;
  }

 private:
  /// Gives every rank its (i, j).
  [[nodiscard]] bool divide(Arguments& all) const {
    const std::vector<WeightPlace> weights = weight_places(problem_.dtype, links_);
    for (int s = 0; s < all.steps; ++s) {
      const Link& link = links_[static_cast<std::size_t>(s)];
      const Product& p = link.product;
      const int ranks_i = real_int(std::gcd(p.a, std::int64_t{all.ranks})), ranks_j = all.ranks / ranks_i;
      if (p.d % ranks_j != 0) return false;
      Step& step = all.step[s];
      step.b = real_int(p.b);
      step.d = real_int(p.d);
      step.i_count = real_int(p.a / ranks_i);
      step.j_count = Divisor(static_cast<std::uint32_t>(p.d / ranks_j));
      step.ranks_j = ranks_j;
      step.blocks = step.i_count * real_int(p.d / ranks_j);
      all.terms[s] = real_int(p.c);
      step.terms = up_to_multiple(real_int(p.c), elements_.in_k_step());
      step.repeats = link.repeats;
      step.k_steps = step.terms / elements_.in_k_step() * link.repeats;
      step.tiles = real_int(divided_up(p.b, 16));
      const WeightPlace& place = weights[static_cast<std::size_t>(s)];
      step.weights = static_cast<std::int64_t>(place.fragments);
      step.exponents = link.factors > 1 ? static_cast<std::int64_t>(place.exponents) : -1;
      all.space[s] = {.block_features = Divisor(static_cast<std::uint32_t>(p.c * p.d)),
                      .d = Divisor(static_cast<std::uint32_t>(p.d)),
                      .i_count = Divisor(static_cast<std::uint32_t>(step.i_count)),
                      .j_count = step.j_count,
                      .ranks_j = ranks_j,
                      .terms = step.terms,
                      .shift = 31,
                      .place = {}};
    }
    return true;
  }

  /// The shared memory of all that no number of parts or buffers makes smaller: most tiles need more than
  /// there is, and are found out here.
  [[nodiscard]] std::size_t least_bytes(const Arguments& all, int samples) const {
    std::array<std::size_t, 2> bytes{};
    for (int s = 0; s < all.steps; ++s) {
      const auto lines =
          static_cast<std::size_t>(all.step[s].blocks) * static_cast<std::size_t>(all.step[s].terms);
      std::size_t& place = bytes[static_cast<std::size_t>(s % 2)];
      place = std::max(place, lines * static_cast<std::size_t>(samples * elements_.bytes));
    }
    return bytes[0] + bytes[1];
  }

  /// y is cut by outputs k into parts, and each part by its features into ranks.
  void set_y(Arguments& all) const {
    const Product& p = links_.back().product;
    all.y_run = real_int(all.parts == 1 ? p.a * p.b * p.d : p.b / all.parts * p.d);
    all.y_runs = Divisor(static_cast<std::uint32_t>(all.y_run));
    all.y_run_step = real_int(p.b * p.d);
    all.y_all = all.parts == 1 ? all.y_run : real_int(p.a) * all.y_run;
    all.y_features = up_to_multiple(real_int(divided_up(all.y_all, all.ranks)), 4 * elements_.in_unit());
    all.space[all.steps] = {.block_features = Divisor(1),
                            .d = Divisor(1),
                            .i_count = Divisor(static_cast<std::uint32_t>(all.y_features)),
                            .j_count = Divisor(1),
                            .ranks_j = 1,
                            .terms = 1,
                            .shift = 31,
                            .place = {}};
  }

  void set_x(Arguments& all, int x_buffers) const {
    const Product& p = links_.front().product;
    all.x_all = real_int(p.a * p.c * p.d);
    const Step& first = all.step[0];
    all.x_rows = all.samples_first && p.d == 1 && p.c % elements_.in_k_step() == 0 && first.ranks_j == 1;
    all.x_features = all.x_rows
                         ? first.i_count * real_int(p.c)
                         : up_to_multiple(real_int(divided_up(all.x_all, all.ranks)), elements_.in_unit());
    // Rows that become lines leave their place early.
    all.x_buffers = all.samples_first && !all.x_rows ? 1 : x_buffers;
  }

  /// Cuts the outputs of each (i, j) into items, so that all warps end at about the same time.
  void cut_outputs(Config& config) const {
    Arguments& all = config.arguments;
    const int warps = config.threads / 32;
    const int n_groups = std::max(1, config.shape.samples / 64);
    for (int s = 0; s < all.steps; ++s) {
      Step& step = all.step[s];
      const int parts = s + 1 == all.steps ? all.parts : 1;
      double fewest = 0;
      for (int tiles = config.shape.m_tiles; tiles >= 1; tiles /= 2) {
        if (tiles > 1 && tiles / 2 >= step.tiles) continue;
        const int groups = (step.tiles + tiles - 1) / tiles;
        if (groups % parts != 0 || (parts > 1 && step.tiles % tiles != 0)) continue;
        const int items = step.blocks * (groups / parts) * n_groups;
        // The loads of right operands take about the time of one tile.
        const double time = static_cast<double>((items + warps - 1) / warps) * (tiles + 1);
        if (fewest != 0 && time >= fewest) continue;
        fewest = time;
        step.m_tiles = tiles;
        step.m_groups = groups;
      }
      if (fewest == 0) step.m_groups = 0;
      step.groups_of_part = std::max(1, step.m_groups / parts);
    }
  }
  /// Places spaces in shared memory. Those with an even number share the place of x, the others another.
  void lay_out(Config& config) const {
    Arguments& all = config.arguments;
    const int samples = config.shape.samples;
    const int line_bytes = samples * elements_.bytes;
    int at = 0;
    const auto take = [&](int bytes, int alignment = 1024) {
      at = up_to_multiple(at, alignment);
      return std::exchange(at, at + bytes);
    };
    const int last = all.steps;
    std::array<int, 2> bytes{};
    for (int s = 0; s < last; ++s) {
      const Step& step = all.step[s];
      const int size =
          s == 0 && all.x_rows ? samples * row_pitch(all.x_features) : step.blocks * step.terms * line_bytes;
      bytes[static_cast<std::size_t>(s % 2)] = std::max(bytes[static_cast<std::size_t>(s % 2)], size);
    }
    const int y_bytes = all.y_features * line_bytes;
    if (all.parts == 1)
      bytes[static_cast<std::size_t>(last % 2)] =
          std::max(bytes[static_cast<std::size_t>(last % 2)], y_bytes);
    const int even = up_to_multiple(bytes[0], 1024);
    const Place x{.offset = take(all.x_buffers * even), .alternate = all.x_buffers > 1 ? even : 0};
    const Place other{.offset = take(bytes[1]), .alternate = 0};
    for (int s = 0; s <= last; ++s) all.space[s].place = s % 2 == 0 ? x : other;
    if (all.parts > 1) all.space[last].place = {.offset = take(y_bytes), .alternate = 0};
    const bool is_staged = all.samples_first && !all.x_rows;
    if (is_staged) {
      all.staging_pitch = row_pitch(all.x_features);
      all.staging = take(samples * all.staging_pitch);
      all.x_table = take(all.x_features * 4, 16);
    }
    all.step[0].rows_pitch = all.x_rows ? row_pitch(all.x_features) : 0;
    for (int s = 0; s < last; ++s) {
      Step& step = all.step[s];
      step.items = take(step.blocks * step.m_groups * static_cast<int>(sizeof(Item)), 16);
      step.table = take(step.blocks * step.m_groups * step.m_tiles * 16 * 4, 16);
      step.in = all.space[s].place;
    }
    all.waits_at_end = all.ranks > 1 && all.parts == 1 && (last % 2 == 1 || is_staged);
    config.shared_bytes = up_to_multiple(at, 128);
  }

  void set_shift(Arguments& all, int space, int output_step, int samples) const {
    const int features =
        space == all.steps ? all.y_all : all.step[space].blocks * all.terms[space] * all.ranks;
    all.space[space].shift = best_shift(all.space[space], features, output_step, space == all.steps,
                                        {.samples = samples, .element_bytes = elements_.bytes});
  }

  [[nodiscard]] int row_pitch(int features) const { return up_to_multiple(features * elements_.bytes, 128); }

  const Problem& problem_;
  std::span<const Link> links_;
  const GpuFacts& gpu_;
  Elements elements_;
  /// Arguments as far as they depend on ranks alone.
  struct Divided {
    Arguments arguments{};
    bool is_possible = false;
  };
  std::array<Divided, all_ranks.size()> divided_;
};

/// Predicted seconds of a run.
double predicted(const Problem& problem, const Config& config, const GpuFacts& gpu) {
  const Tuning& tuned = tuning_of(gpu);
  const tuning::Fused& costs = tuned.fused.costs;
  const CostTerms terms = cost_terms(problem, config, gpu);
  double microseconds = 0;
  for (std::size_t at = 0; at < terms.size(); ++at) microseconds += terms[at] * costs.microseconds[at];
  const double computing = microseconds * 1e-6 * tuned.gpu.clock / std::max(gpu.clock_hz, 1e9);
  const double memory = costs.start + problem.bytes() / gpu.memory_rate;
  return std::max(computing, memory);
}

std::span<const Shape> shapes_of(const Problem& problem) {
  return problem.dtype == DType::f32 ? std::span<const Shape>(float_shapes)
                                     : std::span<const Shape>(half_shapes);
}

}  // namespace

int clusters_at_once(const Config& config, const GpuFacts& gpu) {
  const int blocks = gpu.multiprocessors * config.blocks_at_once;
  // A cluster lies in one group of multiprocessors (GPC), whose last few may not be enough for another.
  const int lost = config.ranks() == 8 ? 8 : config.ranks() == 4 ? 16 : 0;
  return std::max(1, (blocks - (lost == 0 ? 0 : blocks / lost)) / config.ranks());
}

CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu) {
  const Arguments& all = config.arguments;
  const bool half = problem.dtype != DType::f32, is_cluster = all.ranks > 1;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const int samples = config.shape.samples, warps = config.threads / 32;
  const int n_tiles = std::min(8, samples / 8), n_groups = std::max(1, samples / 64);
  const double turns = std::ceil(real(all.tiles) / clusters_at_once(config, gpu));
  // Blocks that share a multiprocessor take turns, and fill each other's gaps.
  const double shared = turns * config.blocks_at_once;
  double products = 0, loads = 0, items_in_turn = 0, stores = 0, weights = 0;
  for (int s = 0; s < all.steps; ++s) {
    const Step& step = all.step[s];
    const double items = real(step.blocks) * step.m_groups * n_groups;
    const double rounds =
        (config.blocks_at_once == 1 ? std::ceil(items / warps) : items / warps) * warps / 16;
    products += rounds * step.k_steps * step.m_tiles * n_tiles;
    loads += rounds * step.k_steps * n_tiles;
    items_in_turn += rounds;
    stores += rounds * step.m_tiles * n_tiles;
    weights += real(step.blocks) * step.tiles * step.k_steps * 512 / 1e5;
  }
  const double units = real(samples) * static_cast<double>(size_of(problem.dtype)) / 16 / 512 / all.ranks;
  const double x = all.x_all * units, y = real(all.y_all) * all.parts * units;
  const double meetings = turns * (all.steps + all.parts + (all.waits_at_end ? 1 : 0));
  CostTerms terms{};
  std::size_t at = 0;
  const auto add = [&](double value, bool counts = true) { terms[at++] = counts ? value : 0; };
  add(1);
  for (const bool is_half : {true, false}) {
    add(shared * products, half == is_half);
    add(shared * loads, half == is_half);
    for (const bool far : {false, true}) add(shared * stores, half == is_half && is_cluster == far);
  }
  add(shared * items_in_turn);
  add(shared * x);
  add(shared * y);
  add(shared * x, all.samples_first && !all.x_rows);  // rows that become lines
  add(shared * weights);
  add(meetings, !is_cluster);
  add(meetings, is_cluster);
  add(turns);
  return terms;
}

namespace {

/// All of them, but for the swizzles: these take most of the time, and no prediction depends on them.
std::vector<Config> without_shifts(const Problem& problem, const Maker& maker, const GpuFacts& gpu) {
  std::vector<Config> all;
  const std::span<const Shape> shapes = shapes_of(problem);
  for (std::size_t index = 0; index < shapes.size(); ++index)
    for (std::size_t ranks = 0; ranks < Maker::all_ranks.size(); ++ranks)
      for (const int x_buffers : {2, 1})
        for (const int parts : {1, 2, 3, 4, 6, 8, 12, 16}) {
          std::optional<Config> config = maker.make(index, shapes[index], ranks, parts, x_buffers);
          if (!config) continue;
          config->seconds = predicted(problem, *config, gpu);
          all.push_back(*config);
          if (parts == 1 || x_buffers == 1) break;  // more parts only make room
        }
  return all;
}

}  // namespace

std::vector<Config> all_configs(const Problem& problem, std::span<const Link> links, const GpuFacts& gpu) {
  const Maker maker(problem, links, gpu);
  std::vector<Config> all = without_shifts(problem, maker, gpu);
  for (Config& config : all) maker.set_shifts(config);
  return all;
}

std::optional<Cut> best_cut(const Problem& problem, std::span<const std::vector<Link>> ways,
                            const GpuFacts& gpu) {
  for (const std::vector<Link>& links : ways)
    if (std::optional<Config> config = best_config(problem, links, gpu)) return Cut{links, *config};
  return std::nullopt;
}

std::optional<Config> best_config(const Problem& problem, std::span<const Link> links, const GpuFacts& gpu) {
  const Maker maker(problem, links, gpu);
  std::vector<Config> all = without_shifts(problem, maker, gpu);
  const auto best = std::ranges::min_element(all, {}, &Config::seconds);
  if (best == all.end()) return std::nullopt;
  maker.set_shifts(*best);
  return *best;
}

Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                       const void* weights) {
  Arguments all = config.arguments;
  const MatrixShape x = x_matrix(problem), y = y_matrix(problem);
  const int bytes = elements_of(problem).bytes;
  all.x = static_cast<const std::byte*>(operands.x);
  all.y = static_cast<std::byte*>(operands.y);
  all.bias = problem.bias ? operands.bias : nullptr;
  all.weights = static_cast<const std::byte*>(weights);
  all.batch = problem.batch;
  all.x_sample = all.samples_first ? x.stride : 1;
  all.x_feature = all.samples_first ? 1 : x.stride;
  all.y_sample = all.samples_first ? y.stride : 1;
  all.y_feature = all.samples_first ? 1 : y.stride;
  all.x_vectors = is_aligned(all.x, 16) && x.stride * bytes % 16 == 0;
  all.y_vectors = is_aligned(all.y, 16) && y.stride * bytes % 16 == 0 &&
                  (!all.samples_first || all.y_run * bytes % 16 == 0);
  return all;
}

std::vector<ChainPart> chain_parts(const Problem& problem, std::span<const Link> links) {
  std::vector<ChainPart> parts;
  const bool half = problem.dtype != DType::f32, transposed = is_transposed(problem.operation);
  const std::vector<WeightPlace> places = weight_places(problem.dtype, links);
  for (std::size_t at = 0; at < links.size(); ++at) {
    const Link& link = links[at];
    ChainPart& part = parts.emplace_back(ChainPart{.first = link.factor,
                                                   .count = link.factors,
                                                   .offset = places[at].fragments,
                                                   .layout = {},
                                                   .merging = {},
                                                   .exponents = places[at].exponents});
    if (link.factors > 1) {
      const auto factors = std::span(problem.chain.factors()).subspan(link.factor, link.factors);
      part.merging = merge_task(factors, problem.dtype, transposed);
      continue;
    }
    PackLayout& layout = part.layout;
    layout.a = link.product.a;
    layout.b = link.product.b;
    layout.c = link.product.c;
    layout.d = link.product.d;
    layout.transposed = transposed;
    layout.dtype = problem.dtype;
    // The tensor core's left operand, as FragmentOrder describes it.
    if (half) {
      layout.bit({.l = 1});
      layout.bit({.k = 8});
      layout.bit({.l = 8});
      layout.lanes({.l = 2}, {.k = 1});
    } else {
      layout.bit({.k = 8});
      layout.bit({.l = 4});
      layout.lanes({.l = 1}, {.k = 1});
    }
    const int k_step = half ? 16 : 8;
    layout.digit(divided_up(layout.c, k_step), {.l = k_step});
    layout.digit(divided_up(layout.b, 16), {.k = 16});
    layout.digit(layout.d, {.j = 1});
  }
  return parts;
}

PackedOrder packed_order(const Problem& problem, std::span<const Link> links) {
  PackedOrder order{.family = "fused", .numbers = {is_transposed(problem.operation)}, .bytes = 0};
  std::size_t number = 1;
  for (const Link& link : links) order.numbers[number++] = static_cast<std::int64_t>(link.factors);
  order.bytes = weight_places(problem.dtype, links).back().end;
  return order;
}

}  // namespace kronsparse::cuda::fused
