#include <algorithm>
#include <cmath>

#include "cuda/direct_config.hpp"

namespace kronsparse::cuda::direct {
namespace {

constexpr std::int64_t max_blocks = std::int64_t{1} << 27;
constexpr std::int64_t max_offset = std::int64_t{1} << 31;  // of an element of x, from its i

/// Blocks of the kernel that each multiprocessor gets.
double blocks_of_each(const Cut& cut, const Product& p, const GpuFacts& facts) {
  return std::ceil(static_cast<double>(blocks_of(cut, p)) / std::max(facts.multiprocessors, 1));
}

/// What a multiprocessor needs for one block, of shared_bytes + 1 KB.
double shared_bytes_of(const Cut& cut) { return shared_layout(cut).total + 1024.0; }

/// Blocks that a multiprocessor has room for beside each other in so much shared memory.
double room_for_blocks(const Cut& cut, double memory) {
  const double threads = cut.warps() * 32, registers = 40 + cut.shape.registers();
  return std::max(
      1.0,
      std::floor(std::min({memory / shared_bytes_of(cut), 65536 / (registers * threads), 2048 / threads})));
}

/// The shared memory that a multiprocessor has when the kernel asks for its own blocks': there are a few
/// ways to divide it.
double shared_bytes_asked_for(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const double all = static_cast<double>(facts.shared_bytes) + 1024;
  const double asked_for = all * shared_percent(cut, p, facts) / 100;
  for (const double kilobytes : {8, 16, 32, 64, 100, 132, 164, 196})
    if (kilobytes * 1024 >= asked_for) return std::min(kilobytes * 1024, all);
  return all;
}

/// Seconds of a run; fitted to 4,900 cuts of 83 problems on an H200: half of them take within 7 % of it, and
/// what it prefers 1.03 times as long as the best, in the mean.
double predict_cut(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const Shape& shape = cut.shape;
  const double blocks = static_cast<double>(blocks_of(cut, p)), warps = cut.warps();
  const double of_each = blocks_of_each(cut, p, facts);
  const double waves =
      std::ceil(of_each / room_for_blocks(cut, static_cast<double>(facts.shared_bytes) + 1024));
  // The share of the next kernel's blocks that find room beside this one's, and can ask for their weights.
  const double room = room_for_blocks(cut, shared_bytes_asked_for(cut, p, facts)) * facts.multiprocessors;
  const double waiting = 1 - std::clamp(room / blocks - 1, 0.0, 1.0);
  // The share of a block's samples that exist.
  const double existing =
      static_cast<double>(p.batch) /
      static_cast<double>(std::int64_t{cut.sample_blocks} * cut.sample_warps * shape.tiles * tile_samples);
  const double loads = warps * cut.steps * shape.loads() * shape.tiles * existing;
  // Lines of 128 bytes that a warp's load needs: neighbouring terms lie d elements apart.
  const bool is_part = p.d > shape.block_j;
  const double lines = is_part ? std::max(8.0, static_cast<double>(std::min<std::int64_t>(p.d, 64)) / 2) : 8;
  const bool halves_sectors = is_part && cut.rows * shape.block_j % 16 != 0;  // blocks fetch them twice
  const double weights = static_cast<double>(weight_bytes(cut, p)) / facts.memory_rate;
  const double sums = cut.l_warps == 1 ? 0 : warps * shape.items() * shape.item_floats();
  const double stores = warps / cut.l_warps * shape.items() * existing;

  const double steps = cut.steps * (90e-9 + 17e-9 * shape.loads() * shape.tiles +
                                    3.3e-9 * shape.operands() * shape.result_tiles());
  const double ending = cut.l_warps == 1 ? 113e-9 * shape.items()
                                         : 78e-9 + 300e-9 * std::ceil(1.0 * shape.items() / cut.l_warps);
  // Not explained: what it prefers for one j and many samples takes longer.
  const double margin = p.d == 1 && p.batch > 32 ? 1.1 : 1;
  const double seconds =
      0.57e-6 + 0.18e-6 * waiting + (waves - 1) * 0.49e-6 + blocks * 0.61e-9 +
      waves * (steps + ending) +                                                        // of a warp
      of_each * (loads * lines * 0.7e-9 + (sums + stores) * 1.7e-9 + warps * 8.4e-9) +  // of all
      weights * (0.29 + 0.31 * waiting) + weights * cut.sample_blocks * 0.18 +          // memory, L2
      (halves_sectors ? blocks * loads * lines * 1.5e-12 : 0);
  return margin * seconds;
}

/// The widest loads that every term of every sample allows; no tiles where there are none.
Shape shape_for(const Product& p) {
  for (const Shape shape : {Shape{8, 8, 1}, Shape{4, 8, 1}, Shape{2, 8, 1}, Shape{4, 4, 1}, Shape{2, 2, 1},
                            Shape{1, 8, 1}, Shape{1, 4, 1}}) {
    const bool by_terms = shape.load == shape.block_j;
    if (p.d % shape.block_j != 0 || (!by_terms && (p.d != shape.block_j || p.c % shape.terms() != 0)))
      continue;
    if (p.batch == 1 || p.x_sample % shape.load == 0) return shape;
  }
  return {0, 0, 0};
}

template <class Visitor>
void for_each_cut(const Product& p, const GpuFacts& facts, Visitor&& visit) {
  Cut cut;
  cut.shape = shape_for(p);
  if (cut.shape.tiles == 0 || p.x_feature != 1 || p.y_feature != 1) return;
  if (p.c * p.d >= max_offset || p.batch > max_samples || p.x_sample > max_offset / max_samples) return;
  const std::int64_t all_steps = divided_up(p.c, cut.shape.step_l()), j_groups = p.d / cut.shape.block_j;
  const std::int64_t all_tiles = divided_up(p.batch, tile_samples);
  // More steps than that fit into no shared memory, and their bytes into no int.
  constexpr std::int64_t max_steps = 1 << 10;
  if (all_steps > max_steps || divided_up(p.b, cut.shape.tile_k()) * j_groups > max_blocks / p.a) return;
  cut.j_groups = static_cast<int>(j_groups);
  for (const Shape& shape : shapes) {
    if (shape.block_j != cut.shape.block_j || shape.load != cut.shape.load) continue;
    // Half of them would do.
    if (shape.tiles > 1 && shape.tiles / 2 >= all_tiles) continue;
    if (shape.outputs > 1 && shape.tile_k() / 2 >= p.b) continue;
    cut.shape = shape;
    const std::int64_t all_rows = divided_up(p.b, shape.tile_k()) * j_groups;
    for (cut.l_warps = 1; cut.l_warps <= 16; ++cut.l_warps)
      for (cut.rows = 1; cut.rows <= 8; cut.rows *= 2)
        for (cut.sample_warps = 1; cut.sample_warps <= 8; cut.sample_warps *= 2) {
          if (cut.warps() > shape.max_warps() || (cut.rows > 1 && cut.rows > all_rows)) continue;
          if (cut.sample_warps > 1 && cut.sample_warps / 2 * shape.tiles >= all_tiles) continue;
          cut.steps = static_cast<int>(divided_up(all_steps, cut.l_warps));
          if (cut.l_warps > 1 && (cut.l_warps - 1) * cut.steps >= all_steps) continue;
          if (static_cast<std::size_t>(shared_layout(cut).total) > facts.shared_bytes) continue;
          cut.row_blocks = static_cast<int>(divided_up(all_rows, cut.rows));
          cut.sample_blocks = static_cast<int>(divided_up(all_tiles, cut.sample_warps * shape.tiles));
          visit(cut);
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

int shared_percent(const Cut& cut, const Product& p, const GpuFacts& facts) {
  const double share =
      blocks_of_each(cut, p, facts) * shared_bytes_of(cut) / (static_cast<double>(facts.shared_bytes) + 1024);
  return static_cast<int>(std::ceil(100 * std::min(share, 1.0)));
}

Arguments arguments_of(const Problem& problem, const Cut& cut, const void* weights) {
  const Product p = product_of(problem);
  return {.weights = static_cast<const std::byte*>(weights),
          .x = nullptr,
          .y = nullptr,
          .bias = nullptr,
          .cut = cut,
          .batch = static_cast<int>(p.batch),
          .activation = problem.activation,
          .x_vectors = true,
          .y_vectors = cut.shape.x_is_left() ? p.b % 2 == 0 && (p.batch == 1 || p.y_sample % 2 == 0)
                                             : p.batch == 1 || p.y_sample % cut.shape.block_j == 0,
          .b = static_cast<int>(p.b),
          .c = static_cast<int>(p.c),
          .d = static_cast<int>(p.d),
          .x_sample = static_cast<int>(p.x_sample),
          .y_sample = p.y_sample,
          .row_blocks = Divisor(static_cast<std::uint32_t>(cut.row_blocks)),
          .blocks_of_samples = Divisor(static_cast<std::uint32_t>(cut.sample_blocks)),
          .j_groups = Divisor(static_cast<std::uint32_t>(cut.j_groups)),
          .sample_warps = Divisor(static_cast<std::uint32_t>(cut.sample_warps)),
          .l_warps = Divisor(static_cast<std::uint32_t>(cut.l_warps))};
}

Arguments with_operands(Arguments arguments, const Product& /*p*/, const Operands& operands) {
  const auto is_aligned = [](const void* data, int elements) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<unsigned>(2 * elements) == 0;
  };
  arguments.x = operands.x;
  arguments.y = operands.y;
  arguments.bias = operands.bias;
  arguments.x_vectors = is_aligned(operands.x, arguments.cut.shape.load);
  arguments.y_vectors =
      arguments.y_vectors && is_aligned(operands.y, std::max(arguments.cut.shape.block_j, 2));
  return arguments;
}

}  // namespace kronsparse::cuda::direct
