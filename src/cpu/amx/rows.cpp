// Samples as rows of tiles. All j of a small d, or 16 of a large one, are taken together: X is read in long
// runs and sorted by j on its way into strips, sums are interleaved on their way to Y.

#include <algorithm>
#include <bit>

#include "cpu/amx/drivers.hpp"
#include "cpu/amx/weights.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/run_operands.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::amx {
namespace {

/// Up to so many outputs X is not packed where it lies as tiles want it: the first read of a row is as slow
/// as packing it, and the others find it in L2.
constexpr std::int64_t in_place_outs = 256;

class RowsExecutor final : public Executor {
 public:
  explicit RowsExecutor(const Job& job)
      : job_(job),
        shape_(simd::shape_of(job.problem)),
        group_(j_block(shape_.d)),
        weights_(shape_, job.problem.dtype, job.problem.operation, job.kernels.implementation) {
    choose_block();
    simd::reserve_scratch(scratch_bytes(), threads_for(job.seconds_alone));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return weights_.order(); }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    weights_.pack(job_.problem, values, static_cast<std::byte*>(packed));
  }

  void run(const Operands& given, const Weights& weights) const override {
    const RunOperands operands(given, weights);
    const std::int64_t blocks = (shape_.batch + sample_block_ - 1) / sample_block_;
    const std::int64_t tasks = products() * blocks;
    const auto run_range = [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
      auto* sums = reinterpret_cast<float*>(scratch + 2 * block_bytes());
      const auto make = [&](std::int64_t task, std::int64_t place) {
        return block_at(task, blocks, operands, scratch + place * block_bytes());
      };
      const auto compute = [&](Block& block, Block& next) {
        pack_until(block, block.rows);
        run_block(operands, block, next, sums);
      };
      run_in_turn(job_.kernels, first, last, make, compute);
    };
    simd::parallel_ranges(tasks, threads_for(job_.seconds_alone), scratch_bytes(), run_range);
  }

 private:
  /// The work of one task, some samples of J neighbouring j of block i, and its X on the way into strips,
  /// [16 samples][j].
  struct Block {
    std::int64_t i = 0;
    std::int64_t first_j = 0;
    std::int64_t first_sample = 0;
    std::int64_t samples = 0;
    std::int64_t rows = 0;  ///< samples, filled up to whole strips
    std::int64_t packed = 0;
    const std::uint16_t* x = nullptr;
    std::byte* strips = nullptr;
    Prefetch prefetch = {};
  };

  void choose_block();
  [[nodiscard]] std::int64_t products() const { return shape_.a * (shape_.d / group_); }
  [[nodiscard]] std::int64_t group_bytes() const {
    return group_ * weights_.x_strip_bytes();
  }  ///< 16 samples
  [[nodiscard]] std::int64_t block_strips() const { return (sample_block_ + tile_rows - 1) / tile_rows; }
  [[nodiscard]] std::int64_t block_bytes() const { return block_strips() * group_bytes(); }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(2 * block_bytes()) +
           static_cast<std::size_t>(2 * block_strips() * group_ * tile_sums) * sizeof(float);
  }
  [[nodiscard]] int log_group() const { return std::countr_zero(static_cast<unsigned>(group_)); }

  [[nodiscard]] Block block_at(std::int64_t task, std::int64_t blocks, const Operands& operands,
                               std::byte* strips) const {
    const std::int64_t groups = shape_.d / group_;
    const std::int64_t set = task / (blocks * together_), in_set = task % (blocks * together_);
    const std::int64_t product = set * together_ + in_set % together_;
    Block block;
    block.i = product / groups;
    block.first_j = product % groups * group_;
    block.first_sample = in_set / together_ * sample_block_;
    block.samples = std::min(sample_block_, shape_.batch - block.first_sample);
    block.rows = (block.samples + tile_rows - 1) / tile_rows * tile_rows;
    block.x = static_cast<const std::uint16_t*>(operands.x) + block.first_sample * shape_.x_stride +
              block.i * shape_.depth * shape_.d + block.first_j;
    block.strips = strips;
    block.prefetch.row = reinterpret_cast<const char*>(block.x);
    block.prefetch.rows = block.samples;
    block.prefetch.row_bytes = (shape_.depth * shape_.d - block.first_j) * 2;
    block.prefetch.row_stride = shape_.x_stride * 2;
    block.prefetch.step = std::max(Prefetch::line, group_ == 16 ? shape_.d * 2 : 0);
    // Lines of Y have to be there before they are written: those of all j with the first of them, unless the
    // others come much later.
    if (!streams(operands) && block.first_j == 0 && together_ >= groups) {
      const auto* y = static_cast<const std::uint16_t*>(operands.y) + block.first_sample * shape_.y_stride +
                      block.i * shape_.outs * shape_.d;
      block.prefetch.later = {reinterpret_cast<const char*>(y), block.samples, shape_.outs * shape_.d * 2,
                              shape_.y_stride * 2};
    }
    const std::int64_t calls = (weights_.strips() + 1) / 2 * group_ * ((block_strips() + 1) / 2);
    block.prefetch.spread_over_calls(calls * weights_.x_tiles());
    return block;
  }
  /// Packs samples until `row` of them are there.
  void pack_until(Block& block, std::int64_t row) const {
    PackRowsArgs args{};
    args.sample_stride = shape_.x_stride;
    args.term_stride = shape_.d;
    args.terms = shape_.depth;
    args.strip_step = weights_.x_strip_bytes();
    while (block.packed < row) {
      const std::int64_t first = block.packed / tile_rows * tile_rows;
      args.x = block.x + first * shape_.x_stride;
      args.samples = static_cast<int>(std::min<std::int64_t>(tile_rows, block.samples - first));
      args.first_term = tiles_in_place(block, first / tile_rows) * tile_terms;
      args.first_row = static_cast<int>(block.packed - first);
      args.last_row = static_cast<int>(std::min<std::int64_t>(tile_rows, row - first));
      args.strips = block.strips + first / tile_rows * group_bytes();
      job_.halves().pack_rows[log_group()](args);
      block.packed = first + args.last_row;
    }
  }

  /// Tiles of a strip, and of the one it is multiplied with, that are read where they lie in X: none unless
  /// all their samples are there.
  [[nodiscard]] std::int64_t tiles_in_place(const Block& block, std::int64_t strip) const {
    const std::int64_t end = std::min((strip / 2 + 1) * 2 * tile_rows, block.rows);
    return end <= block.samples ? in_place_tiles_ : 0;
  }

  void run_block(const RunOperands& operands, const Block& block, Block& next, float* sums) const;
  void run_products(const RunOperands& operands, const Block& block, std::int64_t j, std::int64_t k,
                    float* sums, Block& next) const;
  template <class Args>
  [[nodiscard]] Args finish_args(const Operands& operands, const Block& block, std::int64_t strip,
                                 std::int64_t column, const float* sums) const;
  void finish(const Operands& operands, const Block& block, std::int64_t strip, std::int64_t k,
              const float* sums) const;
  void finish_pair(const Operands& operands, const Block& block, std::int64_t strip, std::int64_t k,
                   const float* sums) const;
  /// Whether Y is written around the caches: where all its lines belong to one strip or pair of strips.
  [[nodiscard]] bool streams(const Operands& operands) const {
    return stream_ && simd::on_cache_line(operands.y);
  }

  Job job_;
  simd::Shape shape_;
  int group_;  ///< J: neighbouring j that are taken together
  PackedWeights weights_;
  std::int64_t sample_block_ = 0;
  /// Products whose tasks of the same samples are neighbours: lines of X and Y may belong to several of them.
  /// Otherwise tasks of the same weights are.
  std::int64_t together_ = 1;
  bool stream_ = false;              ///< if y is on a cache line
  std::int64_t in_place_tiles_ = 0;  ///< of strips whose samples are all there
};

void RowsExecutor::choose_block() {
  constexpr std::int64_t pair = std::int64_t{2} * tile_rows;
  const auto l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
  // Weights that stay in L2 need few samples to meet them, enough to be worth a task: X, sums and Y of these
  // then stay in L1. Others come from further away for every block, which is then as large as L2 holds.
  const auto l1 = static_cast<std::int64_t>(cpu_info().l1_bytes);
  std::int64_t samples = l1 / 6 / (group_ * shape_.depth * 2 * weights_.pieces());
  if (weights_.strips() * group_ * weights_.strip_bytes() > l2 / 4)
    samples = std::max(samples, l2 * 5 / 16 / group_bytes() * tile_rows);
  samples = std::clamp<std::int64_t>(samples, pair, 256);
  const std::int64_t threads = threads_for(job_.seconds_alone);
  if (threads > 1) samples = std::max(pair, std::min(samples, shape_.batch * products() / (4 * threads)));
  sample_block_ = simd::even_block(shape_.batch, samples, pair);
  stream_ = simd::writes_around_caches(job_.problem) && (group_ < 16 || shape_.d == 16) &&
            simd::whole_cache_lines<std::uint16_t>(shape_.y_stride) &&
            simd::whole_cache_lines<std::uint16_t>(shape_.outs * shape_.d);
  if (group_ == 1 && weights_.pieces() == 1 && shape_.outs <= in_place_outs)
    in_place_tiles_ = shape_.depth / tile_terms;
  // All of them, or all j of a block i, as long as their weights stay in L2.
  const auto weights = static_cast<std::int64_t>(weights_.bytes());
  if (weights <= l2 / 4) {
    together_ = products();
  } else if (weights / shape_.a <= l2 / 4) {
    together_ = shape_.d / group_;
  }
}

/// One j, two strips of outputs, all samples of the block.
void RowsExecutor::run_products(const RunOperands& operands, const Block& block, std::int64_t j,
                                std::int64_t k, float* sums, Block& next) const {
  const std::int64_t product = block.i * shape_.d + block.first_j + j;
  const std::int64_t b_strips = std::min<std::int64_t>(2, weights_.strips() - k);
  ProductArgs args{};
  args.tiles = weights_.x_tiles();
  args.a_pieces = 1;
  args.b_pieces = weights_.pieces();
  args.in_place_stride = shape_.x_stride * 2;
  // Strips of outputs side by side, or tiles of all j one after the other.
  args.c_stride = group_ == 1 ? 2 * tile_rows : tile_rows;
  args.c_a_step = std::int64_t{2} * group_ * tile_sums;
  args.c_b_step = group_ == 1 ? tile_rows : group_ * tile_sums;
  for (std::int64_t s = 0; s < b_strips; ++s) args.b[s] = weights_.strip(operands.weights, product, k + s);
  const std::int64_t strips = block.rows / tile_rows;
  for (std::int64_t m = 0; m < strips; m += 2) {
    const std::int64_t a_strips = std::min<std::int64_t>(2, strips - m);
    for (std::int64_t r = 0; r < a_strips; ++r) {
      args.a[r] = block.strips + (m + r) * group_bytes() + j * weights_.x_strip_bytes();
      args.in_place[r] = reinterpret_cast<const std::byte*>(block.x + (m + r) * tile_rows * shape_.x_stride);
    }
    args.in_place_tiles = tiles_in_place(block, m);
    args.c = sums + (2 * m * group_ + j) * tile_sums;
    args.next_x = next.prefetch.rows > 0 ? &next.prefetch : nullptr;
    job_.kernels.product[a_strips - 1][b_strips - 1](args);
  }
}

void RowsExecutor::run_block(const RunOperands& operands, const Block& block, Block& next,
                             float* sums) const {
  const std::int64_t all = (weights_.strips() + 1) / 2 * group_;
  std::int64_t done = 0;
  for (std::int64_t k = 0; k < weights_.strips(); k += 2) {
    for (std::int64_t j = 0; j < group_; ++j) {
      run_products(operands, block, j, k, sums, next);
      // Samples that were asked for some products ago or earlier.
      pack_until(next, next.rows * done / all);
      ++done;
    }
    for (std::int64_t m = 0; m < block.rows / tile_rows; ++m) {
      const float* of_pair = sums + 2 * m * group_ * tile_sums;
      if (group_ == 1) {
        finish_pair(operands, block, m, k, of_pair);
        continue;
      }
      for (std::int64_t s = 0; s < std::min<std::int64_t>(2, weights_.strips() - k); ++s)
        finish(operands, block, m, k + s, of_pair + s * group_ * tile_sums);
    }
  }
}

/// Outputs of strip k, or of k and k + 1, and a strip of samples: what both ways to Y are told alike.
template <class Args>
Args RowsExecutor::finish_args(const Operands& operands, const Block& block, std::int64_t strip,
                               std::int64_t column, const float* sums) const {
  Args args{};
  args.c = sums;
  args.rows = static_cast<int>(std::min<std::int64_t>(tile_rows, block.samples - strip * tile_rows));
  args.activation = shape_.activation;
  args.y = static_cast<std::uint16_t*>(operands.y) +
           (block.first_sample + strip * tile_rows) * shape_.y_stride + column;
  args.y_stride = shape_.y_stride;
  args.stream = streams(operands);
  return args;
}

void RowsExecutor::finish(const Operands& operands, const Block& block, std::int64_t strip, std::int64_t k,
                          const float* sums) const {
  const std::int64_t first_out = k * tile_rows;
  const std::int64_t column = (block.i * shape_.outs + first_out) * shape_.d + block.first_j;
  auto args = finish_args<FinishArgs>(operands, block, strip, column, sums);
  args.reals = static_cast<int>(std::min<std::int64_t>(tile_rows, shape_.outs - first_out) * group_);
  if (job_.problem.bias) args.bias = static_cast<const std::uint16_t*>(operands.bias) + column;
  args.vector_step = group_ == 16 ? shape_.d : 16;
  job_.halves().finish[log_group() - 1](args);
}

void RowsExecutor::finish_pair(const Operands& operands, const Block& block, std::int64_t strip,
                               std::int64_t k, const float* sums) const {
  const std::int64_t first_out = k * tile_rows;
  const std::int64_t column = block.i * shape_.outs + first_out;
  auto args = finish_args<FinishPairArgs>(operands, block, strip, column, sums);
  args.reals = static_cast<int>(std::min<std::int64_t>(2 * tile_rows, shape_.outs - first_out));
  if (job_.problem.bias) args.vector_bias = static_cast<const std::uint16_t*>(operands.bias) + column;
  job_.halves().finish_pair(args);
}

}  // namespace

std::unique_ptr<Executor> make_rows(const Job& job) { return std::make_unique<RowsExecutor>(job); }

}  // namespace kronsparse::amx
