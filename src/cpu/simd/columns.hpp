// Samples as lanes. For one (i, j), row l of X is contiguous along the batch, so
// the panel operand is X itself and the weights are the broadcast one. The rows
// l·d + j of X, far apart in memory, are copied a cache-sized run of samples at
// a time into slices [l][one panel's samples], which spares the kernel a TLB entry
// per row. A task copies the next one's rows between its tiles: rows a large power
// of two apart would push each other out of L2 if they waited there.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/cpu_info.hpp"
#include "cpu/run_operands.hpp"
#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {

template <class Real>
class ColumnsExecutor final : public ColumnsDriver {
 public:
  ColumnsExecutor(const Problem& problem, const KernelSet<Real>& kernels, std::string_view implementation,
                  bool on_one_thread)
      : problem_(problem),
        kernels_(kernels),
        seconds_alone_(on_one_thread ? 0 : seconds_alone(problem, kernels)),
        shape_(shape_of(problem)),
        depth_(shape_.depth * shape_.unit),
        columns_(shape_.batch * shape_.unit),
        tile_rows_(kernels.tile_rows[kernels.column_panel - 1]),
        slice_(kernels.column_panel * kernels.lanes),
        k_panels_((shape_.outs + tile_rows_ - 1) / tile_rows_) {
    choose_blocks();
    reserve_scratch(scratch_bytes(), threads_for(seconds_alone_));
    order_ = order_of(Driver::columns, problem, kernels, implementation);
    order_.bytes = count_of({shape_.a, shape_.d, k_panels_, depth_, tile_rows_}) * sizeof(Real);
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    pack_columns(problem_, shape_, tile_rows_, values, static_cast<Real*>(packed));
  }

  void run(const Operands& given, const Weights& weights) const override {
    const RunOperands operands(given, weights);
    parallel_ranges(tasks(), threads_for(seconds_alone_), scratch_bytes(),
                    [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                      run_tasks(operands, first, last, scratch);
                    });
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(slices_size() * (copies_ahead() ? 2 : 1) + sums_size_) * sizeof(Real);
  }
  // Neighbouring tasks share (i, j), whose weights then stay in cache.
  [[nodiscard]] std::int64_t tasks() const override {
    return shape_.a * j_units() * column_blocks() * panel_ranges();
  }
  void run_tasks(const RunOperands& operands, std::int64_t first, std::int64_t last,
                 std::byte* scratch) const override {
    const std::int64_t blocks = column_blocks();
    const std::int64_t ranges = panel_ranges();
    Real* sums = reinterpret_cast<Real*>(scratch);
    Real* slices = sums + sums_size_;
    Real* other_slices = slices + slices_size();
    bool is_copied = false;
    Outbox<Real> outbox;
    for (std::int64_t task = first; task < last; ++task) {
      const Part part = part_at(task, blocks, ranges);
      if (in_place_) {
        run_in_place(operands, part);
        continue;
      }
      Next next;
      next.outbox = sends() ? &outbox : nullptr;
      if (task + 1 < last) {
        next_of(operands.x, part, part_at(task + 1, blocks, ranges), next);
        next.slices = other_slices;
      }
      run_part(operands, part, slices, is_copied, sums, next);
      is_copied = copies_ahead();
      if (!copies_ahead() || next.rows == 0) continue;
      copy_rows(operands.x, next, next.rows);
      std::swap(slices, other_slices);
    }
    if (sends()) kernels_.send(outbox);
  }

 private:
  /// The work of one task: some outputs and columns of one product (i, j), or of neighbouring j.
  struct Part {
    std::int64_t product;  ///< i·d + j, of the first
    std::int64_t products;
    std::int64_t first_panel;
    std::int64_t last_panel;
    std::int64_t first_column;  ///< in reals
    std::int64_t columns;
  };

  /// The part of X that the next task needs; nothing where it has the same columns.
  struct Next {
    Part part = {};
    Real* slices = nullptr;
    std::int64_t rows = 0;
    std::int64_t copied = 0;
    std::int64_t tiles = 0;  ///< of this task, over which the work is spread
    std::int64_t tiles_done = 0;
    Prefetch prefetch = {};
    Outbox<Real>* outbox = nullptr;  ///< what this task wrote last; null where nothing waits
  };

  void choose_blocks();
  void choose_products();
  /// Whether a task finds all its slices copied. Sums cut in several parts copy as they go.
  [[nodiscard]] bool copies_ahead() const { return depth_block_ == depth_; }
  /// Whether Y waits to be sent: where there is more of it than of X.
  [[nodiscard]] bool sends() const {
    return stream_ && kernels_.send != nullptr && shape_.outs > shape_.depth;
  }
  [[nodiscard]] std::int64_t product_slices() const { return depth_block_ * column_block_padded(); }
  [[nodiscard]] std::int64_t slices_size() const { return products_ * product_slices(); }
  [[nodiscard]] std::int64_t j_units() const { return (shape_.d + products_ - 1) / products_; }
  [[nodiscard]] std::int64_t column_blocks() const { return (columns_ + column_block_ - 1) / column_block_; }
  [[nodiscard]] std::int64_t panel_ranges() const { return (k_panels_ + panel_range_ - 1) / panel_range_; }
  [[nodiscard]] std::int64_t column_block_padded() const {
    return (column_block_ + kernels_.lanes - 1) / kernels_.lanes * kernels_.lanes;
  }

  [[nodiscard]] Part part_at(std::int64_t task, std::int64_t blocks, std::int64_t ranges) const {
    Part part{};
    const std::int64_t unit = task / ranges / blocks;
    const std::int64_t first_j = unit % j_units() * products_;
    part.product = unit / j_units() * shape_.d + first_j;
    part.products = std::min(products_, shape_.d - first_j);
    part.first_panel = task % ranges * panel_range_;
    part.last_panel = std::min(part.first_panel + panel_range_, k_panels_);
    part.first_column = task / ranges % blocks * column_block_;
    part.columns = std::min(column_block_, columns_ - part.first_column);
    return part;
  }
  /// Rows of X that a part copies together, from term t on.
  [[nodiscard]] Prefetch prefetch_of(const void* x, const Part& part, std::int64_t t) const {
    const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(problem_)) / shape_.unit;
    const std::int64_t row =
        (part.product / shape_.d * shape_.depth + t / shape_.unit) * shape_.d + part.product % shape_.d;
    const std::int64_t stride = shape_.x_stride * shape_.unit * bytes;
    const auto* first = static_cast<const char*>(x) + row * stride + part.first_column * bytes;
    const std::int64_t terms = std::min(depth_block_, depth_ - t) / shape_.unit;
    return {{first, terms, (part.products - 1) * stride + part.columns * bytes, shape_.d * stride}};
  }
  [[nodiscard]] std::int64_t tiles_of(const Part& part) const {
    return (part.last_panel - part.first_panel) * part.products * ((part.columns + slice_ - 1) / slice_);
  }

  void next_of(const void* x, const Part& part, const Part& after, Next& next) const {
    next.part = after;
    if (after.product == part.product && after.first_column == part.first_column) return;
    next.rows = depth_block_ / shape_.unit;
    next.tiles = tiles_of(part);
    next.prefetch = prefetch_of(x, after, 0);
    next.prefetch.spread_over(next.tiles, depth_, sends());
  }
  /// Copies rows of X until `rows` of the next task's are there.
  void copy_rows(const void* x, Next& next, std::int64_t rows) const {
    for (; next.copied < rows; ++next.copied) copy_term(x, next.part, next.copied, 0, depth_, next.slices);
  }
  /// Between two tiles: rows that were asked for a tile ago or earlier.
  void copy_some_rows(const void* x, Next& next) const {
    copy_rows(x, next, next.rows * next.tiles_done / next.tiles);
    ++next.tiles_done;
  }

  // All columns of one panel before the next: Y is then written in few, long runs,
  // which is worth more than keeping a slice in L1 (tried: 2 to 3 times slower).
  void run_part(const RunOperands& operands, const Part& part, Real* slices, bool is_copied, Real* sums,
                Next& next) const {
    for (std::int64_t t = 0; t < depth_; t += depth_block_) {
      const std::int64_t t_end = std::min(t + depth_block_, depth_);
      if (!is_copied) {
        for (std::int64_t l = t / shape_.unit; l < t_end / shape_.unit; ++l)
          copy_term(operands.x, part, l, t, t_end, slices);
      }
      if (!copies_ahead()) {
        if (t_end < depth_) next.prefetch = prefetch_of(operands.x, part, t_end);
        if (t_end == depth_)
          next.prefetch = next.rows > 0 ? prefetch_of(operands.x, next.part, 0) : Prefetch{};
        next.prefetch.spread_over(tiles_of(part), t_end - t, sends());
      }
      Real* panel_sums = sums;
      for (std::int64_t panel = part.first_panel; panel < part.last_panel; ++panel) {
        for (std::int64_t product = 0; product < part.products; ++product) {
          Part one = part;
          one.product += product;
          run_panel(operands, one, panel, t, t_end, slices + product * (t_end - t) * column_block_padded(),
                    panel_sums, next);
          panel_sums += tile_rows_ * column_block_padded();
        }
      }
    }
  }

  /// Copies the rows of term l, those of all products of a part, to their places in the slices of [t, t_end).
  void copy_term(const void* x, const Part& part, std::int64_t l, std::int64_t t, std::int64_t t_end,
                 Real* slices) const {
    for (std::int64_t product = 0; product < part.products; ++product) {
      Part one = part;
      one.product += product;
      copy_row(x, one, l, t, t_end, slices + product * (t_end - t) * column_block_padded());
    }
  }
  /// The first column of a slice in its part: one that vectors do not fill overlaps the slice before, so that
  /// whole vectors leave. What lies in both is computed twice.
  [[nodiscard]] std::int64_t start_of(const Part& part, std::int64_t column, std::int64_t width) const {
    return shape_.unit == 1 ? std::max<std::int64_t>(0, std::min(column, part.columns - width)) : column;
  }

  void run_in_place(const RunOperands& operands, const Part& part) const;
  void copy_row(const void* x, const Part& part, std::int64_t l, std::int64_t t, std::int64_t t_end,
                Real* slices) const;
  void run_panel(const RunOperands& operands, const Part& part, std::int64_t panel, std::int64_t t,
                 std::int64_t t_end, const Real* slices, Real* sums, Next& next) const;

  Problem problem_;
  const KernelSet<Real>& kernels_;
  double seconds_alone_;
  Shape shape_;
  std::int64_t depth_;    ///< reals
  std::int64_t columns_;  ///< reals
  int tile_rows_;
  int slice_;  ///< reals of a full slice
  std::int64_t k_panels_;
  std::int64_t products_ = 1;  ///< neighbouring j of a task
  std::int64_t column_block_ = 0;
  std::int64_t depth_block_ = 0;
  std::int64_t panel_range_ = 0;
  std::int64_t sums_size_ = 0;
  bool stream_ = false;
  bool in_place_ = false;  ///< rows of X are read as they lie
  PackedOrder order_;
};

}  // namespace kronsparse::simd
