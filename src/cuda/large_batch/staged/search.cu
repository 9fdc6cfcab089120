// The kernel `staged`: the choice of chunks, and the cost model.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "cuda/host/divisor.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/large_batch/staged/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t element_bytes = 2;

double real(std::int64_t value) { return static_cast<double>(value); }

/// The product with one sample of a sorted chunk.
Product sorted_product(const Product& p, std::int64_t blocks_i) {
  return {.batch = 1, .a = blocks_i * p.d, .b = sorted_length(p.b), .c = sorted_length(p.c), .d = 1};
}

/// The times of chunks of so many blocks i. Their tiles are alike, whatever the samples of a chunk.
class ChunkTimes {
 public:
  ChunkTimes(const Product& p, std::int64_t blocks_i, const GpuFacts& gpu)
      : costs_(tuning_of(gpu).staged.costs),
        config_(gemm_config(sorted_product(p, blocks_i), false, gpu)),
        parts_(real(p.a / blocks_i)),
        sample_bytes_(blocks_i * p.d * (sorted_length(p.c) + sorted_length(p.b)) * element_bytes),
        memory_rate_(gpu.memory_rate),
        clock_(gpu.clock_hz),
        places_(std::max(gpu.multiprocessors, 1)) {
    tile_ = real(config_.order.chunks * 16) * config_.shape.n * config_.unit_samples();
    group_bytes_ = real(config_.order.group_elements() * element_bytes);
  }

  /// Seconds of so many samples in chunks, the last of which may be smaller.
  [[nodiscard]] double all(std::int64_t samples, std::int64_t chunk_samples) {
    const std::int64_t whole = quotient(samples, chunk_samples), left = samples - whole * chunk_samples;
    return parts_ * (real(whole) * chunk(chunk_samples) + (left != 0 ? chunk(left) : 0.0));
  }

 private:
  /// Seconds of a chunk: two launches, x and y through L2 three times, the products, and the weights.
  [[nodiscard]] double chunk(std::int64_t samples) {
    share_out(config_, samples, places_);
    const double rounds = std::ceil(real(config_.units()) / real(config_.crews * config_.crew_teams));
    // Resident weights are loaded by each block; streamed ones come to L2 once.
    const double weights =
        group_bytes_ * real(config_.w_slots != 0 ? config_.blocks() : config_.order.groups());
    const double moved = real(samples * sample_bytes_);
    return costs_.start + (costs_.memory * moved + costs_.weights * weights) / memory_rate_ +
           costs_.tensor * rounds * tile_ / wgmma_per_clock(true) / clock_;
  }

  const tuning::Staged& costs_;
  GemmConfig config_;  ///< of the chunk that was asked for last
  double parts_;
  std::int64_t sample_bytes_;
  double memory_rate_, clock_;
  std::int64_t places_;
  double tile_ = 0, group_bytes_ = 0;
};

StagedScratch scratch_of(const Product& p, bool bias, const StagedConfig& config) {
  const auto aligned = [](std::int64_t bytes) { return quotient_up(bytes, 128) * 128; };
  const std::int64_t products = config.blocks_i * p.d;
  StagedScratch scratch;
  scratch.y = aligned(config.chunk * products * sorted_length(p.c) * element_bytes);
  scratch.bias = scratch.y + aligned(config.chunk * products * sorted_length(p.b) * element_bytes);
  scratch.bytes = scratch.bias + (bias ? p.a * p.d * sorted_length(p.b) * element_bytes : 0);
  return scratch;
}

/// The chunks with the least time, and that.
std::pair<StagedConfig, double> choose(const Problem& problem, const GpuFacts& gpu) {
  const Product p = planned_product_of(problem);
  const std::int64_t unit = gemm_config(sorted_product(p, 1), false, gpu).unit_samples();
  const double room = tuning_of(gpu).staged.costs.chunks_l2 * static_cast<double>(gpu.l2_bytes);
  std::pair<StagedConfig, double> best{{}, std::numeric_limits<double>::infinity()};
  const auto fits = [&](const StagedConfig& config) {
    return real(scratch_of(p, problem.bias, config).bytes) <= room;
  };
  for (std::int64_t blocks_i = 1; blocks_i <= p.a && fits({std::min(unit, p.batch), blocks_i}); ++blocks_i) {
    if (p.a % blocks_i != 0) continue;
    ChunkTimes times(p, blocks_i, gpu);
    // Steps of an eighth, in whole tiles: a tile more or less decides the number of rounds.
    for (std::int64_t chunk = std::min(unit, p.batch);;
         chunk = std::min(chunk + std::max(unit, quotient(chunk / 8, unit) * unit), p.batch)) {
      const StagedConfig config{.chunk = chunk, .blocks_i = blocks_i};
      if (!fits(config)) break;
      const double seconds = times.all(p.batch, chunk);
      if (seconds < best.second) best = {config, seconds};
      if (chunk == p.batch) break;
    }
  }
  return best;
}

}  // namespace

std::int64_t sorted_length(std::int64_t length) {
  return quotient_up(length, std::int64_t{kRunFeatures}) * kRunFeatures;
}

StagedConfig staged_config(const Problem& problem, const GpuFacts& gpu) { return choose(problem, gpu).first; }

StagedScratch staged_scratch(const Problem& problem, const StagedConfig& config) {
  return scratch_of(planned_product_of(problem), problem.bias, config);
}

Problem staged_part(const Problem& problem, std::int64_t samples, std::int64_t blocks_i) {
  const Product p = product_of(problem);
  Problem part = problem;
  part.operation = Operation::multiply;
  part.chain = Pattern{blocks_i * p.d, sorted_length(p.b), sorted_length(p.c), 1};
  part.batch = samples;
  part.cols_stride = part.rows_stride = 0;
  return part;
}

WgmmaOrder staged_order(const Problem& problem, const GemmConfig& gemm) {
  const Product p = planned_product_of(problem);
  WgmmaOrder order = gemm.order;
  order.a = p.a;
  order.b = p.b;
  order.c = p.c;
  order.d = order.j_groups = p.d;
  return order;
}

int sort_eights_log2(std::int64_t d) {
  const auto eights = static_cast<std::uint64_t>(std::max<std::int64_t>(kSortPieces / (8 * d), 1));
  return static_cast<int>(std::bit_width(eights)) - 1;
}

std::size_t sort_shared_bytes(std::int64_t d) {
  return (std::size_t{8} << sort_eights_log2(d)) * static_cast<std::size_t>(d + 1) * 16 +
         48;  // a vector and a gap more
}

SortJob sort_job(std::int64_t samples, std::int64_t blocks_i, std::int64_t length, std::int64_t d) {
  const std::int64_t length_runs = sorted_length(length) / kRunFeatures;
  const std::int64_t runs = blocks_i * length_runs;
  const std::int64_t sample_tiles = quotient_up(runs, std::int64_t{8} << sort_eights_log2(d));
  SortJob job;
  job.sample_elements = blocks_i * length * d;
  job.runs = static_cast<std::uint32_t>(runs);
  job.length = static_cast<std::uint32_t>(length);
  job.length_runs = Divisor(static_cast<std::uint32_t>(length_runs));
  job.sample_tiles = Divisor(static_cast<std::uint32_t>(sample_tiles));
  job.tiles = static_cast<std::uint32_t>(samples * sample_tiles);
  return job;
}

double staged_seconds(const Problem& problem, const StagedConfig& config, const GpuFacts& gpu) {
  const Product p = planned_product_of(problem);
  return tuning_of(gpu).staged.costs.once + ChunkTimes(p, config.blocks_i, gpu).all(p.batch, config.chunk);
}

}  // namespace kronsparse::cuda
