// The kernel `gemm`: the choice of a config, its arguments and the cost model.
#include <algorithm>
#include <cmath>

#include "cuda/host/divisor.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/large_batch/gemm/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

/// The shape that wastes the fewest outputs; of equal ones the widest.
std::size_t choose_shape(bool columns, std::int64_t b) {
  const auto padded = [&](const GemmShape& shape) { return quotient_up(b, shape.n) * shape.n; };
  std::size_t best = gemm_shapes.size();
  for (std::size_t index = 0; index < gemm_shapes.size(); ++index)
    if (gemm_shapes[index].columns == columns &&
        (best == gemm_shapes.size() || padded(gemm_shapes[index]) < padded(gemm_shapes[best])))
      best = index;
  return best;
}

/// Arranges shared memory with `w_slots` slots of weights and as many stages as fit. Returns false if these
/// are too few.
bool lay_out(GemmConfig& config, int w_slots, int least_stages, std::int64_t shared_bytes) {
  constexpr std::int64_t barriers = 1024;  // copy destinations begin at a multiple of it
  const std::int64_t chunk_bytes = config.order.chunk_elements() * 2;
  const std::int64_t resident = w_slots * config.order.chunks * chunk_bytes;
  const std::int64_t out = 2 * config.shape.out_bytes();
  const int boxes = config.shape.sample_boxes * (w_slots != 0 ? 1 : 2);
  const std::int64_t stage =
      std::int64_t{boxes} * kGemmBoxBytes + (w_slots != 0 ? 0 : kGemmStageChunks * chunk_bytes);
  const std::int64_t fitting = (shared_bytes - barriers - resident - out) / stage;
  if (fitting < least_stages) return false;
  config.w_slots = w_slots;
  config.stages = static_cast<int>(std::min<std::int64_t>(fitting, kGemmMaxStages));
  config.stages_offset = static_cast<int>(barriers);
  config.out_offset = config.stages_offset + config.stages * boxes * kGemmBoxBytes;
  config.w_offset = config.out_offset + static_cast<int>(out);
  config.shared_bytes =
      config.w_offset +
      static_cast<int>(w_slots != 0 ? resident : config.stages * kGemmStageChunks * chunk_bytes);
  return true;
}

}  // namespace

void share_out(GemmConfig& config, std::int64_t batch, std::int64_t multiprocessors) {
  config.n_tiles = std::max<std::int64_t>(quotient_up(batch, config.unit_samples()), 1);
  const std::int64_t teams =
      std::clamp<std::int64_t>(quotient(multiprocessors, config.team_blocks), 1, config.units());
  config.crews = config.w_slots != 0 ? teams : 1;
  config.crew_teams = config.w_slots != 0 ? 1 : teams;
}

GemmConfig gemm_config(const Problem& problem, const GpuFacts& gpu) {
  return gemm_config(product_of(problem), problem.layout == Layout::batch_last, gpu);
}

GemmConfig gemm_config(const Product& p, bool columns, const GpuFacts& gpu) {
  GemmConfig config;
  config.shape_index = choose_shape(columns, p.b);
  config.shape = gemm_shapes[config.shape_index];
  config.order = {.a = p.a,
                  .b = p.b,
                  .c = p.c,
                  .d = p.d,
                  .j_groups = p.d,
                  .k_tiles = quotient_up(p.b, config.shape.n),
                  .chunks = quotient_up(p.c, kGemmStageTerms) * kGemmStageChunks,
                  .j_count = 1,
                  .tile_k = config.shape.n,
                  .parts = 1,
                  .swizzled_rows = true};
  const auto shared = static_cast<std::int64_t>(gpu.shared_bytes);
  // If there is room for both, the next group's weights come while this one's are used.
  if (!lay_out(config, 2, 6, shared) && !lay_out(config, 1, 4, shared) && !lay_out(config, 0, 3, shared)) {
    config.shared_bytes = 1 << 30;
    return config;
  }
  const std::int64_t places = std::max(gpu.multiprocessors, 1);
  config.team_blocks = std::min(config.order.k_tiles, places);
  config.passes = quotient_up(config.order.k_tiles, config.team_blocks);
  share_out(config, p.batch, places);
  return config;
}

TensorView gemm_x_view(const Problem& problem, const void* x) {
  const Product p = product_of(problem);
  if (problem.layout == Layout::batch_last)
    return {.data = x,
            .sizes = {p.batch, p.d, p.c, p.a},
            .strides = {p.x_feature, p.d * p.x_feature, p.c * p.d * p.x_feature},
            .box = {kGemmBoxSamples, 1, kGemmStageTerms, 1}};
  return {.data = x,
          .sizes = {p.c, p.a, p.batch, 1},
          .strides = {p.c, p.x_sample, 0},
          .box = {kGemmStageTerms, 1, kGemmBoxSamples, 1}};
}

TensorView gemm_y_view(const Problem& problem, const GemmConfig& config, const void* y) {
  const Product p = product_of(problem);
  if (problem.layout == Layout::batch_last)
    return {.data = y,
            .sizes = {p.batch, p.d, p.b, p.a},
            .strides = {p.y_feature, p.d * p.y_feature, p.b * p.d * p.y_feature},
            .box = {kGemmBoxSamples, 1, config.shape.round, 1}};
  return {.data = y,
          .sizes = {p.b, p.a, p.batch, 1},
          .strides = {p.b, p.y_sample, 0},
          .box = {config.shape.round, 1, kGemmBoxSamples, 1}};
}

GemmArguments gemm_arguments(const Problem& problem, const GemmConfig& config, const Operands& operands,
                             const void* weights) {
  const Product p = product_of(problem);
  const TensorView x = gemm_x_view(problem, operands.x);
  const TensorView y = gemm_y_view(problem, config, operands.y);
  const bool x_fits = x.fits();
  const bool y_fits = y.fits();
  return {.x_map = x_fits ? tensor_map(x) : CUtensorMap{},
          .y_map = y_fits ? tensor_map(y) : CUtensorMap{},
          .x = static_cast<const std::byte*>(operands.x),
          .y = static_cast<std::byte*>(operands.y),
          .bias = operands.bias,
          .weights = static_cast<const std::byte*>(weights),
          .batch = p.batch,
          .b = p.b,
          .c = p.c,
          .x_sample = p.x_sample,
          .x_feature = p.x_feature,
          .y_sample = p.y_sample,
          .y_feature = p.y_feature,
          .units = static_cast<std::uint32_t>(config.units()),
          .n_tiles = static_cast<std::uint32_t>(config.n_tiles),
          .k_tiles = static_cast<std::uint32_t>(config.order.k_tiles),
          .a = static_cast<std::uint32_t>(p.a),
          .d = static_cast<std::uint32_t>(p.d),
          .team_blocks = static_cast<std::uint32_t>(config.team_blocks),
          .crew_teams = static_cast<std::uint32_t>(config.crew_teams),
          .crews = static_cast<std::uint32_t>(config.crews),
          .chunks = static_cast<int>(config.order.chunks),
          .stages = x_fits ? config.stages : std::min(config.stages - 1, kGemmMaxRowStages),
          .w_chunk_bytes = static_cast<int>(config.order.chunk_elements() * 2),
          .w_slots = config.w_slots,
          .w_offset = config.w_offset,
          .stages_offset = config.stages_offset,
          .out_offset = config.out_offset,
          .x_tensor_copies = x_fits,
          .y_tensor_copies = y_fits,
          .activation = problem.activation};
}

double gemm_seconds(const Problem& problem, const GemmConfig& config, const GpuFacts& gpu) {
  // A launch, then memory, tensor cores or the producer's warps, whichever takes longest.
  const tuning::Gemm& costs = tuning_of(gpu).gemm.costs;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const bool x_rows = !gemm_x_view(problem, nullptr).strides_fit();
  const bool y_rows = !gemm_y_view(problem, config, nullptr).strides_fit();
  const Product p = product_of(problem);
  const double sample_bytes = real(p.batch) * real(p.a * p.d) * 2;
  const double moved = problem.bytes() + (x_rows ? costs.x_rows - 1 : 0) * sample_bytes * real(p.c) +
                       (y_rows ? costs.y_rows - 1 : 0) * sample_bytes * real(p.b);
  const double rounds = std::ceil(real(config.units()) / real(config.crews * config.crew_teams));
  const double tile = real(config.order.chunks * 16) * config.shape.n * config.unit_samples();
  const double tensor = rounds * tile / wgmma_per_clock(true) / gpu.clock_hz;
  const double vectors = quotient_up(p.c, 4) * 4.0 * config.unit_samples() / 8;
  const double producer = x_rows ? rounds * vectors / 32 / kGemmRowWarps * costs.vectors / gpu.clock_hz : 0;
  return costs.start + std::max({costs.memory * moved / gpu.memory_rate, costs.tensor * tensor, producer});
}

}  // namespace kronsparse::cuda
