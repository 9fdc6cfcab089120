// The kernel `gradient-wgmma`: the choice of a config, its arguments and the cost model.
#include <algorithm>
#include <cmath>

#include "cuda/gradient/mma/search.hpp"
#include "cuda/gradient/wgmma/search.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

/// A block's part of the batch is at least this long.
constexpr std::int64_t kLeastSplit = 256;

double real(std::int64_t value) { return static_cast<double>(value); }

struct Views {
  TensorView g, x;

  [[nodiscard]] bool strides_fit() const { return g.strides_fit() && x.strides_fit(); }
  [[nodiscard]] bool fit() const { return g.fits() && x.fits(); }
};

Views views_of(const Product& p, const GradientWgmmaShape& shape, const void* g, const void* x) {
  const auto view = [&](const void* data, std::int64_t rows, int tile_rows, std::int64_t sample,
                        std::int64_t feature) {
    if (shape.octets() > 1)
      return TensorView{.data = data,
                        .sizes = {p.d, rows, p.a, p.batch},
                        .strides = {p.d, rows * p.d, sample},
                        .box = {shape.block_j, tile_rows, 1, shape.stage_samples()}};
    if (shape.source == GradientSource::columns)
      return TensorView{.data = data,
                        .sizes = {p.batch, p.d, rows, p.a},
                        .strides = {feature, p.d * feature, rows * p.d * feature},
                        .box = {kGradientBox, 1, kGradientBox, 1}};
    return TensorView{.data = data,
                      .sizes = {rows * p.d, p.a, p.batch, 1},
                      .strides = {rows * p.d, sample, 0},
                      .box = {kGradientBox, 1, shape.stage_samples(), 1}};
  };
  return {view(g, p.b, 64, p.y_sample, p.y_feature), view(x, p.c, shape.n, p.x_sample, p.x_feature)};
}

/// Blocks that share a multiprocessor, by the registers of the kernel.
int most_residents(const GradientWgmmaConfig& config) {
  return config.shape().is_light() ? 65536 / 80 / config.threads() : 1;
}

/// Chooses as many stages as `budget` bytes of shared memory hold; false if these are too few.
bool fit_stages(GradientWgmmaConfig& config, std::int64_t budget) {
  constexpr int barrier_bytes = 24, most_stages = 6, most_raw = 4;
  const GradientWgmmaShape& shape = config.shape();
  const int stage = shape.operand_bytes(config.tile_m()) + shape.operand_bytes(shape.n);
  const int raw = shape.raw_bytes(config.tile_m()) + shape.raw_bytes(shape.n);
  const auto bytes = [&] {
    return config.stages * stage + config.raw_stages * raw +
           barrier_bytes * std::max(config.stages, config.raw_stages);
  };
  config.stages = 2;
  config.raw_stages = shape.is_sorted() ? 2 : 0;
  const auto grow = [&](int& count, int most) {
    while (count < most) {
      ++count;
      if (bytes() > budget) {
        --count;
        return;
      }
    }
  };
  grow(config.raw_stages, shape.is_sorted() ? 3 : 0);  // memory is further away than the sorting
  grow(config.stages, shape.is_sorted() ? 3 : most_stages);
  grow(config.raw_stages, shape.is_sorted() ? most_raw : 0);
  config.shared_bytes = std::max(bytes(), config.tile_m() * config.out_pitch());
  return config.shared_bytes <= budget && (shape.is_sorted() || config.stages >= 3);
}

/// Seconds of a run: of its blocks, of L2 or of memory, whichever is slowest.
double predict(const Product& p, const GradientWgmmaConfig& config, const GpuFacts& gpu, int resident) {
  const tuning::GradientWgmma& costs = tuning_of(gpu).gradient_wgmma.costs;
  const double clock = std::max(gpu.clock_hz, 1e9);
  const GradientWgmmaShape& shape = config.shape();

  const double blocks = real(config.blocks(p.a));
  const double waves = std::ceil(blocks / (config.splits * clusters_at_once(gpu, resident, config.splits)));
  const double sharing = std::min<double>(resident, std::ceil(blocks / std::max(gpu.multiprocessors, 1)));

  const double rows = config.tile_m() + shape.n, samples = shape.stage_samples();
  const double copied = rows * shape.block_j * 2 * samples;
  const double read = config.warpgroups * shape.products * (64 + shape.n) * 2 * samples;
  const double in_shared = (shape.is_sorted() ? copied / costs.sorted : 0) + (copied + read) / costs.shared;
  const double multiplying =
      config.warpgroups * shape.products * 64.0 * shape.n * samples / costs.product_rate;
  const double stage =
      std::max({sharing * std::max({in_shared, multiplying, copied / costs.taken_in}), costs.stage});
  const double storing = costs.storing + sharing * config.tile_m() * config.out_pitch() / costs.stored;
  const double steps = real(quotient_up(config.split_samples, shape.stage_samples()));
  const double in_blocks = waves * (steps * stage + storing) / clock;

  const double sample_bytes = real(p.batch) * real(p.a) * real(p.d) * 2;
  const double memory = costs.memory * sample_bytes * real(p.b + p.c) / gpu.memory_rate;
  const double l2 = sample_bytes * (real(config.l_tiles * p.b) + real(config.k_tiles * p.c)) /
                    (costs.l2_rate * gpu.memory_rate * l2_per_byte(gpu));
  return costs.start + std::max({in_blocks, l2, memory}) + costs.mixed * (in_blocks + l2 + memory);
}

}  // namespace

std::vector<GradientWgmmaConfig> gradient_wgmma_configs(const Problem& problem, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  const bool first = problem.layout == Layout::batch_first;
  const auto shared = static_cast<std::int64_t>(gpu.shared_bytes);
  const std::int64_t least_splits = std::max<std::int64_t>(quotient_up(p.batch, kGradientMaxSum), 1);
  const std::int64_t most_splits =
      std::min<std::int64_t>(std::max(p.batch / kLeastSplit, least_splits), largest_cluster(gpu));

  std::vector<GradientWgmmaConfig> all;
  for (std::size_t index = 0; index < gradient_wgmma_shapes.size(); ++index) {
    const GradientWgmmaShape& shape = gradient_wgmma_shapes[index];
    const bool fits = first ? shape.source != GradientSource::columns &&
                                  (shape.octets() > 1 ? p.d % shape.block_j == 0 : shape.block_j == p.d)
                            : shape.source == GradientSource::columns;
    if (!fits || !views_of(p, shape, nullptr, nullptr).strides_fit()) continue;
    std::optional<GradientWgmmaConfig> best;
    const auto consider = [&](GradientWgmmaConfig config, int resident) {
      const std::int64_t stage = shape.stage_samples();
      for (std::int64_t splits = least_splits; splits <= most_splits; ++splits) {
        config.splits = static_cast<int>(splits);
        config.split_samples = quotient_up(quotient_up(p.batch, splits), stage) * stage;
        config.seconds = predict(p, config, gpu, resident);
        if (!best || config.seconds < best->seconds) best = config;
      }
    };
    for (int warpgroups = shape.splits_j() ? 2 : 1; warpgroups <= 2; ++warpgroups) {
      GradientWgmmaConfig config;
      config.shape_index = index;
      config.warpgroups = warpgroups;
      config.j_groups = p.d / shape.block_j;
      config.k_tiles = quotient_up(p.b, std::int64_t{config.tile_m()});
      config.l_tiles = quotient_up(p.c, std::int64_t{shape.n});
      for (int resident = most_residents(config); resident >= 1; --resident)
        if (fit_stages(config, resident == 1 ? shared : (shared + 1024) / resident - 1024))
          consider(config, resident);
    }
    if (best) all.push_back(*best);
  }
  return all;
}

std::optional<GradientWgmmaConfig> gradient_wgmma_config(const Problem& problem, const GpuFacts& gpu) {
  const std::vector<GradientWgmmaConfig> all = gradient_wgmma_configs(problem, gpu);
  const auto best = std::ranges::min_element(all, {}, &GradientWgmmaConfig::seconds);
  return best == all.end() ? std::nullopt : std::optional(*best);
}

std::optional<GradientWgmmaArguments> gradient_wgmma_arguments(const Problem& problem,
                                                               const GradientWgmmaConfig& config,
                                                               const Operands& operands) {
  const Product p = product_of(problem);
  const GradientWgmmaShape& shape = config.shape();
  const Views views = views_of(p, shape, operands.g, operands.x);
  if (!views.fit()) return std::nullopt;
  return GradientWgmmaArguments{.g_map = tensor_map(views.g),
                                .x_map = tensor_map(views.x),
                                .out = {.y = static_cast<std::byte*>(operands.y),
                                        .b = p.b,
                                        .c = p.c,
                                        .d = p.d,
                                        .tile_k = config.tile_m(),
                                        .tile_l = shape.n,
                                        .block_j = shape.block_j,
                                        .splits = static_cast<std::uint32_t>(config.splits),
                                        .pitch = config.out_pitch(),
                                        .vectors = (shape.block_j != 1 || p.d == 1) && p.c * p.d % 4 == 0 &&
                                                   reinterpret_cast<std::uintptr_t>(operands.y) % 8 == 0},
                                .tiles = GradientTiles::of(config, p.batch),
                                .warpgroups = config.warpgroups,
                                .stages = config.stages,
                                .raw_stages = config.raw_stages,
                                .overlaps = false};
}

}  // namespace kronsparse::cuda
