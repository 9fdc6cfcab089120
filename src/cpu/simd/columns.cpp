// Samples as lanes. For one (i, j), row l of X is contiguous along the batch, so
// the panel operand is X itself and the weights are the broadcast one. The rows
// l·d + j of X, far apart in memory, are copied a cache-sized run of samples at
// a time into slices [l][one panel's samples], which spares the kernel a TLB entry
// per row. A task copies the next one's rows between its tiles: rows a large power
// of two apart would push each other out of L2 if they waited there.

#include <algorithm>
#include <cstring>

#include "cpu/cpu_info.hpp"
#include "cpu/run_operands.hpp"
#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {
namespace {

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

template <class Real>
void ColumnsExecutor<Real>::choose_blocks() {
  const std::int64_t real = sizeof(Real);
  const std::int64_t l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
  const std::int64_t products = shape_.a * shape_.d;
  const std::int64_t threads = threads_for(seconds_alone_);

  // All of the depth where at least one slice of it fits half of L2.
  depth_block_ = even_block(depth_, l2 / 2 / (slice_ * real), 2);
  std::int64_t columns = l2 / 4 / (depth_block_ * real);
  columns = std::min<std::int64_t>(columns, 2048);
  if (depth_block_ < depth_) columns = slice_;
  // Short pieces of rows far apart come slowly from memory, which those of a turned block are not. Where all
  // sums of longer ones fit L2, they wait there while x is read some terms at a time.
  const bool from_memory = seconds_alone_ > 0;
  constexpr std::int64_t short_piece = 256, long_piece = 512, fewest_terms = 64;
  const std::int64_t most_sums = l2 / 4 / (k_panels_ * tile_rows_ * real);
  if (from_memory && shape_.unit == 1 && columns < std::min(columns_, short_piece) &&
      most_sums >= std::min(columns_, short_piece)) {
    columns = std::max<std::int64_t>(slice_, std::min(most_sums, long_piece) / slice_ * slice_);
    columns = std::min(columns, (columns_ + slice_ - 1) / slice_ * slice_);
    depth_block_ = even_block(depth_, std::max(fewest_terms, l2 / 4 / (columns * real)), 2);
  }
  column_block_ = even_block(columns_, columns, slice_);
  if (from_memory) choose_products();
  // The order of a sum must not depend on the number of threads: from here on depth_block_ stays.
  if (threads > 1) {
    columns = std::min(columns, std::max<std::int64_t>(slice_, columns_ * products / (4 * threads)));
    column_block_ = even_block(columns_, columns, slice_);
    products_ = even_block(shape_.d, std::min(products_, products / (4 * threads)), 1);
  }
  stream_ = writes_around_caches(problem_);
  in_place_ = seconds_alone_ == 0 && columns_ >= slice_ && columns_may_lie(shape_, kernels_);
  if (in_place_) column_block_ = columns_;

  panel_range_ = k_panels_;
  const std::int64_t tasks = shape_.a * j_units() * column_blocks();
  if (threads > 1 && tasks < 2 * threads)
    panel_range_ = std::max<std::int64_t>(1, k_panels_ * tasks / (4 * threads));
  if (depth_block_ < depth_) {
    const std::int64_t panel_sums = tile_rows_ * products_ * column_block_padded();
    panel_range_ = std::clamp<std::int64_t>(l2 / 4 / (panel_sums * real), 1, panel_range_);
    sums_size_ = panel_range_ * panel_sums;
  }
}

/// Rows of neighbouring j lie side by side. Where they are short, several products are computed together: X
/// is read and Y written in longer runs. Not where arithmetic decides and a product's x stays in L1, which
/// that of several would leave.
template <class Real>
void ColumnsExecutor<Real>::choose_products() {
  constexpr std::int64_t long_run = 512, fewest_terms = 64, flops_of_real = 32;
  const std::int64_t real = sizeof(Real);
  const auto l1 = static_cast<std::int64_t>(cpu_info().l1_bytes);
  const std::int64_t l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
  if (shape_.unit != 1 || column_block_ < columns_ || columns_ >= long_run || shape_.x_stride != shape_.batch)
    return;
  const bool memory_decides = shape_.outs * depth_ < flops_of_real * (shape_.outs + depth_);
  if (!memory_decides && slice_ * depth_block_ * real <= l1) return;
  const std::int64_t wanted = std::min(shape_.d, (long_run + columns_ - 1) / columns_);
  const std::int64_t terms =
      std::min(depth_block_, std::max(std::min(depth_, fewest_terms), depth_block_ / wanted));
  std::int64_t most = std::min(wanted, l2 / 4 / (column_block_padded() * terms * real));
  if (terms < depth_) most = std::min(most, l2 / 4 / (k_panels_ * tile_rows_ * column_block_padded() * real));
  if (most < 2) return;
  products_ = even_block(shape_.d, most, 1);
  depth_block_ =
      even_block(depth_, std::min(depth_block_, l2 / 4 / (column_block_padded() * products_ * real)), 2);
}

template <class Real>
void ColumnsExecutor<Real>::run_in_place(const RunOperands& operands, const Part& part) const {
  if constexpr (sizeof(Real) == sizeof(float)) {
    const std::int64_t i = part.product / shape_.d;
    const std::int64_t j = part.product % shape_.d;
    ColumnsArgs args{};
    args.x = static_cast<const std::uint16_t*>(operands.x) +
             (i * shape_.depth * shape_.d + j) * shape_.x_stride + part.first_column;
    args.x_stride = shape_.d * shape_.x_stride;
    args.depth = depth_;
    args.weights_step = tile_rows_;
    args.y_stride = shape_.d * shape_.y_stride;
    args.columns = part.columns;
    args.storage = shape_.storage;
    args.activation = shape_.activation;
    float bias[max_tile_rows];
    for (std::int64_t panel = part.first_panel; panel < part.last_panel; ++panel) {
      const std::int64_t k = panel * tile_rows_;
      const std::int64_t row = (i * shape_.outs + k) * shape_.d + j;
      args.rows = static_cast<int>(std::min<std::int64_t>(tile_rows_, shape_.outs - k));
      args.weights = static_cast<const Real*>(operands.weights) +
                     (part.product * k_panels_ + panel) * depth_ * tile_rows_;
      args.y = static_cast<std::uint16_t*>(operands.y) + row * shape_.y_stride + part.first_column;
      if (problem_.bias) {
        const auto* source = static_cast<const std::uint16_t*>(operands.bias) + row;
        for (int m = 0; m < args.rows; ++m)
          kernels_.widen(source + m * shape_.d, shape_.storage, bias + m, 1);
        args.bias = bias;
      }
      kernels_.columns_in_place(args);
    }
  }
}

/// Copies row l of a part to its place in the slices of the terms [t, t_end).
template <class Real>
void ColumnsExecutor<Real>::copy_row(const void* x, const Part& part, std::int64_t l, std::int64_t t,
                                     std::int64_t t_end, Real* slices) const {
  const std::int64_t depth = t_end - t;
  const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(problem_)) / shape_.unit;
  const std::int64_t row = (part.product / shape_.d * shape_.depth + l) * shape_.d + part.product % shape_.d;
  const auto* source =
      static_cast<const std::byte*>(x) + (row * shape_.x_stride * shape_.unit + part.first_column) * bytes;
  const std::int64_t local = l * shape_.unit - t;
  std::int64_t first = 0;
  if (shape_.unit == 1) {
    const std::int64_t whole_slices = part.columns / slice_;
    kernels_.widen_runs(source, shape_.storage, slice_, whole_slices, kernels_.column_panel,
                        slices + local * slice_, depth * slice_, kernels_.lanes);
    first = whole_slices * slice_;
  }
  for (; first < part.columns; first += slice_) {
    const std::int64_t count = std::min<std::int64_t>(slice_, part.columns - first);
    const std::int64_t width = (count + kernels_.lanes - 1) / kernels_.lanes * kernels_.lanes;
    Real* out = slices + first * depth + local * width;
    const std::int64_t start = start_of(part, first, width);
    if (start + width == part.columns && shape_.unit == 1) {
      kernels_.widen_runs(source + start * bytes, shape_.storage, 0, 1,
                          static_cast<int>(width / kernels_.lanes), out, 0, kernels_.lanes);
      continue;
    }
    if (shape_.unit == 2) {
      const auto* element = reinterpret_cast<const Real*>(source) + first;
      for (std::int64_t n = 0; n < count; n += 2) {
        out[n] = element[n];
        out[n + 1] = element[n + 1];
        out[width + n] = -element[n + 1];  // i·x
        out[width + n + 1] = element[n];
      }
      std::fill(out + width + count, out + 2 * width, Real(0));
    } else {
      kernels_.widen(source + first * bytes, shape_.storage, out, count);
    }
    std::fill(out + count, out + width, Real(0));
  }
}

template <class Real>
void ColumnsExecutor<Real>::run_panel(const RunOperands& operands, const Part& part, std::int64_t panel,
                                      std::int64_t t, std::int64_t t_end, const Real* slices, Real* sums,
                                      Next& next) const {
  const std::int64_t i = part.product / shape_.d;
  const std::int64_t j = part.product % shape_.d;
  const std::int64_t k = panel * tile_rows_;
  const bool first = t == 0;
  const bool last = t_end == depth_;
  const std::int64_t y_row = ((i * shape_.outs + k) * shape_.d + j);
  const std::int64_t row_stride = shape_.d * shape_.y_stride * shape_.unit;
  const bool real_storage = shape_.storage == Storage::same || shape_.storage == Storage::complex;

  TileArgs<Real> args{};
  args.depth = t_end - t;
  args.a = static_cast<const Real*>(operands.weights) +
           ((part.product * k_panels_ + panel) * depth_ + t) * tile_rows_;
  args.a_row_stride = 1;
  args.a_step = tile_rows_;
  args.next_x = next.prefetch.rows > 0 ? &next.prefetch : nullptr;
  args.outbox = next.outbox;
  args.rows = static_cast<int>(std::min<std::int64_t>(tile_rows_, shape_.outs - k));

  alignas(cache_line) Real bias[max_tile_size];
  if (first && problem_.bias) {
    const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(problem_)) / shape_.unit;
    for (int m = 0; m < args.rows; ++m) {
      const auto* source =
          static_cast<const std::byte*>(operands.bias) + (y_row + m * shape_.d) * shape_.unit * bytes;
      Real element[2];
      kernels_.widen(source, shape_.storage, element, shape_.unit);
      for (int f = 0; f < slice_; ++f) bias[m * slice_ + f] = element[f % shape_.unit];
    }
  }
  alignas(cache_line) Real tile[max_tile_size];

  for (std::int64_t column = 0; column < part.columns; column += slice_) {
    const std::int64_t count = std::min<std::int64_t>(slice_, part.columns - column);
    const int vectors = static_cast<int>((count + kernels_.lanes - 1) / kernels_.lanes);
    const int width = vectors * kernels_.lanes;
    Real* slice_sums = sums + column * tile_rows_;
    args.b = slices + column * args.depth;
    args.init = first ? (problem_.bias ? bias : nullptr) : slice_sums;
    args.init_row_stride = first ? slice_ : width;
    args.out_vector_stride = kernels_.lanes;
    const std::int64_t start = start_of(part, column, width);
    const bool is_whole = start + width <= part.columns;
    const std::int64_t origin = y_row * shape_.y_stride * shape_.unit + part.first_column + start;
    const bool direct = last && is_whole && shape_.activation == Act::none;
    auto* y = static_cast<std::byte*>(operands.y) +
              origin * static_cast<std::int64_t>(real_storage ? sizeof(Real) : 2);
    args.out = direct ? static_cast<void*>(y) : last ? tile : slice_sums;
    args.storage = direct && !real_storage ? shape_.storage : Storage::same;
    args.out_row_stride = direct ? row_stride : width;
    args.stream =
        direct && stream_ && on_cache_line(args.out) &&
        (real_storage ? whole_cache_lines<Real>(row_stride)
                      : halves_in_cache_lines(kernels_.lanes, vectors, row_stride, args.out_vector_stride));
    tile_for(kernels_, 1, vectors, args.rows)(args);
    if (last && !direct) {
      FinishArgs<Real> finish{};
      finish.tile = tile;
      finish.rows = args.rows;
      finish.row_length = width;
      finish.lanes_valid = is_whole ? width : static_cast<int>(count);
      finish.activation = shape_.activation;
      finish.storage = shape_.storage;
      finish.out = y;
      finish.out_row_stride = row_stride;
      finish.piece = width;
      finish.piece_stride = width;
      finish.unit = 1;
      finish.unit_stride = 1;
      kernels_.finish(finish);
    }
    if (copies_ahead() && next.rows > 0) copy_some_rows(operands.x, next);
  }
}

}  // namespace

template <class Real>
std::unique_ptr<ColumnsDriver> make_columns(const Problem& problem, const KernelSet<Real>& kernels,
                                            std::string_view implementation, bool on_one_thread) {
  return std::make_unique<ColumnsExecutor<Real>>(problem, kernels, implementation, on_one_thread);
}
template std::unique_ptr<ColumnsDriver> make_columns<float>(const Problem&, const KernelSet<float>&,
                                                            std::string_view, bool);
template std::unique_ptr<ColumnsDriver> make_columns<double>(const Problem&, const KernelSet<double>&,
                                                             std::string_view, bool);

}  // namespace kronsparse::simd
