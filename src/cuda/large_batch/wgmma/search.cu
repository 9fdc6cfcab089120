// The kernel `wgmma`: the choice of a config, its arguments and the cost model.
#include <algorithm>
#include <cmath>
#include <span>

#include "cuda/host/alignment.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/wgmma/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

int words_of(const WgmmaShape& shape, int word_products) {
  return shape.products / word_products * (shape.split_words ? 2 : 1);
}

/// The shape with as many words as needed that wastes the fewest outputs; of equal ones the widest.
std::size_t choose_shape(std::span<const WgmmaShape> shapes, XForm form, std::int64_t words,
                         int word_products, std::int64_t b) {
  int block_words = 1 << 20;
  for (const WgmmaShape& shape : shapes)
    if (shape.form == form && words_of(shape, word_products) >= words)
      block_words = std::min(block_words, words_of(shape, word_products));
  std::size_t best = shapes.size();
  for (std::size_t index = 0; index < shapes.size(); ++index) {
    const WgmmaShape& shape = shapes[index];
    if (shape.form != form || words_of(shape, word_products) != block_words) continue;
    const auto waste = [&](const WgmmaShape& one) { return divided_up(b, one.n) * one.n; };
    if (best == shapes.size() || waste(shape) < waste(shapes[best])) best = index;
  }
  return best;
}

/// Computes the sizes in shared memory for this many stages.
void lay_out(WgmmaConfig& config, int element) {
  constexpr int barriers = 256;
  const WgmmaShape& shape = config.shape;
  const XTile x = x_tile(shape, element);
  int out_bytes = 0;
  if (shape.form == XForm::columns) {
    out_bytes = 2 * 32 * (64 * element + 16);
  } else {
    const bool whole = shape.form == XForm::rows || shape.form == XForm::lines;
    const int row = shape.n * (whole ? shape.products * 2 : config.words * 4);
    // The padding makes rows that one store instruction writes begin in different banks.
    const int padding = whole ? 16 : config.words == 2 ? 64 : 32;
    config.out_pitch_bytes = row + padding;
    out_bytes = (shape.split_words ? 4 : 8) * 16 * config.out_pitch_bytes;
  }
  config.x_stage_bytes = shape.sub_chunks * x.bytes;
  config.w_chunk_bytes = static_cast<int>(config.order.chunk_elements()) * element;
  config.w_stage_bytes = config.resident ? 0 : shape.sub_chunks * config.w_chunk_bytes;
  const std::int64_t weights = config.resident ? config.order.group_elements() * element
                                               : std::int64_t{config.stages} * config.w_stage_bytes;
  config.w_region_offset = barriers;
  const std::int64_t total =
      barriers + weights + std::int64_t{config.stages} * config.x_stage_bytes + out_bytes;
  config.shared_bytes = static_cast<int>(std::min<std::int64_t>(total, 1 << 30));
  config.stages_offset = static_cast<int>(std::min<std::int64_t>(barriers + weights, 1 << 30));
  config.out_offset = config.stages_offset + config.stages * config.x_stage_bytes;
}

/// Which block computes which tiles.
void share_out(WgmmaConfig& config, const Product& p, const GpuFacts& gpu, int element) {
  const tuning::Wgmma& costs = tuning_of(gpu).wgmma.costs;
  const std::int64_t n_tiles = std::max<std::int64_t>(divided_up(p.batch, config.tile_n), 1);
  const std::int64_t groups = config.order.groups();
  config.blocks = static_cast<int>(std::min<std::int64_t>(groups * n_tiles, gpu.multiprocessors));
  if (config.resident) {
    const std::int64_t per_group = config.blocks / groups;
    // A few idle blocks cost less than groups that work at different samples.
    if (per_group > 0 &&
        static_cast<double>(per_group * groups * 100) >= costs.least_busy_percent * config.blocks) {
      config.blocks_per_group = static_cast<int>(per_group);
      config.blocks = static_cast<int>(per_group * groups);
    }
  } else if (config.shape.form != XForm::columns) {
    const double l2_share = costs.bundle_l2 * static_cast<double>(gpu.l2_bytes);
    const double bytes = static_cast<double>(config.order.group_elements() * config.order.k_tiles * element);
    config.bundle_groups =
        static_cast<int>(std::clamp(l2_share / bytes, 1.0, static_cast<double>(config.order.j_groups)));
  }
}

/// The cost of runs.
double share_of_runs(const tuning::Wgmma& costs, std::int64_t d) {
  if (d % 32 == 0) return costs.runs_collide;
  if (d > 16 && d % 16 == 8) return costs.runs_of_half_sectors;
  return d == 16 ? costs.runs_of_16_j : 1.0;
}

}  // namespace

namespace {

/// Bytes of x that are copied at once, from address `x`.
int x_copy_bytes(const Product& p, const WgmmaConfig& config, int element, std::uintptr_t x) {
  if (config.shape.form == XForm::columns) return common_alignment(element, x, p.x_feature * element);
  if (config.shape.form == XForm::planes && p.d * element % 4 != 0) return element;
  // Units of 16 bytes hold some j of one term, or whole terms, which then are contiguous.
  const std::int64_t block = p.a == 1 ? 0 : p.c * p.d * element;
  const bool whole_terms = config.order.j_count == p.d;
  const int bytes = common_alignment(element, x, p.x_sample * element, whole_terms ? block : p.d * element);
  return !whole_terms && config.words % 4 != 0 ? std::min(bytes, 4) : bytes;
}

/// How much longer a product takes if x is copied in small pieces.
double share_of_small_copies(const tuning::Wgmma& costs, int bytes, bool half, bool is_elementwise) {
  if (bytes >= 16) return 1;
  if (!half) return costs.small_copies_of_floats;
  return bytes == 4 || is_elementwise ? costs.small_copies_of_4_bytes : costs.small_copies;
}

}  // namespace

WgmmaConfig wgmma_config(const Problem& problem, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  const bool half = problem.dtype != DType::f32;
  const int element = half ? 2 : 4;
  WgmmaConfig config;
  config.arithmetic = arithmetic_of(problem);
  const XForm form = problem.layout == Layout::batch_last         ? XForm::columns
                     : half && p.d == 1                           ? XForm::rows
                     : half && (p.d == 3 || p.d == 5 || p.d == 7) ? XForm::lines
                                                                  : XForm::planes;
  const int word_products = half && form == XForm::planes ? 2 : 1;
  // 32 bytes of j are a whole sector of memory. With d = 24, 40, ... every other row of j begins in the
  // middle of a sector, and the last run of a row is half empty. Runs of 16 bytes leave room for twice as
  // many outputs.
  const std::int64_t max_words = half && p.d > 8 && p.d % 16 == 8 ? 4 : 8;
  const std::int64_t d_words = form == XForm::columns ? 1 : divided_up(p.d, word_products);
  const std::int64_t words = std::min(d_words, max_words);

  const std::span<const WgmmaShape> shapes =
      half ? std::span<const WgmmaShape>(half_shapes) : std::span<const WgmmaShape>(float_shapes);
  config.shape_index = choose_shape(shapes, form, words, word_products, p.b);
  config.shape = shapes[config.shape_index];
  config.tile_n = x_tile(config.shape, element).samples;
  config.words = words_of(config.shape, word_products);
  const int j_count = config.words * word_products;
  const std::int64_t sub_chunks = config.shape.sub_chunks;
  config.order = {.a = p.a,
                  .b = p.b,
                  .c = p.c,
                  .d = p.d,
                  .j_groups = divided_up(p.d, j_count),
                  .k_tiles = divided_up(p.b, config.shape.n),
                  .chunks = divided_up(divided_up(p.c, 16), sub_chunks) * sub_chunks,
                  .j_count = j_count,
                  .tile_k = config.shape.n,
                  .parts = half ? 1 : 2};

  // Weights are resident if the ring still has enough stages, and there are enough samples to use them for.
  for (const bool resident : {true, false}) {
    config.resident = resident;
    for (config.stages = kMaxStages; config.stages >= (resident ? 3 : 2); --config.stages) {
      lay_out(config, element);
      if (static_cast<std::size_t>(config.shared_bytes) <= gpu.shared_bytes) {
        share_out(config, p, gpu, element);
        return config;
      }
    }
  }
  return config;
}

WgmmaArguments wgmma_arguments(const Problem& problem, const WgmmaConfig& config, const Operands& operands,
                               const void* weights) {
  const Product p = product_of(problem);
  const std::int64_t bytes = problem.dtype == DType::f32 ? 4 : 2;
  const std::int64_t n_tiles = std::max<std::int64_t>(divided_up(p.batch, config.tile_n), 1);
  const auto x = reinterpret_cast<std::uintptr_t>(operands.x);
  const auto y = reinterpret_cast<std::uintptr_t>(operands.y);
  const int least = static_cast<int>(bytes);
  const int x_copy = x_copy_bytes(p, config, least, x);
  int y_store = 0;
  if (config.shape.form == XForm::columns) {
    y_store = common_alignment(least, y, p.y_feature * bytes);
  } else {
    const std::int64_t y_block = p.a == 1 ? 0 : p.b * p.d * bytes;
    y_store = config.order.j_groups == 1 ? common_alignment(least, y, p.y_sample * bytes, y_block)
                                         : common_alignment(least, y, p.y_sample * bytes, p.d * bytes);
    // Pairs of j that cross a row of an odd d are stored one by one.
    if (bytes == 2 && config.shape.form == XForm::planes && p.d % 2 == 1) y_store = 2;
  }
  const WgmmaOrder& order = config.order;
  const auto divisor = [](std::int64_t by) { return Divisor(static_cast<std::uint32_t>(by)); };
  const std::int64_t last_bundle = (order.j_groups - 1) % config.bundle_groups + 1;
  return {.x = static_cast<const std::byte*>(operands.x),
          .y = static_cast<std::byte*>(operands.y),
          .bias = operands.bias,
          .weights = static_cast<const std::byte*>(weights),
          .batch = p.batch,
          .b = p.b,
          .c = p.c,
          .d = p.d,
          .x_sample = p.x_sample,
          .x_feature = p.x_feature,
          .y_sample = p.y_sample,
          .y_feature = p.y_feature,
          .order = config.order,
          .x_row_step = (config.shape.form == XForm::columns ? p.d * p.x_feature : p.x_sample) * bytes,
          .x_chunk_step = 16 * p.d * p.x_feature * bytes,
          .n_tiles = divisor(n_tiles),
          .k_tiles = divisor(order.k_tiles),
          .j_groups = divisor(order.j_groups),
          .tiles = p.batch == 0 ? 0 : static_cast<std::uint32_t>(order.groups() * n_tiles),
          .blocks_per_group = static_cast<std::uint32_t>(config.blocks_per_group),
          .bundle_groups = static_cast<std::uint32_t>(config.bundle_groups),
          .i_tiles = divisor(n_tiles * order.j_groups * order.k_tiles),
          .bundle_tiles = divisor(n_tiles * config.bundle_groups * order.k_tiles),
          .bundle_weights = divisor(config.bundle_groups * order.k_tiles),
          .last_bundle_weights = divisor(last_bundle * order.k_tiles),
          .chunks = static_cast<int>(config.order.chunks),
          .stages = config.stages,
          .x_stage_bytes = config.x_stage_bytes,
          .w_chunk_bytes = config.w_chunk_bytes,
          .w_stage_bytes = config.w_stage_bytes,
          .w_region_offset = config.w_region_offset,
          .stages_offset = config.stages_offset,
          .out_offset = config.out_offset,
          .out_pitch_bytes = config.out_pitch_bytes,
          .x_copy = x_copy,
          .y_store = y_store,
          .activation = problem.activation};
}

double wgmma_seconds(const Problem& problem, const WgmmaConfig& config, const GpuFacts& gpu) {
  // The prediction is a sum, because the parts overlap only partly: a fixed time, a time per tile of a block
  // (the epilogue), and shares of the times that memory, L2 and tensor cores need at their peaks.
  const tuning::Wgmma& costs = tuning_of(gpu).wgmma.costs;

  const Product p = product_of(problem);
  const bool half = problem.dtype != DType::f32;
  const bool first = problem.layout == Layout::batch_first;
  const tuning::Wgmma::Shares& shares =
      half ? (first ? costs.half_first : costs.half_last) : (first ? costs.float_first : costs.float_last);
  const double element = half ? 2 : 4;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double tiles = real(config.order.groups() * divided_up(p.batch, config.tile_n));
  const double rounds = std::ceil(tiles / std::max(config.blocks, 1));
  const double terms = real(config.order.chunks * 16);

  const double memory = problem.bytes() / gpu.memory_rate;
  // L2 delivers x for every tile, and the weights for every tile unless they are resident.
  const double x_elements = tiles * terms * config.order.j_count * config.tile_n;
  const double w_elements = config.resident ? 0.0 : tiles * real(config.order.group_elements());
  // A block gets its share of L2's rate, and no more if there are few blocks.
  const double busy = std::max(config.blocks, 1) / real(gpu.multiprocessors);
  const double l2_rate = costs.l2_rate * l2_per_byte(gpu) * gpu.memory_rate * std::min(busy, 1.0);
  double l2 = (x_elements + w_elements) * element / l2_rate;
  // Pairs of j that cross a row of an odd d are copied element by element.
  const bool elementwise = config.shape.form == XForm::planes && half && p.d % 2 == 1;
  if (elementwise) l2 *= costs.element_wise;
  if (half && first && rounds > 1) l2 *= share_of_runs(costs, p.d);
  const double products = config.arithmetic == Arithmetic::tf32x3 ? 3 : 1;
  const double tensor = rounds * terms * config.order.j_count * config.tile_n * config.shape.n * products /
                        wgmma_per_clock(half) / gpu.clock_hz;
  // If a block has only one tile, that tile has nothing to overlap with.
  const double l2_share = rounds > 1 ? shares.l2 : std::max(shares.l2, 1.0);
  const int copied = x_copy_bytes(p, config, half ? 2 : 4, 0);
  return shares.start +
         share_of_small_copies(costs, copied, half, elementwise) *
             (rounds * shares.per_tile + shares.memory * memory + l2_share * l2 + shares.tensor * tensor);
}

}  // namespace kronsparse::cuda
