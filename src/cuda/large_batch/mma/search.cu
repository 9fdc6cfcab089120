// The kernel `mma`: the choice of a config and the cost model.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "cuda/host/alignment.hpp"
#include "cuda/host/quotient.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/host/tensor_core_refusals.hpp"
#include "cuda/large_batch/mma/kernels.hpp"
#include "cuda/large_batch/mma/search.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::mma {
namespace {

template <class Real>
int small(Real value) {
  return static_cast<int>(value);
}

/// The size of equal pieces of `all`, at most `most` each.
std::int64_t equal_piece(std::int64_t all, std::int64_t most) {
  return quotient_up(all, quotient_up(all, std::max<std::int64_t>(most, 1)));
}

/// The entries of so many lines, and as many more as a thread may look at together with the last.
int table_bytes(std::int64_t lines) {
  return small((lines + 3) * static_cast<std::int64_t>(sizeof(Entry)) + 15) / 16 * 16;
}

bool is_half(const Problem& problem) { return problem.dtype != DType::f32; }

std::span<const Shape> shapes_of(const Problem& problem) {
  return is_half(problem) ? std::span<const Shape>(half_shapes) : std::span<const Shape>(float_shapes);
}

/// Whether a number is a multiple of a power of two.
bool is_multiple(std::int64_t value, int power) { return (value & (power - 1)) == 0; }

/// Whether pieces of `width` neighbouring lines of a side are neighbours in memory, too, and begin at
/// multiples of `width`. `rows`: of a block in a chunk or tile. Several i are in a tile only where it has all
/// j and all rows.
bool has_pieces(const Product& p, std::int64_t height, int run, int rows, int i_count, int width) {
  if (run < p.d) return is_multiple(run, width) && is_multiple(p.d, width);
  if (rows < height && !is_multiple(rows * p.d, width)) return false;
  return p.a <= i_count || is_multiple(i_count * height * p.d, width);
}

/// Makes configs, as far as their sizes in shared memory.
class Maker {
 public:
  Maker(const Problem& problem, const GpuFacts& gpu)
      : p_(planned_product_of(problem)),
        gpu_(gpu),
        order_(order_of(problem)),
        activation_(problem.activation) {
    samples_first_ = problem.layout == Layout::batch_first;
    line_samples_ = is_half(problem) ? 64 : 32;
    k_step_ = small(order_.k_step());
    all_m_tiles_ = small(order_.m_tiles());
    k_steps_ = small(order_.k_steps());
    most_of_d_ = quotient(most, p_.d);
  }

  template <class Take>
  void make_all(std::span<const Shape> shapes, const Take& take) const {
    for (std::size_t index = 0; index < shapes.size(); ++index)
      for (const int threads : {most_threads, most_threads / 2})
        for (const int groups : {1, 2, 4}) {
          const int warps = threads / 32 / groups;
          if (warps == 0 || (groups > 1 && p_.batch <= groups / 2 * line_samples_)) continue;
          const int capacity = warps * shapes[index].slots;
          // In batch_first 16 bytes of neighbours at least.
          const int least_run = line_samples_ / line_units;
          int last_run = 0;
          for (const int most_run :
               samples_first_ ? std::array{least_run, 2 * least_run, 16, 64} : std::array{1, 4, 16, 64}) {
            const int run = small(equal_piece(p_.d, most_run));
            if (run == std::exchange(last_run, run)) continue;
            make_for_run(index, shapes[index], threads, groups, capacity, run, take);
          }
        }
  }

 private:
  template <class Take>
  void make_for_run(std::size_t index, const Shape& shape, int threads, int groups, int capacity, int run,
                    const Take& take) const {
    const std::int64_t all_m = all_m_tiles_;
    std::int64_t last_m = 0;
    for (const int turns : {1, 2, 4}) {
      const std::int64_t m_tiles = equal_piece(all_m, std::max(1, turns * capacity / run));
      if (m_tiles == std::exchange(last_m, m_tiles)) continue;
      int last_i = 0;
      bool fits = false;
      // Several i where they make small blocks a full tile; one i if no more fit.
      for (const int more : {4, 1, 0}) {
        const std::int64_t most_i = run == p_.d && m_tiles == all_m
                                        ? std::max<std::int64_t>(quotient(more * capacity, run * m_tiles), 1)
                                        : 1;
        const int i_count = small(equal_piece(p_.a, most_i));
        if (i_count == std::exchange(last_i, i_count) || (more == 0 && fits)) continue;
        // More blocks at once fill each other's gaps; fewer have longer chunks.
        const int most_blocks = shape.blocks * most_threads / threads;
        int last_rows = 0;
        for (const int blocks : {most_blocks, std::max(1, most_blocks / 2)}) {
          const Cut cut{.threads = threads,
                        .groups = groups,
                        .run = run,
                        .m_tiles = small(m_tiles),
                        .i_count = i_count,
                        .blocks = blocks};
          const int rows = rows_that_fit(shape, cut);
          if (rows == 0 || too_many_tiles(cut)) continue;
          fits = true;
          if (rows != std::exchange(last_rows, rows)) take(config_of(index, shape, cut, rows));
        }
      }
    }
  }

  static constexpr std::int64_t reserved = 1024;  ///< shared memory of each block, by the driver
  static constexpr std::int64_t most = std::int64_t{1} << 31;

  /// The numbers that a config follows from, with the rows of a chunk.
  struct Cut {
    int threads, groups, run, m_tiles, i_count, blocks;

    [[nodiscard]] int in_tile() const { return i_count * run; }
    [[nodiscard]] int warps() const { return threads / 32 / groups; }
  };

  [[nodiscard]] std::int64_t outputs_of(const Cut& cut) const {
    return std::min<std::int64_t>(p_.b, std::int64_t{cut.m_tiles} * 16);
  }

  /// The rows of x in a chunk, with which a tile fits so many times; 0 if it does not, or not with this
  /// shape. Most cuts end here, so it comes before all else.
  [[nodiscard]] int rows_that_fit(const Shape& shape, const Cut& cut) const {
    const int in_tile = cut.in_tile();
    if (shape.has_chunks &&
        (cut.i_count > 1 || std::int64_t{in_tile} * cut.m_tiles > std::int64_t{cut.warps()} * shape.slots))
      return 0;
    const std::int64_t room = quotient(static_cast<std::int64_t>(gpu_.shared_bytes) + reserved, cut.blocks) -
                              reserved - line_bytes - 2 * table_bytes(1);
    const std::int64_t of_row = std::int64_t{cut.groups} * in_tile * line_bytes;
    const std::int64_t of_row_and_entries = of_row + in_tile * static_cast<std::int64_t>(sizeof(Entry));
    const std::int64_t left = room - outputs_of(cut) * of_row_and_entries;
    std::int64_t rows = 0;
    if (left >= p_.c * of_row_and_entries) {
      if (shape.has_chunks) return 0;
      rows = p_.c;
    } else {
      if (!shape.has_chunks || left < k_step_ * of_row_and_entries) return 0;
      constexpr int longest = 256;  // waiting takes little of the time of such chunks
      const std::int64_t in_steps = ~std::int64_t{k_step_ - 1};  // a power of two
      rows = std::min<std::int64_t>(quotient(left, of_row_and_entries) & in_steps, longest);
      rows = (equal_piece(p_.c, rows) + k_step_ - 1) & in_steps;
    }
    // Offsets within a tile, and fragments of an (i, j), are counted in 32 bits.
    const std::int64_t most_rows = cut.i_count > 1 ? quotient(most_of_d_, cut.i_count) : most_of_d_;
    if (p_.a >= most || k_steps_ >= most / 64 || p_.b >= most_rows) return 0;
    if ((cut.i_count > 1 ? p_.c : rows) >= most_rows) return 0;
    return small(rows);
  }

  [[nodiscard]] std::int64_t n_tiles_of(const Cut& cut) const {
    return quotient_up(p_.batch, cut.groups * line_samples_);
  }
  [[nodiscard]] double tiles_of(const Cut& cut) const {
    return static_cast<double>(quotient_up(all_m_tiles_, cut.m_tiles)) *
           static_cast<double>(quotient_up(p_.d, cut.run)) * static_cast<double>(n_tiles_of(cut)) *
           static_cast<double>(quotient_up(p_.a, cut.i_count));
  }
  /// Tiles are counted in 32 bits.
  [[nodiscard]] bool too_many_tiles(const Cut& cut) const {
    return n_tiles_of(cut) >= most || tiles_of(cut) >= static_cast<double>(most);
  }

  [[nodiscard]] Config config_of(std::size_t index, const Shape& shape, const Cut& cut, int rows) const {
    const auto [threads, groups, run, m_tiles, i_count, blocks] = cut;
    const int in_tile = cut.in_tile(), warps = cut.warps();
    const std::int64_t outputs = outputs_of(cut);
    const std::int64_t of_row = std::int64_t{groups} * in_tile * line_bytes;
    Config config;
    config.shape_index = index;
    config.shape = shape;
    config.threads = threads;
    config.order = order_;
    Arguments& all = config.arguments;
    all.batch = p_.batch;
    all.a = small(p_.a);
    all.d = small(p_.d);
    all.samples_first = samples_first_;
    all.activation = activation_;
    all.run = Divisor(static_cast<std::uint32_t>(run));
    all.from = side_of(p_.x_sample, p_.x_feature, run, rows, small(p_.c), i_count);
    all.to = side_of(p_.y_sample, p_.y_feature, run, small(outputs), small(p_.b), i_count);
    all.i_count = i_count;
    all.groups = groups;
    all.group_shift = groups / 2;  // of 1, 2 and 4
    all.warps = warps;
    all.m_tiles = Divisor(static_cast<std::uint32_t>(m_tiles));
    all.all_m_tiles = all_m_tiles_;
    all.k_steps = k_steps_;
    all.chunks = small(quotient_up(p_.c, rows));
    all.chunk_steps = small(quotient_up(rows, k_step_));
    all.passes = small(quotient_up(in_tile * m_tiles, warps * shape.slots));
    all.y_offset = small(rows * of_row);
    all.zero_offset = small((rows + outputs) * of_row);
    all.from.table = all.zero_offset + line_bytes;
    all.to.table = all.from.table + table_bytes(rows * in_tile);
    config.shared_bytes = all.to.table + table_bytes(outputs * in_tile);
    all.k_tiles = Divisor(static_cast<std::uint32_t>(quotient_up(all_m_tiles_, m_tiles)));
    all.j_tiles = Divisor(static_cast<std::uint32_t>(quotient_up(p_.d, run)));
    all.n_tiles = Divisor(static_cast<std::uint32_t>(n_tiles_of(cut)));
    config.tiles = static_cast<std::int64_t>(tiles_of(cut));
    config.blocks_at_once = std::min(shape.blocks * most_threads / threads,
                                     small(quotient(static_cast<std::int64_t>(gpu_.shared_bytes) + reserved,
                                                    config.shared_bytes + reserved)));
    return config;
  }

  [[nodiscard]] Side side_of(std::int64_t sample, std::int64_t feature, int run, int rows, int height,
                             int i_count) const {
    Side side;
    side.sample = sample;
    side.feature = feature;
    side.rows = rows;
    side.by_rows = Divisor(static_cast<std::uint32_t>(rows));
    side.lines = i_count * run * rows;
    side.height = height;
    const int unit = line_samples_ / line_units;
    side.width = 1;
    for (const int width : {unit, 4, 2}) {
      const bool fits = samples_first_ ? width <= 4 && is_multiple(sample, width) &&
                                             has_pieces(p_, height, run, rows, i_count, width)
                                       : width == unit && is_multiple(feature, width);
      if (!fits) continue;
      side.width = width;
      break;
    }
    return side;
  }

  Product p_;
  const GpuFacts& gpu_;
  FragmentOrder order_;
  Activation activation_;
  bool samples_first_ = true;
  int line_samples_ = 64, k_step_ = 16;
  int all_m_tiles_ = 1, k_steps_ = 1;
  std::int64_t most_of_d_ = most;
};

/// Multiply-adds per clock and multiprocessor of mma.sync on the GPU of the fit.
double fitted_rate(const tuning::Mma& costs, const Problem& problem) {
  return is_half(problem) ? costs.halves : problem.mode == Mode::tf32 ? costs.tf32 : costs.tf32x3;
}

/// The cost model, with what it needs to know of a problem and a GPU.
class Model {
 public:
  Model(const Problem& problem, const GpuFacts& gpu)
      : problem_(problem),
        gpu_(gpu),
        costs_(tuning_of(gpu).mma.costs),
        fitted_clock_(tuning_of(gpu).gpu.clock),
        memory_(costs_.start + problem.bytes() / copy_rate(gpu)) {
    // Other GPUs may have slower tensor cores. Padding is multiplied, too.
    const bool half = is_half(problem), splits = !half && problem.mode != Mode::tf32;
    rate_ = reached_rate(gpu, half ? Units::f16 : Units::tf32, fitted_rate(costs_, problem), splits ? 3 : 1);
    constexpr double multiply_adds =
        16.0 * 64 * 16;  // of a slot in a step: (outputs, samples, terms) of halves
    multiply_adds_ = half ? multiply_adds : multiply_adds / 4;
  }

  [[nodiscard]] double least_seconds() const {
    return std::max(memory_, computing(costs_.microseconds.front()));  // the start
  }

  [[nodiscard]] double seconds(const Config& config) const {
    const CostTerms terms = cost_terms(problem_, config, gpu_);
    double microseconds = 0;
    for (std::size_t at = 0; at < terms.size(); ++at) microseconds += terms[at] * costs_.microseconds[at];
    const Arguments& all = config.arguments;
    const double steps =
        static_cast<double>(config.tiles) * all.passes * all.warps * all.groups * all.k_steps;
    const double tensor_cores =
        steps * config.shape.slots * multiply_adds_ / rate_ / gpu_.multiprocessors / gpu_.clock_hz;
    return std::max({computing(microseconds), tensor_cores, memory_});
  }

 private:
  [[nodiscard]] double computing(double microseconds) const {
    return microseconds * 1e-6 * fitted_clock_ / std::max(gpu_.clock_hz, 1e9);
  }

  const Problem& problem_;
  const GpuFacts& gpu_;
  const tuning::Mma& costs_;
  double fitted_clock_, memory_;
  double rate_ = 1, multiply_adds_ = 1;
};

}  // namespace

FragmentOrder order_of(const Problem& problem) {
  const Product p = product_of(problem);
  return {.a = p.a, .b = p.b, .c = p.c, .d = p.d, .wide = !is_half(problem)};
}

CostTerms cost_terms(const Problem& problem, const Config& config, const GpuFacts& gpu) {
  const Arguments& all = config.arguments;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const bool half = is_half(problem), first = all.samples_first, chunked = config.shape.has_chunks;
  constexpr double in_thousands = 1e-3;
  // Work is counted for a multiprocessor, waiting for the blocks that run on it one after the other.
  const double tiles = std::max(real(config.tiles) / gpu.multiprocessors, 1.0);
  const double turns = std::ceil(real(config.tiles) / (real(gpu.multiprocessors) * config.blocks_at_once));
  const double blocks = real(all.i_count) * all.run.value();
  const double x_units = blocks * all.from.height * all.groups * line_units,
               y_units = blocks * all.to.rows * all.groups * line_units;
  const double steps = real(all.passes) * all.warps * all.groups * all.k_steps, slots = config.shape.slots;
  const double right_operands = std::max(1.0, std::ceil(slots / all.m_tiles.value()));
  const double fragments = blocks * all.m_tiles.value() * all.k_steps;
  // Runs of neighbouring features in memory, for each sample.
  const bool has_runs = first && all.run.value() < static_cast<std::uint32_t>(all.d);
  const double runs = real(all.i_count) * all.groups * (half ? 64 : 32);
  // Units that a thread loads before it waits.
  const double at_once = first ? (chunked ? 2 : 4) * (all.from.width > 1 ? 2 : 1) : chunked ? 1 : 2;
  const bool x_is_wide = all.from.width > 1, y_is_wide = all.to.width > 1;
  const bool is_tight = chunked && config.shape.blocks > 1;  // registers do not last for loads and sums
  CostTerms terms{};
  std::size_t at = 0;
  const auto add = [&](double value, bool counts = true) { terms[at++] = counts ? value : 0; };
  add(1);
  for (const bool rows : {true, false})
    for (const bool wide : {false, true})
      add(tiles * x_units * in_thousands, first == rows && x_is_wide == wide);
  for (const bool rows : {true, false})
    for (const bool wide : {false, true})
      add(tiles * y_units * in_thousands, first == rows && y_is_wide == wide);
  for (const bool is_half : {true, false}) add(tiles * steps * slots * in_thousands, half == is_half);
  add(tiles * steps * right_operands * in_thousands);
  add(tiles * fragments * 512 * 1e-5);
  add(tiles * runs * all.from.height * in_thousands, has_runs);
  add(tiles * runs * all.to.rows * in_thousands, has_runs);
  for (const bool is_half : {true, false}) {
    add(tiles * x_units * in_thousands, is_tight && half == is_half);
    add(tiles * steps * slots * in_thousands, is_tight && half == is_half);
  }
  add(turns * all.chunks);
  add(turns * all.passes * all.k_steps * 0.1);
  add(turns * x_units / config.threads / at_once, first);
  add(turns * y_units / config.threads, first);
  add(turns * x_units / config.threads / at_once, !first && !x_is_wide);
  add(turns * y_units / config.threads, !first);
  add(turns * x_units / config.threads / 4, !first && x_is_wide);
  return terms;
}

std::vector<Config> all_configs(const Problem& problem, const GpuFacts& gpu) {
  const Model model(problem, gpu);
  std::vector<Config> all;
  Maker(problem, gpu).make_all(shapes_of(problem), [&](const Config& config) {
    all.push_back(config);
    all.back().seconds = model.seconds(config);
  });
  return all;
}

std::optional<Config> best_config(const Problem& problem, const GpuFacts& gpu) {
  const Model model(problem, gpu);
  std::optional<Config> best;
  Maker(problem, gpu).make_all(shapes_of(problem), [&](const Config& config) {
    const double seconds = model.seconds(config);
    if (best && seconds >= best->seconds) return;
    best = config;
    best->seconds = seconds;
  });
  return best;
}

double least_seconds(const Problem& problem, const GpuFacts& gpu) {
  return Model(problem, gpu).least_seconds();
}

Arguments arguments_of(const Problem& problem, const Config& config, const Operands& operands,
                       const void* weights) {
  Arguments all = config.arguments;
  all.x = static_cast<const std::byte*>(operands.x);
  all.y = static_cast<std::byte*>(operands.y);
  all.bias = problem.bias ? operands.bias : nullptr;
  all.weights = static_cast<const std::byte*>(weights);
  all.batch = problem.batch;
  const int element = is_half(problem) ? 2 : 4;
  const auto settle = [&](Side& side, const void* data) {
    while (side.width > 1 && !is_aligned(data, side.width * element))
      side.width = all.samples_first ? side.width / 2 : 1;
    side.pieces = Divisor(static_cast<std::uint32_t>(quotient_up(side.lines, side.width)));
  };
  settle(all.from, operands.x);
  settle(all.to, operands.y);
  return all;
}

}  // namespace kronsparse::cuda::mma
