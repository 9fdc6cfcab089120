#include "cpu/turned.hpp"

#include <algorithm>

#include "cpu/cpu_info.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace {

using Half16 = std::uint16_t;
using Eight = Half16 __attribute__((vector_size(16)));

/// Lines of x that are turned together: 64 bytes of 16 samples. With 32 of them, rows that lie a power of two
/// apart push each other out of L1.
constexpr std::int64_t in_samples = 16, in_features = 32;
/// Samples whose results leave together: as many as fill a line of what they come from.
constexpr std::int64_t out_samples = 32;
/// Samples of a block, at most in so many of these: a multiple of every vector, slice and tile of a driver.
constexpr std::int64_t sample_unit = 192;
constexpr std::int64_t most_sample_units = 4;
constexpr std::int64_t fewest_samples = 32;

Eight load(const Half16* source) {
  Eight eight;
  __builtin_memcpy(&eight, source, sizeof eight);
  return eight;
}

/// Eight rows of eight become columns.
void turn_eight(const Half16* source, std::int64_t source_stride, Half16* target,
                std::int64_t target_stride) {
  Eight rows[8];
#pragma GCC unroll 8
  for (int m = 0; m < 8; ++m) rows[m] = load(source + m * source_stride);
    // Rows m and m + 4 element by element, three times over.
#pragma GCC unroll 3
  for (int round = 0; round < 3; ++round) {
    Eight mixed[8];
#pragma GCC unroll 4
    for (int m = 0; m < 4; ++m) {
      mixed[2 * m] = __builtin_shufflevector(rows[m], rows[m + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      mixed[2 * m + 1] = __builtin_shufflevector(rows[m], rows[m + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m) rows[m] = mixed[m];
  }
#pragma GCC unroll 8
  for (int m = 0; m < 8; ++m) __builtin_memcpy(target + m * target_stride, &rows[m], sizeof rows[m]);
}

/// Some features of some samples. Rows of x or y are samples, a stride apart; where features are rows, they
/// are `samples` apart.
struct Turn {
  std::int64_t samples;
  std::int64_t features;
  std::int64_t row_stride;
};

/// The last eight of what eight does not divide overlap those before them: they are turned once more.
std::int64_t first_of_eight(std::int64_t at, std::int64_t size) { return std::min(at, size - 8); }

/// The next part of each row is fetched meanwhile.
void turn_in(const Turn& turn, const Half16* x, Half16* columns) {
  if (turn.samples < 8 || turn.features < 8) {
    for (std::int64_t n = 0; n < turn.samples; ++n) {
      for (std::int64_t f = 0; f < turn.features; ++f)
        columns[f * turn.samples + n] = x[n * turn.row_stride + f];
    }
    return;
  }
  for (std::int64_t n = 0; n < turn.samples; n += in_samples) {
    const std::int64_t last_sample = std::min(n + in_samples, turn.samples);
    for (std::int64_t f = 0; f < turn.features; f += in_features) {
      const std::int64_t last_feature = std::min(f + in_features, turn.features);
      const Half16* const ahead = x + std::min(f + 3 * in_features, turn.features - 1);
      for (std::int64_t row = n; row < last_sample; ++row) __builtin_prefetch(ahead + row * turn.row_stride);
      for (std::int64_t feature = f; feature < last_feature; feature += 8) {
        const std::int64_t first = first_of_eight(feature, turn.features);
        for (std::int64_t sample = n; sample < last_sample; sample += 8) {
          const std::int64_t row = first_of_eight(sample, turn.samples);
          const Half16* const source = x + row * turn.row_stride + first;
          Half16* const target = columns + first * turn.samples + row;
          turn_eight(source, turn.row_stride, target, turn.samples);
        }
      }
    }
  }
}

void turn_out(const Turn& turn, const Half16* columns, Half16* y) {
  if (turn.samples < 8 || turn.features < 8) {
    for (std::int64_t n = 0; n < turn.samples; ++n) {
      for (std::int64_t f = 0; f < turn.features; ++f)
        y[n * turn.row_stride + f] = columns[f * turn.samples + n];
    }
    return;
  }
  for (std::int64_t n = 0; n < turn.samples; n += out_samples) {
    const std::int64_t last_sample = std::min(n + out_samples, turn.samples);
    for (std::int64_t feature = 0; feature < turn.features; feature += 8) {
      const std::int64_t first = first_of_eight(feature, turn.features);
      for (std::int64_t sample = n; sample < last_sample; sample += 8) {
        const std::int64_t row = first_of_eight(sample, turn.samples);
        const Half16* const source = columns + first * turn.samples + row;
        turn_eight(source, turn.samples, y + row * turn.row_stride + first, turn.row_stride);
      }
    }
  }
}

class TurnedExecutor final : public Executor {
 public:
  TurnedExecutor(const Problem& problem, double seconds_alone, const MakeColumns& make)
      : shape_(simd::shape_of(problem)), bias_(problem.bias), seconds_alone_(seconds_alone) {
    choose_blocks();
    const auto driver = [&](std::int64_t blocks, std::int64_t js, std::int64_t samples) {
      Problem part = turned(problem);
      const Pattern whole = problem.pattern();
      part.chain = Pattern{blocks, whole.b, whole.c, js};
      part.batch = samples;
      return make(part);
    };
    packer_ = driver(shape_.a, shape_.d, block_samples_);
    product_bytes_ = packer_->order().bytes / static_cast<std::size_t>(shape_.a * shape_.d);
    for (const bool last_i : {false, true}) {
      for (const bool last_j : {false, true}) {
        for (const bool last_n : {false, true}) {
          const std::int64_t blocks = last_i ? rest(shape_.a, unit_blocks_) : unit_blocks_;
          const std::int64_t js = last_j ? rest(shape_.d, unit_js_) : unit_js_;
          const std::int64_t samples = last_n ? rest(shape_.batch, block_samples_) : block_samples_;
          if (blocks == 0 || js == 0 || samples == 0) continue;
          auto& place = drivers_[last_i ? 1 : 0][last_j ? 1 : 0][last_n ? 1 : 0];
          place = driver(blocks, js, samples);
          driver_scratch_ = std::max(driver_scratch_, place->scratch_bytes());
        }
      }
    }
    simd::reserve_scratch(scratch_bytes(), threads_for(seconds_alone_));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return packer_->order(); }
  void pack(const void* values, void* packed, Stream stream) const override {
    packer_->pack(values, packed, stream);
  }
  void run(const Operands& given, const Weights& weights) const override {
    const RunOperands operands(given, weights);
    const std::int64_t tasks = parts(shape_.batch, block_samples_) * units();
    simd::parallel_ranges(tasks, threads_for(seconds_alone_), scratch_bytes(),
                          [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                            for (std::int64_t task = first; task < last; ++task)
                              run_task(operands, task, scratch);
                          });
  }

 private:
  static std::int64_t parts(std::int64_t total, std::int64_t part) { return (total + part - 1) / part; }
  /// The size of a smaller last part; 0 where all are alike.
  static std::int64_t rest(std::int64_t total, std::int64_t part) { return total % part; }
  [[nodiscard]] std::int64_t units() const {
    return parts(shape_.a, unit_blocks_) * parts(shape_.d, unit_js_);
  }
  [[nodiscard]] std::int64_t x_size() const {
    return unit_blocks_ * unit_js_ * shape_.depth * block_samples_;
  }
  [[nodiscard]] std::int64_t y_size() const { return unit_blocks_ * unit_js_ * shape_.outs * block_samples_; }
  /// Whole cache lines of elements.
  static std::size_t bytes_of(std::int64_t elements) {
    return (static_cast<std::size_t>(elements) * sizeof(Half16) + cache_line - 1) / cache_line * cache_line;
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return bytes_of(x_size()) + bytes_of(y_size()) + bytes_of(bias_ ? shape_.outs * unit_js_ : 0) +
           driver_scratch_;
  }

  void choose_blocks();
  void run_task(const RunOperands& operands, std::int64_t task, std::byte* scratch) const;

  simd::Shape shape_;
  bool bias_;
  double seconds_alone_;
  std::int64_t unit_blocks_ = 1;  ///< blocks i of a task
  std::int64_t unit_js_ = 1;      ///< neighbouring j of a task: all of them where it has several blocks
  std::int64_t block_samples_ = 1;
  std::unique_ptr<ColumnsDriver> packer_;            ///< for the whole pattern
  std::unique_ptr<ColumnsDriver> drivers_[2][2][2];  ///< for whole and last parts of i, j and samples
  std::size_t product_bytes_ = 0;
  std::size_t driver_scratch_ = 0;
};

void TurnedExecutor::choose_blocks() {
  // x and y of a task fill half of L2, the driver's copies another quarter.
  const std::int64_t room = static_cast<std::int64_t>(cpu_info().l2_bytes) / 2;
  const std::int64_t product_sample =
      (shape_.depth + shape_.outs) * static_cast<std::int64_t>(sizeof(Half16));
  const auto fits = [&](std::int64_t js) { return room / (product_sample * js * sample_unit); };
  if (fits(shape_.d) >= 1) {
    unit_js_ = shape_.d;
    unit_blocks_ = simd::even_block(shape_.a, fits(shape_.d), 1);
  } else {
    // A line of j at a time, or more.
    const std::int64_t js =
        std::clamp(fits(1) / in_features * in_features, in_features, std::max(shape_.d, in_features));
    unit_js_ = simd::even_block(shape_.d, js, 1);
  }
  // Long sums and many outputs leave room for fewer samples.
  std::int64_t samples = room / (product_sample * unit_js_ * unit_blocks_);
  samples = std::clamp(samples / fewest_samples * fewest_samples, fewest_samples, sample_unit);
  if (samples == sample_unit)
    samples = std::clamp(room / (product_sample * unit_js_ * unit_blocks_) / sample_unit, std::int64_t{1},
                         most_sample_units) *
              sample_unit;
  block_samples_ = simd::even_block(shape_.batch, samples, 8);
  // Several tasks for each thread; a block of samples that is smaller costs little.
  const std::int64_t threads = threads_for(seconds_alone_);
  const std::int64_t wanted = (4 * threads + units() - 1) / units();
  if (threads > 1 && parts(shape_.batch, block_samples_) < wanted)
    block_samples_ = std::min(
        block_samples_, std::max(simd::even_block(shape_.batch, parts(shape_.batch, wanted), fewest_samples),
                                 fewest_samples));
}

void TurnedExecutor::run_task(const RunOperands& operands, std::int64_t task, std::byte* scratch) const {
  // Neighbouring tasks have the same samples: where rows do not end with a line, its other part is there.
  const std::int64_t j_parts = parts(shape_.d, unit_js_);
  const std::int64_t first_sample = task / units() * block_samples_;
  const std::int64_t samples = std::min(block_samples_, shape_.batch - first_sample);
  const std::int64_t first_i = task % units() / j_parts * unit_blocks_;
  const std::int64_t blocks = std::min(unit_blocks_, shape_.a - first_i);
  const std::int64_t first_j = task % units() % j_parts * unit_js_;
  const std::int64_t js = std::min(unit_js_, shape_.d - first_j);
  const ColumnsDriver& driver =
      *drivers_[blocks < unit_blocks_ ? 1 : 0][js < unit_js_ ? 1 : 0][samples < block_samples_ ? 1 : 0];

  auto* const x = reinterpret_cast<Half16*>(scratch);
  auto* const y = reinterpret_cast<Half16*>(scratch + bytes_of(x_size()));
  auto* const bias = reinterpret_cast<Half16*>(scratch + bytes_of(x_size()) + bytes_of(y_size()));
  std::byte* const of_driver = scratch + (scratch_bytes() - driver_scratch_);

  // Runs of neighbouring features: all of them, or the j of one term.
  const bool whole = js == shape_.d;
  const auto* from = static_cast<const Half16*>(operands.x) + first_sample * shape_.x_stride +
                     first_i * shape_.depth * shape_.d + first_j;
  const Turn in{samples, whole ? blocks * shape_.depth * js : js, shape_.x_stride};
  for (std::int64_t l = 0; l < (whole ? 1 : shape_.depth); ++l)
    turn_in(in, from + l * shape_.d, x + l * js * samples);

  RunOperands part = operands;
  part.x = x;
  part.y = y;
  part.weights = static_cast<const std::byte*>(operands.weights) +
                 static_cast<std::size_t>(first_i * shape_.d + first_j) * product_bytes_;
  if (bias_) {
    const auto* all = static_cast<const Half16*>(operands.bias) + first_i * shape_.outs * shape_.d + first_j;
    part.bias = all;
    if (!whole) {
      for (std::int64_t k = 0; k < shape_.outs; ++k) std::copy_n(all + k * shape_.d, js, bias + k * js);
      part.bias = bias;
    }
  }
  driver.run_tasks(part, 0, driver.tasks(), of_driver);

  auto* to = static_cast<Half16*>(operands.y) + first_sample * shape_.y_stride +
             first_i * shape_.outs * shape_.d + first_j;
  const Turn out{samples, whole ? blocks * shape_.outs * js : js, shape_.y_stride};
  for (std::int64_t k = 0; k < (whole ? 1 : shape_.outs); ++k)
    turn_out(out, y + k * js * samples, to + k * shape_.d);
}

}  // namespace

bool can_be_turned(const Problem& problem) {
  return (problem.dtype == DType::f16 || problem.dtype == DType::bf16) &&
         problem.operation != Operation::gradient && problem.layout == Layout::batch_first &&
         problem.batch >= fewest_samples;
}

Problem turned(Problem problem) {
  problem.layout = Layout::batch_last;
  problem.cols_stride = 0;
  problem.rows_stride = 0;
  return problem;
}

double turning_seconds(const Problem& problem) {
  // Neoverse N1. Runs of a few j, where all of them do not fit L2, are fetched in parts of lines.
  constexpr double seconds_per_element = 3.2e-10, seconds_in_short_runs = 7.5e-10;
  const Pattern& pattern = problem.pattern();
  const auto of_block = static_cast<double>((pattern.b + pattern.c) * pattern.d);
  const bool fits = of_block * sizeof(Half16) * sample_unit <= static_cast<double>(cpu_info().l2_bytes) / 2;
  return of_block * static_cast<double>(pattern.a) * static_cast<double>(problem.batch) *
         (fits ? seconds_per_element : seconds_in_short_runs);
}

std::unique_ptr<Executor> make_turned(const Problem& problem, double seconds_alone, const MakeColumns& make) {
  return std::make_unique<TurnedExecutor>(problem, seconds_alone, make);
}

}  // namespace kronsparse
