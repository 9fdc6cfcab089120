// The kernel `gradient-mma`: the choice of a config, its arguments and the cost model.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "cuda/gradient/mma/search.hpp"
#include "cuda/host/alignment.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

/// A block's part of the batch is at least this long.
constexpr std::int64_t kLeastSplit = 128;
constexpr std::int64_t kElementBytes = 2;

double real(std::int64_t value) { return static_cast<double>(value); }

/// The smallest number >= value whose remainder modulo 128 is `rest`.
int with_rest_of_128(int value, int rest) { return value + ((rest - value) % 128 + 128) % 128; }

GradientForm form_of(const Problem& problem) {
  if (problem.layout == Layout::batch_last) return GradientForm::columns;
  return problem.pattern().d == 1 ? GradientForm::rows : GradientForm::runs;
}

/// Whole sectors of 32 bytes, or all of d if that is contiguous and a block has enough warps.
int block_j_of(GradientForm form, std::int64_t d) {
  if (form != GradientForm::runs) return 1;
  return d <= 16 || d == 24 ? static_cast<int>(d) : 16;
}

std::size_t shape_of(GradientForm form, int block_j, const Product& p) {
  const int vector = std::min(8, 1 << std::countr_zero(static_cast<unsigned>(block_j)));
  const auto fits = [&](const GradientShape& shape) {
    return shape.form == form && shape.vector == vector && (shape.row_j == 0 || shape.row_j == block_j) &&
           std::min(p.b, p.c) >= shape.least_block;
  };
  std::size_t best = 0;
  while (!fits(gradient_shapes[best])) ++best;
  return best;
}

/// Computes the sizes in shared memory from the rest of the config.
void lay_out(GradientConfig& config) {
  const auto pitch = [&](int rows) {
    const int run_bytes = rows * config.block_j * static_cast<int>(kElementBytes);
    switch (config.shape.form) {
      case GradientForm::runs:
        return with_rest_of_128(run_bytes, 32);  // four lanes read 32 bytes each, of four samples
      case GradientForm::rows:
        return with_rest_of_128(run_bytes, 16);  // eight samples of 16 bytes
      case GradientForm::columns:
        break;
    }
    return kGradientColumnSamples * static_cast<int>(kElementBytes);
  };
  const bool columns = config.shape.form == GradientForm::columns;
  config.g_pitch = pitch(config.tile_m());
  config.x_pitch = pitch(config.tile_n());
  config.x_offset = with_rest_of_128(config.g_pitch * (columns ? config.tile_m() : config.stage_samples), 0);
  config.stage_bytes =
      config.x_offset +
      with_rest_of_128(config.x_pitch * (columns ? config.tile_n() : config.stage_samples), 0);
  config.out_pitch = config.tile_n() * config.block_j * 4 + 16;
  config.shared_bytes =
      std::max(config.stages * config.stage_bytes, with_rest_of_128(config.tile_m() * config.out_pitch, 0));
}

/// Chooses stages as large as `budget` bytes of shared memory allow.
bool fit_stages(GradientConfig& config, std::int64_t budget) {
  const bool columns = config.shape.form == GradientForm::columns;
  for (const int samples : {64, 32, 16})
    for (const int stages : {4, 3}) {
      if (columns && samples != kGradientColumnSamples) continue;
      config.stage_samples = samples;
      config.stages = stages;
      lay_out(config);
      // Four stages are better than long ones.
      if (config.shared_bytes <= budget && (stages == 4 || columns || samples == 16)) return true;
    }
  return false;
}

/// Bytes of a copy, as far as strides and address allow.
int width_of(const GradientConfig& config, const Product& p, std::int64_t rows, std::int64_t sample,
             std::int64_t feature, const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (config.shape.form == GradientForm::columns)
    return common_alignment(kElementBytes, address, feature * kElementBytes);
  const std::int64_t run = config.block_j == p.d ? rows * p.d : p.d;
  return common_alignment(kElementBytes, address, sample * kElementBytes, run * kElementBytes);
}

/// Clocks of a multiprocessor for a product of 16 x 8 x 16.
double product_clocks(const tuning::GradientMma& costs, const GradientConfig& config) {
  if (config.shape.form != GradientForm::runs) return costs.one_j;
  const bool of_16_j = config.block_j == 16;
  switch (config.shape.vector) {
    case 8:
      return costs.by_8;
    case 4:
      return of_16_j ? costs.by_4_of_16_j : costs.by_4;
    case 2:
      return of_16_j ? costs.by_2_of_16_j : costs.by_2;
    default:
      return costs.by_1;
  }
}

/// Blocks that fit on a multiprocessor. A kernel takes most of the registers that this many warps can have.
int blocks_per_multiprocessor(const GradientConfig& config, const GpuFacts& gpu) {
  constexpr std::int64_t reserved = 1024;  // shared memory that the system takes for each block
  const std::int64_t memory = static_cast<std::int64_t>(gpu.shared_bytes) + reserved;
  return static_cast<int>(std::clamp<std::int64_t>(memory / (config.shared_bytes + reserved), 1,
                                                   std::max(1, config.shape.threads / config.threads())));
}

/// The cheapest config with blocks of so many j; its shared memory is kNoGradientConfig where the GPU has
/// room for none.
GradientConfig config_with(int block_j, const Problem& problem, const GpuFacts& gpu);

}  // namespace

int largest_cluster(const GpuFacts& gpu) {
  if (!gpu.has_clusters()) return 1;
  const bool large = gpu.compute_capability == 90 || gpu.compute_capability == 100;
  return large && gpu.multiprocessors >= 100 ? 16 : 8;
}

double clusters_at_once(const GpuFacts& gpu, int resident, int cluster_blocks) {
  const tuning::FittedGpu& fitted = tuning_of(gpu).gpu;
  const int multiprocessors = (cluster_blocks + resident - 1) / resident;
  const double places = fitted.clusters_at_once.at(static_cast<std::size_t>(multiprocessors) - 1);
  const double together = std::floor(real(std::int64_t{multiprocessors} * resident) / cluster_blocks);
  return std::max(1.0,
                  std::floor(places * together * std::max(gpu.multiprocessors, 1) / fitted.multiprocessors));
}

GradientConfig gradient_config(const Problem& problem, const GpuFacts& gpu) {
  const std::int64_t d = problem.pattern().d;
  const int block_j = block_j_of(form_of(problem), d);
  const GradientConfig config = config_with(block_j, problem, gpu);
  // All of d = 24 takes more shared memory than some GPUs have.
  return config.shared_bytes == kNoGradientConfig && block_j > 16 ? config_with(16, problem, gpu) : config;
}

namespace {

/// The cost model of configs that have the form and the j of one of them, with what it needs to know besides.
class Model {
 public:
  Model(const Product& p, const GradientConfig& config, const GpuFacts& gpu)
      : costs_(tuning_of(gpu).gradient_mma.costs),
        p_(p),
        gpu_(gpu),
        multiprocessors_(std::max(gpu.multiprocessors, 1)),
        memory_rate_(std::max(gpu.memory_rate, 1e10)),
        clock_(std::max(gpu.clock_hz, 1e9)),
        l2_rate_(costs_.l2_rate * memory_rate_ * l2_per_byte(gpu)),
        product_clocks_(product_clocks(costs_, config)) {
    const int width = std::min(width_of(config, p, p.b, p.y_sample, p.y_feature, nullptr),
                               width_of(config, p, p.c, p.x_sample, p.x_feature, nullptr));
    copied_ = width == 16 ? costs_.copied_by_16 : width == 4 ? costs_.copied_by_4 : costs_.copied_by_2;
    measured_ = config.shape.form == GradientForm::rows      ? costs_.of_rows
                : config.shape.form == GradientForm::columns ? costs_.of_columns
                : config.block_j == 16                       ? costs_.of_16_j
                                                             : costs_.of_runs;
    // Memory that has more clocks for each byte is kept busy.
    const double least = std::min(1.0, 1 / (costs_.memory * best_memory_share * measured_));
    kept_busy_ = std::max(1 / clocks_per_byte(gpu), least);
  }

  [[nodiscard]] double seconds(const GradientConfig& config) const {
    // How full the GPU is.
    const int resident = blocks_per_multiprocessor(config, gpu_);
    const double places = config.splits * clusters_at_once(gpu_, resident, config.splits);
    const double blocks = real(config.blocks(p_.a));
    const double waves = std::ceil(blocks / places);
    const double sharing = std::min<double>(resident, std::ceil(blocks / multiprocessors_));

    // Time of a block: products, the copies into shared memory, and the rate at which a multiprocessor takes
    // in data.
    const double g_rows = std::min(real(p_.b), real(config.tile_m()));
    const double x_rows = std::min(real(p_.c), real(config.tile_n()));
    const double steps = real(quotient_up(config.split_samples, kGradientStep));
    const double step_bytes = (g_rows + x_rows) * config.block_j * kElementBytes * kGradientStep;
    const double copy_clocks = step_bytes / copied_;

    const int warp_products = config.shape.vector * (config.shape.m / 16) * (config.shape.n / 8);
    const double step_clocks = config.threads() / 32 * warp_products * product_clocks_ + copy_clocks;
    const double stage_steps = config.stage_samples / kGradientStep;
    const double block_clocks =
        steps * std::max({costs_.not_hidden * sharing * step_clocks, sharing * step_bytes / costs_.taken_in,
                          costs_.step_latency, costs_.latency / (config.stages - 1) / stage_steps});
    const double tile_bytes = real(config.tile_m()) * config.out_pitch;
    const double in_blocks =
        waves * (block_clocks / clock_ + costs_.block + sharing * tile_bytes / costs_.stored / clock_);

    // Time of the whole GPU. Through L2 the operands come once for every tile of the other's rows...
    const double idle = std::max(1.0, waves * places / std::max(blocks, 1.0));
    const double sample_bytes = real(p_.batch) * real(p_.a) * real(p_.d) * kElementBytes;
    const double reads =
        sample_bytes * (real(p_.b) * real(config.l_tiles) + real(p_.c) * real(config.k_tiles));
    const double l2 = reads / l2_rate_ * std::min(idle, 2.0);
    // ...and from memory once for all tiles that run together, l fastest.
    const double together =
        std::clamp(std::floor(places / config.splits), 1.0, real(config.k_tiles * config.l_tiles));
    const double l_together = std::min(real(config.l_tiles), together);
    const double k_together = std::ceil(together / real(config.l_tiles));
    const double rounds = real(config.k_tiles * config.l_tiles) / together;
    const double memory = sample_bytes * rounds * (k_together * g_rows + l_together * x_rows) / memory_rate_;
    // These times overlap, but not fully; and an H200 was measured to be slower than all of this says.
    const double overlapped = kept_busy_ * memory;
    return costs_.start + measured_ * (std::max({in_blocks, l2, costs_.memory * overlapped}) +
                                       costs_.mixed * (in_blocks + l2 + overlapped));
  }

 private:
  const tuning::GradientMma& costs_;
  const Product& p_;
  const GpuFacts& gpu_;
  double multiprocessors_, memory_rate_, clock_, l2_rate_, product_clocks_;
  double copied_ = 1, measured_ = 1, kept_busy_ = 1;
};

GradientConfig config_with(int block_j, const Problem& problem, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  const auto shared = static_cast<std::int64_t>(gpu.shared_bytes);
  const std::int64_t least_splits = quotient_up(p.batch, kGradientMaxSum);
  const std::int64_t most_splits = std::max<std::int64_t>(p.batch / kLeastSplit, 1);
  GradientConfig base;
  const GradientForm form = form_of(problem);
  base.block_j = block_j;
  base.shape_index = shape_of(form, base.block_j, p);
  base.shape = gradient_shapes[base.shape_index];
  base.j_groups = quotient_up(p.d, base.block_j);
  base.warps_j = static_cast<int>(quotient_up(base.block_j, base.shape.vector));

  const Model model(p, base, gpu);
  GradientConfig best = base;
  best.shared_bytes = kNoGradientConfig;
  double best_seconds = 0;
  const auto consider = [&](GradientConfig config) {
    const auto most = static_cast<int>(std::min<std::int64_t>(most_splits, largest_cluster(gpu)));
    int splits = static_cast<int>(std::clamp<std::int64_t>(least_splits, 1, most));
    for (; splits <= most; ++splits) {
      config.splits = splits;
      config.split_samples =
          quotient_up(quotient_up(p.batch, splits), config.stage_samples) * config.stage_samples;
      const double seconds = model.seconds(config);
      if (best.shared_bytes == kNoGradientConfig || seconds < best_seconds) {
        best = config;
        best_seconds = seconds;
      }
    }
  };
  const auto with_warps = [&](int warps_m, int warps_n) {
    GradientConfig config = base;
    config.warps_m = warps_m;
    config.warps_n = warps_n;
    config.k_tiles = quotient_up(p.b, config.tile_m());
    config.l_tiles = quotient_up(p.c, config.tile_n());
    return config;
  };

  const std::int64_t warps = std::max(1, base.shape.threads / 32 / base.warps_j);
  const auto most_m = static_cast<int>(std::min(warps, quotient_up(p.b, base.shape.m)));
  const auto most_n = static_cast<int>(std::min(warps, quotient_up(p.c, base.shape.n)));
  for (int warps_m = 1; warps_m <= most_m; ++warps_m)
    for (int warps_n = 1; warps_n <= most_n && warps_m * warps_n <= warps; ++warps_n) {
      GradientConfig config = with_warps(warps_m, warps_n);
      int before = 0;  // equal stages need not be considered twice
      for (int resident = std::max(1, config.shape.threads / config.threads()); resident >= 1; --resident)
        if (fit_stages(config, resident == 1 ? shared : (shared + 1024) / resident - 1024) &&
            config.shared_bytes != before) {
          before = config.shared_bytes;
          consider(config);
        }
    }
  return best;
}

}  // namespace

GradientArguments gradient_arguments(const Problem& problem, const GradientConfig& config,
                                     const Operands& operands) {
  const Product p = product_of(problem);
  const bool columns = config.shape.form == GradientForm::columns;
  const auto operand = [&](const void* data, std::int64_t rows, std::int64_t sample, std::int64_t feature,
                           int tile_rows, int pitch) {
    const std::int64_t row = p.d * feature * kElementBytes;
    const std::int64_t copied_rows = std::min<std::int64_t>(rows, tile_rows);
    const std::int64_t units =
        columns ? kGradientColumnSamples / 8 : quotient_up(copied_rows * config.block_j, 8);
    return GradientOperand{
        .data = static_cast<const std::byte*>(data),
        .to_next_i = rows * row,
        .to_next_row = row,
        .to_next_j = feature * kElementBytes,
        .to_next_sample = sample * kElementBytes,
        .rows = rows,
        .tile_rows = tile_rows,
        .pitch = pitch,
        .width = width_of(config, p, rows, sample, feature, data),
        .lanes_log = std::min(5, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(units - 1))))};
  };
  const std::int64_t y_run = config.block_j == p.d ? p.c * p.d : p.d;
  return {.g = operand(operands.g, p.b, p.y_sample, p.y_feature, config.tile_m(), config.g_pitch),
          .x = operand(operands.x, p.c, p.x_sample, p.x_feature, config.tile_n(), config.x_pitch),
          .out = {.y = static_cast<std::byte*>(operands.y),
                  .b = p.b,
                  .c = p.c,
                  .d = p.d,
                  .tile_k = config.tile_m(),
                  .tile_l = config.tile_n(),
                  .block_j = config.block_j,
                  .splits = static_cast<std::uint32_t>(config.splits),
                  .pitch = config.out_pitch,
                  .vectors = (config.block_j != 1 || p.d == 1) && y_run % 4 == 0 &&
                             reinterpret_cast<std::uintptr_t>(operands.y) % 8 == 0},
          .tiles = GradientTiles::of(config, p.batch),
          .warps_m = config.warps_m,
          .warps_n = config.warps_n,
          .stage_samples = config.stage_samples,
          .stages = config.stages,
          .x_offset = config.x_offset,
          .stage_bytes = config.stage_bytes,
          // For rows of 32 bytes: without it, rows of one sample would share banks with units of the next.
          .swizzle = config.shape.form == GradientForm::runs && config.block_j == 16 ? 1 : 0,
          .overlaps = false};
}

double gradient_seconds(const Problem& problem, const GradientConfig& config, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  return Model(p, config, gpu).seconds(config);
}

}  // namespace kronsparse::cuda
