#include <algorithm>
#include <cmath>

#include "cuda/narrow_config.hpp"
#include "cuda/tensor_map.hpp"

namespace kronsparse::cuda::narrow {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;
constexpr std::int64_t max_slabs = std::int64_t{1} << 20;

/// All j of a block are all there are, and terms and j lie together; else 8 or 16 j of each term do.
TensorView x_view(const Product& p, const Cut& cut, const void* x) {
  if (cut.j_groups == 1)
    return {.data = x,
            .sizes = {p.c * p.d, p.a, p.batch, 1},
            .strides = {p.c * p.d, p.x_sample, 0},
            .box = {box_row_bytes / 2, 1, cut.rows, 1}};
  return {.data = x,
          .sizes = {p.d, p.c, p.a, p.batch},
          .strides = {p.d, p.c * p.d, p.x_sample},
          .box = {cut.shape.block_j, cut.shape.box_terms(), 1, cut.rows},
          .swaps_halves = cut.shape.block_j == 16};
}

/// Clusters of so many blocks leave some multiprocessors of an H200 without work.
double usable_share(int cluster) { return cluster >= 4 ? 120.0 / 132 : 1.0; }

/// Seconds of a run, by what is brought to a multiprocessor and what its blocks do after that. Rates were
/// measured on an H200, one thing at a time; how they add up was not.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  constexpr double clock = 1.7e9;
  constexpr double start = 2.0e-6;          // of a kernel that does little, and the way of its first bytes
  constexpr double copy_rate = 42 * clock;  // to each multiprocessor, from L2
  constexpr double request_clocks = 32;
  constexpr double element_rate = 1 * clock;  // where threads copy
  constexpr double exchange_clocks = 670, exchange_rate = 18.4 * clock;
  constexpr double shared_memory_rate = 128 * clock;

  const double blocks = static_cast<double>(blocks_of(cut, p));
  const double at_once = std::floor(facts.multiprocessors * usable_share(cut.splits));
  const double rounds = std::ceil(blocks / std::max(at_once, 1.0));

  const double w_bytes = static_cast<double>(cut.slabs) * cut.shape.slab_weight_bytes();
  const double x_bytes = static_cast<double>(cut.slabs) * cut.slab_x_bytes();
  const bool boxes = x_view(p, cut, nullptr).strides_fit();
  // Of sectors of 32 bytes in L2, rows of 8 j use half.
  const double used = cut.j_groups > 1 && cut.shape.block_j == 8 ? 0.5 : 1.0;
  const double x_rate = !boxes ? element_rate : used * copy_rate;
  const double from_memory = blocks * w_bytes / facts.memory_rate;
  const double to_blocks = rounds * (w_bytes / copy_rate + x_bytes / x_rate);
  // One thread asks for everything.
  const double asking = rounds * (cut.fillings() + static_cast<double>(cut.slabs) * cut.shape.slab_boxes()) *
                        request_clocks / clock;
  const double bringing = std::max({from_memory, to_blocks, asking}) + 0.2 * std::min(from_memory, to_blocks);

  // A warpgroup waits for loads and products of each slab; what it does is hidden but for the last.
  const double slab_seconds =
      (cut.shape.block_j == 1 ? 130.0 : 130.0 + 70.0 * cut.shape.slab_boxes()) / clock;
  const double multiplying = rounds * cut.slabs * slab_seconds / cut.warpgroups;
  const double body = std::max(bringing, multiplying) + cut.stage_slabs * slab_seconds;

  const double sum_bytes = static_cast<double>(cut.rows) * cut.shape.sample_bytes();
  const double adding = 0.2e-6 + (2.0 * cut.warpgroups + 2) * sum_bytes / shared_memory_rate;
  const double exchange =
      cut.splits == 1 ? 0 : exchange_clocks / clock + (cut.splits - 1) * cut.share_bytes() / exchange_rate;
  return start + body + rounds * (adding + exchange);
}

/// Visits the ways to complete a cut: warpgroups, and stages that fill a multiprocessor or half of it.
template <class Visitor>
void for_each_completion(Cut cut, const GpuFacts& facts, Visitor&& visit) {
  for (cut.warpgroups = 1; cut.warpgroups <= cut.shape.max_warpgroups(); ++cut.warpgroups)
    for (cut.stage_slabs = 1; cut.stage_slabs <= 4; cut.stage_slabs *= 2) {
      if (cut.warpgroups > 1 && cut.fillings() < cut.warpgroups) continue;
      if (cut.stage_slabs > 1 &&
          (2 * cut.stage_slabs > cut.slabs || cut.stage_slabs * cut.slab_x_bytes() > (32 << 10)))
        continue;
      int before = 0;
      for (const int resident : {2, 1}) {
        const auto room = (static_cast<int>(facts.shared_bytes) + 1024) / resident - 1024;
        const int stage_bytes = cut.stage_slabs * (cut.slab_x_bytes() + cut.shape.slab_weight_bytes());
        cut.stages = std::min(cut.fillings(), room / stage_bytes);
        while (cut.stages > before && shared_layout(cut).total > room) --cut.stages;
        // A stage that is filled again goes to the same warpgroup: another could take a filling that has
        // not come yet for one that has been used.
        if (cut.stages < cut.fillings()) cut.stages -= cut.stages % cut.warpgroups;
        if (cut.stages < std::min(cut.fillings(), std::max(3, 2 * cut.warpgroups)) || cut.stages == before)
          continue;
        before = cut.stages;
        for (cut.ahead = 0; cut.ahead <= (cut.fillings() > cut.stages ? 1 : 0); ++cut.ahead) visit(cut);
        cut.ahead = 0;
      }
    }
}

template <class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, Visitor&& visit) {
  for (const Shape& shape : shapes) {
    if (shape.block_j != p.d && (shape.block_j < 8 || p.d % shape.block_j != 0)) continue;
    const std::int64_t all_slabs = divided_up(p.c, shape.slab_terms());
    const std::int64_t j_groups = p.d / shape.block_j;
    Cut cut;
    cut.shape = shape;
    cut.rows = static_cast<int>(divided_up(p.batch, 8) * 8);
    for (cut.splits = 1; cut.splits <= 8; cut.splits *= 2) {
      const std::int64_t slabs = divided_up(all_slabs, cut.splits);
      const std::int64_t k_blocks = divided_up(p.b, shape.outputs);
      if (slabs > max_slabs || (cut.splits - 1) * slabs >= all_slabs) continue;
      if (static_cast<double>(p.a) * static_cast<double>(j_groups) * static_cast<double>(k_blocks) *
              cut.splits >
          static_cast<double>(max_blocks))
        continue;
      cut.slabs = static_cast<int>(slabs);
      cut.k_blocks = static_cast<int>(k_blocks);
      cut.j_groups = static_cast<int>(j_groups);
      for_each_completion(cut, facts, visit);
    }
  }
}

}  // namespace

std::vector<Choice> choices(const Problem& problem, const GpuFacts& facts) {
  Product p = product_of(problem);
  p.batch = std::max<std::int64_t>(p.batch, 1);  // a plan for nothing is as good as one for something
  std::vector<Choice> all;
  for_each_cut(p, facts, [&](const Cut& cut) { all.push_back({cut, predict_cut(cut, p, facts)}); });
  return all;
}

Choice choose(const Problem& problem, const GpuFacts& facts) {
  Choice best;
  for (const Choice& choice : choices(problem, facts))
    if (choice.seconds < best.seconds) best = choice;
  return best;
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights,
                       const Operands& operands) {
  const Product p = product_of(problem);
  const TensorView x = x_view(p, cut, operands.x);
  // Neighbours in y: all features, or the block's j of each output.
  const bool fours = (cut.j_groups > 1 || p.b * p.d % 4 == 0) && (p.batch == 1 || p.y_sample % 4 == 0) &&
                     reinterpret_cast<std::uintptr_t>(operands.y) % 8 == 0;
  return {.x_map = x.fits() ? tensor_map(x) : CUtensorMap{},
          .weights = static_cast<const std::byte*>(weights),
          .x = operands.x,
          .y = operands.y,
          .bias = operands.bias,
          .cut = cut,
          .boxes = x.fits(),
          .swizzle = cut.j_groups == 1         ? 7
                     : cut.shape.block_j == 16 ? 1
                                               : 0,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .x_sample = p.x_sample,
          .y_sample = p.y_sample,
          .y_vectors = fours,
          .splits = Divisor(static_cast<std::uint32_t>(cut.splits)),
          .k_blocks = Divisor(static_cast<std::uint32_t>(cut.k_blocks)),
          .j_groups = Divisor(static_cast<std::uint32_t>(cut.j_groups))};
}

}  // namespace kronsparse::cuda::narrow
