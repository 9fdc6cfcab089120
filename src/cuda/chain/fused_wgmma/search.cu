// The kernel `fused_wgmma`: the choice of a config and the cost model.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "core/message.hpp"
#include "cuda/chain/fused_wgmma/kernels.hpp"
#include "cuda/chain/fused_wgmma/search.hpp"
#include "cuda/host/alignment.hpp"
#include "cuda/packing/merging.hpp"
#include "cuda/packing/mixed_terms.hpp"
#include "cuda/packing/slice_order.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::fused_wgmma {
namespace {

int real_int(std::int64_t value) { return static_cast<int>(value); }
template <class Number>
Number up_to_multiple(Number value, std::type_identity_t<Number> of) {
  return (value + of - 1) / of * of;
}

/// The shape of a link's items, by the number of item_shape(), and their blocks.
struct Items {
  int number = 0, blocks = 1;

  [[nodiscard]] int columns() const { return item_shape(number).columns; }
};

/// Boxes of x in a stage, at most.
constexpr int most_boxes = 2;

/// Clocks in which a multiprocessor multiplies 64 samples by 16 terms and some outputs: the tensor cores'
/// own, or those in which they read the operands from shared memory.
constexpr int clocks_of(int columns) { return std::max(columns / 2, 16 + columns / 4); }

/// The shape that multiplies fastest. It does not depend on the batch, because the order of packed weights
/// depends on it.
Items items_of(const Link& link, bool reads_x) {
  const Product& p = link.product;
  const std::int64_t blocks = p.a * p.d, slices = divided_up(p.c, slice_terms) * link.repeats;
  Items best;
  std::int64_t fewest = -1;
  for (int number = 0; number < item_shape_count; ++number) {
    const ItemShape shape = item_shape(number);
    const auto fits = [&](std::int64_t count) {
      if (blocks % count != 0) return false;
      if (!reads_x || count == 1) return true;
      return (slices <= slab_slices ? divided_up(count * p.c, box_features) : count) <= most_boxes;
    };
    int count = shape.blocks;
    while (!fits(count)) --count;
    constexpr std::int64_t start_of_item = 100;  // clocks
    const std::int64_t clocks = blocks / count * divided_up(p.b, shape.columns) *
                                (slices * shape.blocks * clocks_of(shape.columns) + start_of_item);
    if (fewest >= 0 && clocks >= fewest) continue;
    fewest = clocks;
    best = {number, count};
  }
  return best;
}

bool reads_x(std::span<const Link> links, const Link& link) { return &link == &links.front(); }

/// Terms of blocks that lie as lines are mixed; those of x are not.
int mixing_of(std::span<const Link> links, const Link& link) {
  return reads_x(links, link) ? 0 : cuda::mixing_of(link.product.d);
}

SliceOrder order_of(std::span<const Link> links, const Link& link) {
  const Product& p = link.product;
  return {.a = p.a,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .columns = items_of(link, reads_x(links, link)).columns(),
          .parts = link.repeats,
          .mixing = mixing_of(links, link)};
}

/// The bytes from the first packed weight to a link's slices, to its exponents, and past them.
struct WeightPlace {
  std::size_t slices, exponents, end;
};

std::vector<WeightPlace> weight_places(std::span<const Link> links) {
  std::vector<WeightPlace> all;
  std::size_t at = 0;
  for (const Link& link : links) {
    const Product& p = link.product;
    const std::size_t exponents = at + static_cast<std::size_t>(order_of(links, link).elements()) * 2;
    const std::size_t end = link.factors == 1
                                ? exponents
                                : exponents + up_to_multiple(static_cast<std::size_t>(p.a * p.b * p.d), 16);
    all.push_back({at, exponents, end});
    at = end;
  }
  return all;
}

/// Makes configs of one way.
class Maker {
 public:
  Maker(const Problem& problem, std::span<const Link> links, const GpuFacts& gpu)
      : problem_(problem), links_(links), gpu_(gpu) {
    all_.steps = real_int(static_cast<std::int64_t>(links.size()));
    all_.activation = problem.activation;
    all_.x_features = real_int(links.front().product.a * links.front().product.c);
    const std::vector<WeightPlace> places = weight_places(links);
    for (std::size_t s = 0; s < links.size(); ++s) set_step(all_.step[s], links[s], places[s]);
  }

  [[nodiscard]] int chunks() const { return last(all_).chunks; }
  /// Whether results of the last step can take the place of their terms.
  [[nodiscard]] bool can_be_in_place() const {
    const Step& step = last(all_);
    return all_.steps > 1 && step.chunks == 1 && up_to_multiple(step.b, 8) <= step.block_lines;
  }
  /// Whether y can be cut into so many parts.
  [[nodiscard]] bool has_parts(int parts) const {
    const Step& step = last(all_);
    return parts == 1 || (step.chunks % parts == 0 && step.padded == step.b);
  }

  /// Nothing if it does not fit.
  [[nodiscard]] std::optional<Config> make(std::size_t shape_index, const Shape& shape, int parts,
                                           bool in_place) const {
    Config config{.shape_index = shape_index, .shape = shape, .shared_bytes = 0, .arguments = all_};
    Arguments& all = config.arguments;
    all.tiles = divided_up(std::max<std::int64_t>(problem_.batch, 1), shape.row_groups * row_group_samples);
    all.parts = parts;
    Step& step = last(all);
    step.in_place = in_place;
    step.chunks_of_part = step.chunks / parts;
    step.items_of_part = step.blocks / step.item.blocks * step.chunks_of_part;
    set_y(all);
    if (!lay_out(config)) return {};
    return config;
  }

 private:
  [[nodiscard]] static Step& last(Arguments& all) { return all.step[all.steps - 1]; }
  [[nodiscard]] static const Step& last(const Arguments& all) { return all.step[all.steps - 1]; }

  void set_step(Step& step, const Link& link, const WeightPlace& place) const {
    const Product& p = link.product;
    const Items items = items_of(link, reads_x(links_, link));
    step.b = real_int(p.b);
    step.d = real_int(p.d);
    step.blocks = real_int(p.a * p.d);
    step.terms = real_int(p.c);
    step.block_lines = up_to_multiple(step.terms, slice_terms);
    step.repeat_shift = link.repeats - 1;
    step.slices = step.block_lines / slice_terms * link.repeats;
    step.slabs = real_int(divided_up(step.slices, slab_slices));
    step.x_features = step.slabs == 1 ? step.terms : box_features;
    step.item_number = items.number;
    step.item = {items.columns(), items.blocks};
    step.chunks = real_int(divided_up(p.b, items.columns()));
    step.chunks_of_part = step.chunks;
    step.padded = step.chunks * items.columns();
    step.items_of_part = step.blocks / items.blocks * step.chunks;
    step.mixing = mixing_of(links_, link);
    step.by_padded = Divisor(static_cast<std::uint32_t>(step.padded));
    step.by_d = Divisor(static_cast<std::uint32_t>(step.d));
    step.by_block = Divisor(static_cast<std::uint32_t>(p.c * p.d));
    step.weights = static_cast<std::int64_t>(place.slices);
    step.exponents = static_cast<std::int64_t>(place.exponents);
  }

  void set_y(Arguments& all) const {
    const Step& step = last(all);
    all.y_outputs = step.b / all.parts;
    all.y_run = all.y_outputs * step.d;
    all.y_runs = Divisor(static_cast<std::uint32_t>(all.y_run));
    all.y_run_step = step.b * step.d;
    all.y_features = step.blocks * all.y_outputs;
    all.y_block_lines = step.in_place ? step.block_lines : up_to_multiple(all.y_outputs, 8);
  }

  /// The bytes of what a step writes for 64 samples: its lines, and one for outputs that do not exist.
  [[nodiscard]] int group_bytes(const Arguments& all, int s) const {
    const Step& step = all.step[s];
    const bool is_last = s + 1 == all.steps;
    const int lines =
        is_last ? step.blocks * all.y_block_lines : all.step[s + 1].blocks * all.step[s + 1].block_lines;
    const bool has_padding =
        step.padded > step.b || (!is_last && all.step[s + 1].in_place && last(all).padded > last(all).b);
    return up_to_multiple(lines + (has_padding ? 1 : 0), 8) * line_bytes;
  }

  /// Places everything in shared memory. False if it does not fit.
  [[nodiscard]] bool lay_out(Config& config) const {
    Arguments& all = config.arguments;
    int at = Barriers::bytes;
    const auto take = [&](int bytes, int alignment) {
      at = up_to_multiple(at, alignment);
      return std::exchange(at, at + bytes);
    };
    for (int s = 0; s < all.steps; ++s) {
      Step& step = all.step[s];
      const int outputs = step.blocks * step.padded;
      step.lines = take(outputs * 2, 16);
      step.factors = links_[static_cast<std::size_t>(s)].factors > 1 ? take(outputs * 4, 16) : -1;
    }
    all.y_lines = take(all.y_features * 2, 16);
    all.biases = problem_.bias ? take(last(all).blocks * last(all).padded * 4, 16) : -1;

    // Steps write to two places by turns.
    std::array<int, 2> bytes{};
    for (int s = 0; s < all.steps; ++s) {
      Step& step = all.step[s];
      step.out_group = step.in_place ? all.step[s - 1].out_group : group_bytes(all, s);
      int& place = bytes[static_cast<std::size_t>(s % 2)];
      if (!step.in_place) place = std::max(place, step.out_group * config.shape.row_groups);
    }
    const std::array<int, 2> regions = {take(bytes[0], 1024), take(bytes[1], 1024)};
    for (int s = 0; s < all.steps; ++s) {
      Step& step = all.step[s];
      step.in = s == 0 ? 0 : all.step[s - 1].out;
      step.in_group = s == 0 ? 0 : all.step[s - 1].out_group;
      step.out = step.in_place ? step.in : regions[static_cast<std::size_t>(s % 2)];
    }
    all.y_waits = all.parts > 1 || last(all).out == regions[0];
    return set_stages(config, up_to_multiple(at, 1024));
  }

  [[nodiscard]] bool set_stages(Config& config, int at) const {
    Arguments& all = config.arguments;
    const Step& first = all.step[0];
    const int boxes = first.slabs == 1 ? real_int(divided_up(first.item.blocks * first.terms, box_features))
                                       : first.item.blocks;
    int weight_bytes = 0, slabs = 1;
    for (int s = 0; s < all.steps; ++s) {
      const Step& step = all.step[s];
      weight_bytes = std::max(weight_bytes, step.item.blocks * std::min(step.slices, slab_slices) *
                                                step.item.columns * slice_terms * 2);
      slabs = std::max(slabs, step.slabs);
    }
    all.weights_in_stage = boxes * config.shape.row_groups * box_group_bytes;
    all.stage_bytes = up_to_multiple(all.weights_in_stage + weight_bytes, 1024);
    all.stages_at = at;
    // A warpgroup leaves its first slab when it has begun with the second, and all of them get their first
    // ones before any gets its second.
    const int least = slabs == 1 ? 2 : config.shape.warpgroups + 1;
    constexpr int reserved = 1024;  // of each block, by the driver
    const int room =
        (real_int(static_cast<std::int64_t>(gpu_.shared_bytes)) + reserved) / config.shape.blocks_at_once -
        reserved - at;
    all.stages = std::min(most_stages, room / all.stage_bytes);
    if (room < 0 || all.stages < least) return false;
    config.shared_bytes = at + all.stages * all.stage_bytes;
    return true;
  }

  const Problem& problem_;
  std::span<const Link> links_;
  const GpuFacts& gpu_;
  Arguments all_{};
};

double predicted(const Problem& problem, const Config& config, const GpuFacts& gpu) {
  const Tuning& tuned = tuning_of(gpu);
  const tuning::FusedWgmma& costs = tuned.fused_wgmma.costs;
  const CostTerms terms = cost_terms(problem, config, gpu);
  double microseconds = 0;
  for (std::size_t at = 0; at < terms.size(); ++at) microseconds += terms[at] * costs.microseconds[at];
  const double computing = microseconds * 1e-6 * tuned.gpu.clock / std::max(gpu.clock_hz, 1e9);
  const double memory = costs.start + problem.bytes() / gpu.memory_rate;
  return std::max(computing, memory);
}

}  // namespace

CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu) {
  const Arguments& all = config.arguments;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const int rows = config.shape.row_groups, at_once = config.shape.blocks_at_once;
  const double turns = real(divided_up(all.tiles, std::int64_t{gpu.multiprocessors} * at_once));
  double clocks = 0, rounds = 0, lines = 0, weights = 0;
  for (int s = 0; s < all.steps; ++s) {
    const Step& step = all.step[s];
    const int parts = s + 1 == all.steps ? all.parts : 1;
    const ItemShape shape = item_shape(step.item_number);
    const double items = real(step.items_of_part) * parts;
    clocks += items * step.slices * shape.blocks * clocks_of(shape.columns) * rows;
    rounds += real(divided_up(step.items_of_part, config.shape.warpgroups)) * parts * step.slabs;
    lines += real(step.blocks) * step.padded * rows;
    weights += real(step.blocks) * step.padded * step.slices * slice_terms * 2;
  }
  const double features = real(rows) / 1000;
  const double x = problem.batch == 0 ? 0 : all.x_features * features;
  const double y = real(all.y_features) * all.parts * features;
  // Blocks that share a multiprocessor take turns, and fill each other's gaps.
  const double shared = turns * at_once;
  return {1,
          shared * clocks / 1000,
          turns * rounds,
          shared * lines / 1000,
          shared * x,
          shared * y,
          shared * weights / 1e5,
          turns * (all.steps + all.parts + (all.y_waits ? 1 : 0)),
          turns};
}

std::string refusal_of(std::span<const Link> links) {
  const Product& first = links.front().product;
  if (first.d != 1 || first.c % slice_terms != 0)
    return message("needs d = 1 and c a multiple of {} in the product that reads x, not {}", slice_terms,
                   links.front().pattern.to_string());
  return {};
}

std::vector<Config> all_configs(const Problem& problem, std::span<const Link> links, const GpuFacts& gpu) {
  const Maker maker(problem, links, gpu);
  std::vector<Config> all;
  for (std::size_t index = 0; index < shapes.size(); ++index)
    for (const bool in_place : {false, true})
      for (int parts = 1; parts <= maker.chunks(); ++parts) {
        if (!maker.has_parts(parts) || (in_place && (parts > 1 || !maker.can_be_in_place()))) continue;
        std::optional<Config> config = maker.make(index, shapes[index], parts, in_place);
        if (!config) continue;
        config->seconds = predicted(problem, *config, gpu);
        all.push_back(*std::move(config));
      }
  return all;
}

std::vector<Cut> all_cuts(const Problem& problem, std::span<const std::vector<Link>> ways,
                          const GpuFacts& gpu) {
  std::vector<Cut> all;
  for (const std::vector<Link>& links : ways)
    if (refusal_of(links).empty())
      for (const Config& config : all_configs(problem, links, gpu)) all.push_back({links, config});
  return all;
}

std::optional<Cut> best_cut(const Problem& problem, std::span<const std::vector<Link>> ways,
                            const GpuFacts& gpu) {
  std::optional<Cut> best;
  for (const std::vector<Link>& links : ways)
    if (refusal_of(links).empty())
      for (const Config& config : all_configs(problem, links, gpu))
        if (!best || config.seconds < best->config.seconds) best = Cut{links, config};
  return best;
}

TensorView x_view(const Problem& problem, const Shape& shape, const void* x) {
  const MatrixShape matrix = x_matrix(problem);
  const std::int64_t features =
      is_transposed(problem.operation) ? problem.chain.rows() : problem.chain.cols();
  return {.data = x,
          .sizes = {features, std::max<std::int64_t>(problem.batch, 1), 1, 1},
          .strides = {matrix.stride, 0, 0},
          .box = {box_features, shape.row_groups * row_group_samples, 1, 1}};
}

Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                       const void* weights) {
  Arguments all = config.arguments;
  const MatrixShape y = y_matrix(problem);
  all.x = static_cast<const std::byte*>(operands.x);
  all.y = static_cast<std::byte*>(operands.y);
  all.bias = problem.bias ? operands.bias : nullptr;
  all.weights = static_cast<const std::byte*>(weights);
  all.batch = problem.batch;
  all.x_stride = x_matrix(problem).stride;
  all.y_stride = y.stride;
  const TensorView view = x_view(problem, config.shape, operands.x);
  all.x_boxes = view.fits();
  if (all.x_boxes) all.x_map = tensor_map(view);
  all.y_vectors = is_aligned(all.y, 16) && y.stride % 8 == 0 && all.y_run % 8 == 0;
  return all;
}

std::vector<ChainPart> chain_parts(const Problem& problem, std::span<const Link> links) {
  std::vector<ChainPart> parts;
  const bool transposed = is_transposed(problem.operation);
  const std::vector<WeightPlace> places = weight_places(links);
  for (std::size_t at = 0; at < links.size(); ++at) {
    const Link& link = links[at];
    ChainPart& part = parts.emplace_back(ChainPart{.first = link.factor,
                                                   .count = link.factors,
                                                   .offset = places[at].slices,
                                                   .layout = {},
                                                   .merging = {},
                                                   .exponents = places[at].exponents});
    const SliceOrder order = order_of(links, link);
    if (link.factors == 1) {
      part.layout = order.layout(problem.dtype, transposed);
      continue;
    }
    const auto factors = std::span(problem.chain.factors()).subspan(link.factor, link.factors);
    part.merging = merge_task(factors, problem.dtype, transposed);
    part.merging.slices = order;
  }
  return parts;
}

PackedOrder packed_order(const Problem& problem, std::span<const Link> links) {
  PackedOrder order{.family = "fused_wgmma", .numbers = {is_transposed(problem.operation)}, .bytes = 0};
  std::size_t number = 1;
  for (const Link& link : links) order.numbers[number++] = static_cast<std::int64_t>(link.factors);
  order.bytes = weight_places(links).back().end;
  return order;
}

}  // namespace kronsparse::cuda::fused_wgmma
