// The kernel `mma`: the choice of a config and the cost model.
#include <algorithm>

#include "cuda/host/divisor.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/mma/search.hpp"

namespace kronsparse::cuda {
namespace {

/// The smallest number >= value whose remainder modulo 32 is `rest`.
int with_rest_of_32(int value, int rest) { return value + ((rest - value) % 32 + 32) % 32; }

constexpr int kMaxWarps = kMaxThreads / 32;
constexpr int kMaxWords = 8;  ///< 32 bytes of j: whole sectors of memory

/// Computes the sizes in shared memory from the rest of the config.
void lay_out(MmaConfig& config) {
  const bool half = config.arithmetic == Arithmetic::f16 || config.arithmetic == Arithmetic::bf16;
  const int element = half ? 2 : 4;
  const int n = config.tile_n();
  const int tile_k = config.order.tile_k;
  int out_rows = 8 * config.warps_n;
  switch (config.form) {
    case XForm::planes:
      // The padding puts the words that one copy instruction scatters into different banks.
      config.plane_bytes = n * 64 + (config.words == 1 ? 0 : std::max(16, 128 / config.words / 16 * 16));
      config.out_pitch = with_rest_of_32(tile_k * config.words, 5);
      break;
    case XForm::rows:
      config.plane_bytes = n * 32;
      config.out_pitch = with_rest_of_32(tile_k / 2, 5);
      break;
    case XForm::lines:  // only wgmma's
      break;
    case XForm::columns:
      config.plane_bytes = 16 * n * element;
      config.out_pitch = with_rest_of_32(n * element / 4, half ? 4 : 8);
      out_rows = 16 * config.warps_k;
      break;
  }
  const auto chunk_bytes = static_cast<int>(config.order.chunk_elements() * element);
  config.x_stage_bytes = config.sub_chunks * config.words * config.plane_bytes;
  config.w_stage_bytes = config.resident ? 0 : config.sub_chunks * chunk_bytes;
  config.out_bytes = (out_rows * config.out_pitch * 4 + 127) / 128 * 128;
  const std::int64_t weights = config.resident ? config.order.group_elements() * element
                                               : std::int64_t{kStages} * config.w_stage_bytes;
  const std::int64_t total = std::int64_t{kStages} * config.x_stage_bytes + weights + 2 * config.out_bytes;
  config.shared_bytes = static_cast<int>(std::min<std::int64_t>(total, 1 << 30));
}

/// Limits for GPUs with less shared memory for a block than an H200.
struct Limits {
  int words = kMaxWords;
  int warps_k = 2;
  int warps_n = kMaxWarps;
  bool narrow_k = false;  ///< tiles of 48 outputs for a warp, not of 64
};

/// The config within the limits; its shared memory may be more than the GPU has.
MmaConfig config_within(const Limits& limits, const Problem& problem, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  MmaConfig config;
  config.arithmetic = arithmetic_of(problem);
  const bool half = problem.dtype != DType::f32;
  if (problem.layout == Layout::batch_last)
    config.form = XForm::columns;
  else
    config.form = half && p.d == 1 ? XForm::rows : XForm::planes;
  config.warp_n = half && config.form != XForm::planes ? 64 : 32;

  // Multiples of 48 or of 64, whichever wastes less.
  config.warp_k = limits.narrow_k || divided_up(p.b, 48) * 48 < divided_up(p.b, 64) * 64 ? 48 : 64;
  const std::int64_t k_warps = divided_up(p.b, config.warp_k);

  const int products = half && config.form == XForm::planes ? 2 : 1;
  const std::int64_t d_words = config.form == XForm::columns ? 1 : divided_up(p.d, products);
  const std::int64_t j_groups = divided_up(d_words, limits.words);
  config.words = static_cast<int>(divided_up(d_words, j_groups));
  const int warps = std::max(1, kMaxWarps / config.words);
  config.warps_k = std::min(limits.warps_k, k_warps >= 2 && warps >= 4 ? 2 : 1);
  config.warps_n = 1;
  while (config.warps_n * 2 * config.warps_k <= warps) config.warps_n *= 2;
  if (config.form != XForm::planes && half) config.warps_n = std::min(config.warps_n, 4);
  config.warps_n = std::min(config.warps_n, limits.warps_n);

  const int j_count = config.words * products;
  config.order = {.a = p.a,
                  .b = p.b,
                  .c = p.c,
                  .d = p.d,
                  .j_groups = config.form == XForm::columns ? p.d : j_groups,
                  .k_tiles = divided_up(p.b, config.warp_k * config.warps_k),
                  .chunks = divided_up(p.c, 16),
                  .j_count = j_count,
                  .tile_k = config.warp_k * config.warps_k,
                  .wide = !half,
                  .rows = config.form == XForm::rows ? RowOrder::paired : RowOrder::split};

  const auto fits = [&] {
    lay_out(config);
    return static_cast<std::size_t>(config.shared_bytes) <= gpu.shared_bytes;
  };
  // Larger stages wait less often; resident weights are worth more.
  for (const bool resident : {true, false})
    for (const int sub_chunks : {2, 1}) {
      config.resident = resident;
      config.sub_chunks = static_cast<int>(std::min<std::int64_t>(sub_chunks, config.order.chunks));
      if (fits()) return config;
    }
  return config;
}

}  // namespace

MmaConfig mma_config(const Problem& problem, const GpuFacts& gpu) {
  const auto fits = [&](const MmaConfig& config) {
    return static_cast<std::size_t>(config.shared_bytes) <= gpu.shared_bytes;
  };
  const MmaConfig largest = config_within({}, problem, gpu);
  if (fits(largest)) return largest;
  // A GPU with less shared memory for a block: the best of the smaller tiles.
  MmaConfig best = largest;
  double best_seconds = 0;
  for (const int words : {8, 6, 5, 4, 3, 2, 1})
    for (const int warps_k : {2, 1})
      for (const bool narrow_k : {false, true})
        for (const int warps_n : {4, 2, 1}) {
          const MmaConfig config = config_within({words, warps_k, warps_n, narrow_k}, problem, gpu);
          if (!fits(config)) continue;
          const double seconds = mma_seconds(problem, config, gpu);
          if (fits(best) && best_seconds <= seconds) continue;
          best = config;
          best_seconds = seconds;
        }
  return best;
}

double mma_seconds(const Problem& problem, const MmaConfig& config, const GpuFacts& gpu) {
  const Product p = product_of(problem);
  const bool half = problem.dtype != DType::f32;
  const double element = half ? 2 : 4;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double samples = real(divided_up(p.batch, config.tile_n()) * config.tile_n());
  const double j_count = real(config.order.j_groups) * config.order.j_count;
  const double outputs = real(config.order.k_tiles * config.order.tile_k);
  const double terms = real(config.order.chunks * 16);

  const double rate = half                                    ? reached_rate(gpu, Units::f16, 400)
                      : config.arithmetic == Arithmetic::tf32 ? reached_rate(gpu, Units::tf32, 200)
                                                              : reached_rate(gpu, Units::tf32, 90, 3);
  const double clocks = samples * real(p.a) * j_count * outputs * terms / rate / gpu.multiprocessors;
  const double memory = problem.bytes() / gpu.memory_rate;
  // L2 delivers x for every tile of outputs, and the weights for every tile of samples.
  const double x_reads = samples * real(p.a) * j_count * terms * real(config.order.k_tiles);
  const double w_reads = config.resident ? 0.0 : real(config.order.elements()) * samples / config.tile_n();
  // Parts of sectors come as often as there are parts. An H200 has room for whole ones.
  const double part = config.words * 4.0;
  const bool has_parts = config.form == XForm::planes && config.order.j_groups > 1 && config.words <= 4;
  const double sectors = has_parts ? 1 + (32 - part) / 32 : 1;
  const double l2 = (sectors * x_reads + w_reads) * element / (1.4 * gpu.memory_rate * l2_per_byte(gpu));
  const double tiles = real(config.order.groups()) * samples / config.tile_n();
  const double filled = std::clamp(tiles / gpu.multiprocessors, 1.0 / gpu.multiprocessors, 1.0);
  // Copies and epilogues share the warps with the products. On an H200 these kernels take three times the
  // time that memory or L2 would need, and splitting floats takes as long again. That is a matter of clocks:
  // where there are more of them for each byte, memory is the limit.
  const double split = config.arithmetic == Arithmetic::tf32x3 ? 2 : 1;
  const double by_clocks = split * 3.0 / clocks_per_byte(gpu);
  const double moving = sectors * std::max(by_clocks, 1 / best_memory_share) * memory;
  return 8e-6 + std::max({split * clocks / gpu.clock_hz / filled, moving, split * 2.8 * l2});
}

}  // namespace kronsparse::cuda
