// The kernel `staged`: the choice of levels and chunks, and the cost model.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cuda/host/divisor.hpp"
#include "cuda/large_batch/staged/search.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t element_bytes = 2;
/// A chunk's share of L2, which x and y pass through as well.
constexpr double l2_share = 0.7;

double real(std::int64_t value) { return static_cast<double>(value); }

/// Seconds of a chunk: two launches, x and y through L2 three times, the products, and the weights. Fitted to
/// 113 kinds of chunks of 17 patterns on an H200 (results/h200-staged-chunks.txt); nine of ten take between
/// 0.83 and 1.09 of the prediction.
double chunk_seconds(const Problem& part, const GpuFacts& gpu) {
  constexpr double launches = 3.4e-6;
  constexpr double memory_share = 2.8;
  constexpr double weights_share = 0.54;
  constexpr double tensor_share = 1.14 * 1.98 / 1.755;  // it runs below its highest clock
  constexpr double rate = 2048;                         // multiply-adds per clock and multiprocessor
  const GemmConfig config = gemm_config(part, gpu);
  const double tile = real(config.order.chunks * 16) * config.shape.n * config.unit_samples();
  const double rounds = std::ceil(real(config.units()) / real(config.crews * config.crew_teams));
  // Resident weights are loaded by each block; streamed ones come to L2 once.
  const double weights = real(config.order.group_elements() * element_bytes) *
                         real(config.w_slots != 0 ? config.blocks() : config.order.groups());
  const double moved = real(part.batch * (part.pattern().cols() + part.pattern().rows()) * element_bytes);
  return launches + (memory_share * moved + weights_share * weights) / gpu.memory_rate +
         tensor_share * rounds * tile / rate / gpu.clock_hz;
}

double level_seconds(const Problem& problem, const StagedLevel& level, const GpuFacts& gpu) {
  const std::int64_t parts = planned_product_of(problem).a / level.blocks_i;
  const auto chunk = [&](std::int64_t samples) {
    return chunk_seconds(staged_part(problem, samples, level.blocks_i), gpu);
  };
  const std::int64_t left = level.count % level.chunk;
  return real(parts) *
         (real(level.count / level.chunk) * chunk(level.chunk) + (left != 0 ? chunk(left) : 0.0));
}

/// The level with the least time per sample, of the `left` samples from `first` on. It has no samples if
/// there is no room.
StagedLevel choose_level(const Problem& problem, std::int64_t first, std::int64_t left, const GpuFacts& gpu) {
  const Product p = planned_product_of(problem);
  const std::int64_t unit = gemm_config(staged_part(problem, 1, 1), gpu).unit_samples();
  const std::int64_t row_bytes = p.a * p.b * p.d * element_bytes;
  StagedLevel best;
  double best_seconds = std::numeric_limits<double>::infinity();
  const auto fits = [&](const StagedLevel& level) {
    return real(staged_scratch(problem, level).bytes) <= l2_share * static_cast<double>(gpu.l2_bytes);
  };
  for (std::int64_t blocks_i = 1; blocks_i <= p.a && fits({.chunk = unit, .blocks_i = blocks_i});
       ++blocks_i) {
    if (p.a % blocks_i != 0) continue;
    // Steps of an eighth, in whole tiles: a tile more or less decides the number of rounds.
    for (std::int64_t chunk = unit; chunk < left; chunk += std::max(unit, chunk / 8 / unit * unit)) {
      StagedLevel level{.first = first, .chunk = chunk, .blocks_i = blocks_i};
      if (!fits(level)) break;
      level.count = left - divided_up(staged_scratch(problem, level).bytes, row_bytes);
      if (level.count < chunk) break;
      const double seconds = level_seconds(problem, level, gpu) / real(level.count);
      if (seconds >= best_seconds) continue;
      best = level;
      best_seconds = seconds;
    }
  }
  return best;
}

}  // namespace

StagedConfig staged_config(const Problem& problem, const GpuFacts& gpu) {
  const std::int64_t batch = planned_product_of(problem).batch;
  StagedConfig config;
  for (;;) {
    const StagedLevel level = choose_level(problem, config.rest_first, batch - config.rest_first, gpu);
    if (level.count == 0) return config;
    config.levels.push_back(level);
    config.rest_first += level.count;
  }
}

StagedScratch staged_scratch(const Problem& problem, const StagedLevel& level) {
  const Product p = planned_product_of(problem);
  const auto aligned = [](std::int64_t bytes) {
    return divided_up(bytes, kScratchAlignment) * kScratchAlignment;
  };
  const std::int64_t products = level.blocks_i * p.d;
  StagedScratch scratch;
  scratch.y = aligned(level.chunk * products * p.c * element_bytes);
  scratch.bias = scratch.y + aligned(level.chunk * products * p.b * element_bytes);
  scratch.bytes = scratch.bias + (problem.bias ? p.a * p.b * p.d * element_bytes : 0) + kScratchAlignment;
  return scratch;
}

Problem staged_part(const Problem& problem, std::int64_t samples, std::int64_t blocks_i) {
  const Product p = product_of(problem);
  Problem part = problem;
  part.operation = Operation::multiply;
  part.chain = Pattern{blocks_i * p.d, p.b, p.c, 1};
  part.batch = samples;
  part.cols_stride = part.rows_stride = 0;
  return part;
}

Problem staged_rest(const Problem& problem, const StagedConfig& config) {
  Problem rest = problem;
  rest.batch = planned_product_of(problem).batch - config.rest_first;
  return rest;
}

WgmmaOrder staged_order(const Problem& problem, const GemmConfig& gemm) {
  const Product p = planned_product_of(problem);
  WgmmaOrder order = gemm.order;
  order.a = p.a;
  order.d = order.j_groups = p.d;
  return order;
}

int sort_eights_log2(std::int64_t d) {
  const auto eights = static_cast<std::uint64_t>(std::max<std::int64_t>(kSortPieces / (8 * d), 1));
  return static_cast<int>(std::bit_width(eights)) - 1;
}

std::size_t sort_shared_bytes(std::int64_t d) {
  return (std::size_t{8} << sort_eights_log2(d)) * static_cast<std::size_t>(d + 1) * 16;
}

SortJob sort_job(std::int64_t samples, std::int64_t blocks_i, std::int64_t length, std::int64_t d) {
  const std::int64_t length_runs = length / kRunFeatures;
  const std::int64_t runs = blocks_i * length_runs;
  const std::int64_t sample_tiles = divided_up(runs, std::int64_t{8} << sort_eights_log2(d));
  SortJob job;
  job.runs = static_cast<std::uint32_t>(runs);
  job.length_runs = Divisor(static_cast<std::uint32_t>(length_runs));
  job.sample_tiles = Divisor(static_cast<std::uint32_t>(sample_tiles));
  job.tiles = static_cast<std::uint32_t>(samples * sample_tiles);
  return job;
}

double staged_seconds(const Problem& problem, const StagedConfig& config, const GpuFacts& gpu) {
  double seconds = 16e-6;  // levels, whose first steps have nothing to overlap with, and the remaining
                           // samples
  for (const StagedLevel& level : config.levels) seconds += level_seconds(problem, level, gpu);
  return seconds;
}

}  // namespace kronsparse::cuda
