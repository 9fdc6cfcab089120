// Samples as columns of tiles. For one (i, j), rows l·d + j of X are terms: they are packed a block of
// samples at a time, those of the next block between the products of this one, after they were prefetched.

#include <algorithm>

#include "cpu/amx/drivers.hpp"
#include "cpu/amx/weights.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/run_operands.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::amx {
namespace {

constexpr std::int64_t sums_stride = std::int64_t{2} * tile_rows;

class ColumnsExecutor final : public ColumnsDriver {
 public:
  explicit ColumnsExecutor(const Job& job)
      : job_(job),
        shape_(simd::shape_of(job.problem)),
        weights_(shape_, job.problem.dtype, job.problem.operation, job.kernels.implementation) {
    const auto l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
    const std::int64_t threads = threads_for(job.seconds_alone);
    constexpr std::int64_t pair = std::int64_t{2} * tile_rows;
    std::int64_t columns = std::min<std::int64_t>(l2 / 4 / weights_.x_strip_bytes() * tile_rows, 2048);
    if (threads > 1) columns = std::min(columns, shape_.batch * shape_.a * shape_.d / (4 * threads));
    column_block_ = simd::even_block(shape_.batch, std::max(columns, pair), pair);
    stream_ = simd::writes_around_caches(job.problem) &&
              simd::whole_cache_lines<std::uint16_t>(shape_.d * shape_.y_stride);
    simd::reserve_scratch(scratch_bytes(), static_cast<int>(threads));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return weights_.order(); }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    weights_.pack(job_.problem, values, static_cast<std::byte*>(packed));
  }

  void run(const Operands& given, const Weights& weights) const override {
    const RunOperands operands(given, weights);
    simd::parallel_ranges(tasks(), threads_for(job_.seconds_alone), scratch_bytes(),
                          [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                            run_tasks(operands, first, last, scratch);
                          });
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(2 * block_bytes()) + 4 * tile_sums * sizeof(float);
  }
  // Neighbouring tasks share (i, j), whose weights then stay in cache.
  [[nodiscard]] std::int64_t tasks() const override { return shape_.a * shape_.d * column_blocks(); }
  void run_tasks(const RunOperands& operands, std::int64_t first, std::int64_t last,
                 std::byte* scratch) const override {
    auto* sums = reinterpret_cast<float*>(scratch + 2 * block_bytes());
    const auto make = [&](std::int64_t task, std::int64_t place) {
      return block_at(task, column_blocks(), operands.x, scratch + place * block_bytes());
    };
    const auto compute = [&](Block& block, Block& next) {
      pack_until(block, lines());
      run_block(operands, block, next, sums);
    };
    run_in_turn(job_.kernels, first, last, make, compute);
  }

 private:
  /// The work of one task, some columns of product (i, j), and its X on the way into strips.
  struct Block {
    std::int64_t product = 0;  ///< i·d + j
    std::int64_t first_column = 0;
    PackColumnsArgs pack = {};  ///< of the lines that come next
    Prefetch prefetch = {};
  };

  [[nodiscard]] std::int64_t lines() const { return weights_.x_tiles() * tile_terms / 2; }
  [[nodiscard]] std::int64_t block_bytes() const {
    return (column_block_ + tile_rows - 1) / tile_rows * weights_.x_strip_bytes();
  }
  [[nodiscard]] std::int64_t column_blocks() const {
    return (shape_.batch + column_block_ - 1) / column_block_;
  }

  [[nodiscard]] Block block_at(std::int64_t task, std::int64_t blocks, const void* x,
                               std::byte* strips) const {
    Block block;
    block.product = task / blocks;
    block.first_column = task % blocks * column_block_;
    const std::int64_t row = block.product / shape_.d * shape_.depth * shape_.d + block.product % shape_.d;
    block.pack.x = static_cast<const std::uint16_t*>(x) + row * shape_.x_stride + block.first_column;
    block.pack.term_stride = shape_.d * shape_.x_stride;
    block.pack.terms = shape_.depth;
    block.pack.columns = std::min(column_block_, shape_.batch - block.first_column);
    block.pack.strips = strips;
    block.prefetch.row = reinterpret_cast<const char*>(block.pack.x);
    block.prefetch.rows = shape_.depth;
    block.prefetch.row_bytes = block.pack.columns * 2;
    block.prefetch.row_stride = block.pack.term_stride * 2;
    block.prefetch.spread_over_calls(products(column_block_) * weights_.x_tiles());
    return block;
  }
  [[nodiscard]] std::int64_t products(std::int64_t columns) const {
    return (weights_.strips() + 1) / 2 * ((columns + 2 * tile_rows - 1) / (2 * tile_rows));
  }
  void pack_until(Block& block, std::int64_t line) const {
    if (line <= block.pack.first_line) return;
    block.pack.last_line = line;
    job_.halves().pack_columns(block.pack);
    block.pack.first_line = line;
  }

  void run_block(const RunOperands& operands, const Block& block, Block& next, float* sums) const;
  void finish(const Operands& operands, const Block& block, std::int64_t k, std::int64_t n, const float* sums,
              const float* bias) const;
  /// Y's row of the first output of strip k.
  [[nodiscard]] std::int64_t first_row(std::int64_t product, std::int64_t k) const {
    return (product / shape_.d * shape_.outs + k * tile_rows) * shape_.d + product % shape_.d;
  }
  /// Widens the bias of the outputs of strips k and k + 1.
  void widen_bias(const void* bias, std::int64_t product, std::int64_t k, float* widened) const {
    const std::int64_t outs = std::min<std::int64_t>(2 * tile_rows, shape_.outs - k * tile_rows);
    const std::int64_t first = first_row(product, k);
    const auto widen = [&]<class T>(const T* all) {
      for (std::int64_t m = 0; m < outs; ++m) widened[m] = static_cast<float>(all[first + m * shape_.d]);
    };
    if (job_.problem.dtype == DType::f16)
      widen(static_cast<const Half*>(bias));
    else
      widen(static_cast<const BFloat16*>(bias));
  }

  Job job_;
  simd::Shape shape_;
  PackedWeights weights_;
  std::int64_t column_block_ = 0;
  bool stream_ = false;  ///< Y is written around the caches, where its lines are whole
};

void ColumnsExecutor::run_block(const RunOperands& operands, const Block& block, Block& next,
                                float* sums) const {
  const std::int64_t strips = (block.pack.columns + tile_rows - 1) / tile_rows;
  const std::int64_t all = products(block.pack.columns);
  std::int64_t done = 0;
  ProductArgs args{};
  args.tiles = weights_.x_tiles();
  args.a_pieces = weights_.pieces();
  args.b_pieces = 1;
  args.c = sums;
  args.c_stride = sums_stride;
  args.c_a_step = std::int64_t{2} * tile_sums;
  args.c_b_step = tile_rows;
  // All samples of two strips of outputs before the next: Y is written in few, long runs.
  for (std::int64_t k = 0; k < weights_.strips(); k += 2) {
    const std::int64_t a_strips = std::min<std::int64_t>(2, weights_.strips() - k);
    for (std::int64_t r = 0; r < a_strips; ++r)
      args.a[r] = weights_.strip(operands.weights, block.product, k + r);
    float bias[2 * tile_rows] = {};
    if (job_.problem.bias) widen_bias(operands.bias, block.product, k, bias);
    for (std::int64_t n = 0; n < strips; n += 2) {
      const std::int64_t b_strips = std::min<std::int64_t>(2, strips - n);
      for (std::int64_t s = 0; s < b_strips; ++s)
        args.b[s] = block.pack.strips + (n + s) * weights_.x_strip_bytes();
      args.next_x = next.prefetch.rows > 0 ? &next.prefetch : nullptr;
      job_.kernels.product[a_strips - 1][b_strips - 1](args);
      for (std::int64_t r = 0; r < a_strips; ++r)
        finish(operands, block, k + r, n, sums + r * args.c_a_step,
               job_.problem.bias ? bias + r * tile_rows : nullptr);
      // Rows that were asked for a product ago or earlier.
      if (next.pack.columns > 0) pack_until(next, lines() * done / all);
      ++done;
    }
  }
}

/// The outputs of strip k, the samples of strips n and n + 1.
void ColumnsExecutor::finish(const Operands& operands, const Block& block, std::int64_t k, std::int64_t n,
                             const float* sums, const float* bias) const {
  FinishPairArgs args{};
  args.c = sums;
  args.rows = static_cast<int>(std::min<std::int64_t>(tile_rows, shape_.outs - k * tile_rows));
  args.reals = static_cast<int>(std::min(sums_stride, block.pack.columns - n * tile_rows));
  args.row_bias = bias;
  args.activation = shape_.activation;
  args.y = static_cast<std::uint16_t*>(operands.y) + first_row(block.product, k) * shape_.y_stride +
           block.first_column + n * tile_rows;
  args.y_stride = shape_.d * shape_.y_stride;
  args.stream = stream_ && simd::on_cache_line(args.y);
  job_.halves().finish_pair(args);
}

}  // namespace

std::unique_ptr<ColumnsDriver> make_columns(const Job& job) { return std::make_unique<ColumnsExecutor>(job); }

}  // namespace kronsparse::amx
