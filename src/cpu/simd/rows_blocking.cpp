// How a RowsPart cuts its work into tasks: everything here trades cache levels
// against each other, and nothing here changes a result.

#include <algorithm>
#include <numeric>

#include "cpu/cpu_info.hpp"
#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/rows_part.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {

template <class Real>
bool RowsPart<Real>::rows_collide() const {
  const CpuInfo cpu = cpu_info();
  const auto way = static_cast<std::int64_t>(cpu.l1_bytes / cpu.l1_ways);
  // Only a stride's place in a way matters; the whole stride in bytes may exceed 63 bits.
  const std::int64_t stride = shape_.x_stride % way * static_cast<std::int64_t>(sizeof(Real));
  // Rows fall on as many different sets of cache lines as strides fit into a way before they repeat.
  const std::int64_t places = way / std::gcd(stride, way);
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): std::gcd always returns a value
  const std::int64_t on_one_place = (max_tile_rows + places - 1) / places;
  return on_one_place * 4 > static_cast<std::int64_t>(cpu.l1_ways) * 3;
}

template <class Real>
void RowsPart<Real>::choose_blocks(const std::vector<Segments>& segments) {
  const CpuInfo cpu = cpu_info();
  const std::int64_t real = sizeof(Real);
  const auto l1 = static_cast<std::int64_t>(cpu.l1_bytes);
  const auto l2 = static_cast<std::int64_t>(cpu.l2_bytes);

  // A panel is used by one tile of rows after the other: it and what a tile
  // reads of x should stay in L1 together.
  const std::int64_t per_term = widest_ + (full_ ? full_tile_rows : max_tile_rows) * group_lanes_;
  depth_block_ = even_block(depth_, std::max<std::int64_t>(32, l1 / (per_term * real)), 2);

  stream_ = writes_around_caches(problem_);
  const std::int64_t y_run = shape_.outs * shape_.d * static_cast<std::int64_t>(element_bytes(problem_));
  blocks_share_lines_ = stream_ && !full_ && shape_.layout == Layout::batch_first && shape_.a > 1 &&
                        y_run % static_cast<std::int64_t>(cache_line) != 0 &&
                        y_run <= std::int64_t{4} * static_cast<std::int64_t>(cache_line);

  choose_units(segments);
  const std::int64_t unit_width = repeated_ ? group_lanes_ : units_.width;
  copy_depth_ = depth_;
  if (!in_place_ && max_tile_rows * depth_ * unit_width * real > l2) {
    // A tile's worth of rows does not fit: copy part of the depth at a time.
    copy_depth_ = std::clamp<std::int64_t>(l2 / (max_tile_rows * unit_width * real) / 2 * 2, 64, depth_);
  }

  // Blocks i together as long as their weights stay in L2: neighbours in X rows.
  const std::int64_t block_bytes = panels_.packed_width() * depth_ * real;
  block_group_ = even_block(shape_.a, std::max<std::int64_t>(1, l2 / 4 / block_bytes), 1);

  // Rows per task: what they touch of x and y should stay in L2, on no more
  // pages than the TLB holds, for every panel comes back to them.
  constexpr std::int64_t whole_tiles = 24;  // a multiple of every tile height
  // In double: a stride of one row or none may be anything, and exceed 63 bits in bytes.
  const auto pages = [](double run_reals, double stride_reals) {
    constexpr double reals_per_page = 4096.0 / sizeof(Real);
    return std::min(stride_reals / reals_per_page, run_reals / reals_per_page + 1.0);
  };
  const auto x_run = static_cast<double>(depth_ * (in_place_ ? d_ : unit_width));
  const double row_pages = pages(x_run, in_place_ ? static_cast<double>(shape_.x_stride) : x_run) +
                           pages(static_cast<double>(widest_),
                                 static_cast<double>(shape_.y_stride) * static_cast<double>(shape_.unit));
  const std::int64_t row_bytes =
      (in_place_ ? block_group_ * d_ : unit_width) * (copy_depth_ + shape_.outs) * real;
  auto rows = std::min<std::int64_t>({l2 / 4 / row_bytes, static_cast<std::int64_t>(64 / row_pages), 240});
  // Weights that do not stay in L2 after all are read once for these rows: the more of them the better, but
  // not so many that their copy takes the place of the weights; of two segments it is twice as wide.
  if (weights_stay_)
    rows = std::min(l2 / 2 / (unit_width * depth_ * real), 2 * whole_tiles * kernels_.lanes / unit_width);
  // A line should still be in L1 when the next block writes its part of it.
  if (blocks_share_lines_) rows = std::min(rows, 2 * whole_tiles);
  rows = std::max(rows, copy_depth_ < depth_ ? max_tile_rows : whole_tiles);
  const std::int64_t threads = threads_for(seconds_alone(problem_, kernels_));
  const std::int64_t others = block_groups() * units_.count;
  rows = std::min(rows, std::max(whole_tiles, shape_.batch * others / (8 * threads)));
  row_block_ = even_block(std::max<std::int64_t>(shape_.batch, 1), rows,
                          rows >= whole_tiles ? whole_tiles : max_tile_rows);

  // Too few tasks for the threads (small batches): blocks apart, then panels.
  const auto too_few = [&] { return threads > 1 && tasks() < 2 * threads; };
  if (too_few()) block_group_ = 1;
  const std::int64_t parts = too_few() ? (4 * threads + tasks() - 1) / std::max<std::int64_t>(tasks(), 1) : 1;
  std::int64_t per_task = std::min(units_.per_task, (units_.per_copy + parts - 1) / parts);
  if (copy_depth_ < depth_) {
    per_task = std::clamp<std::int64_t>(l2 / 4 / (row_block_ * widest_ * real), 1, per_task);
  }
  units_.set_per_task(per_task);

  // One cache line more than a row needs: rows a power of two apart would collide in L1.
  copy_row_ = copy_depth_ * unit_width + static_cast<std::int64_t>(cache_line) / real;
  const std::int64_t padded_rows = (row_block_ + full_tile_rows - 1) / full_tile_rows * full_tile_rows;
  copy_size_ = in_place_ ? 0 : full_ ? padded_rows * copy_depth_ * unit_width : row_block_ * copy_row_;
  if (copy_depth_ < depth_) {
    sums_size_ = row_block_ * widest_ * units_.per_task;
  } else if (depth_block_ < depth_) {
    sums_size_ = row_block_ * widest_;
  }
}

template <class Real>
void RowsPart<Real>::Units::set_per_task(std::int64_t panels_of_task) {
  const auto tasks_of = [=](std::int64_t some) { return (some + panels_of_task - 1) / panels_of_task; };
  per_task = panels_of_task;
  tasks_per_copy = tasks_of(per_copy);
  count = panels / per_copy * tasks_per_copy + tasks_of(panels % per_copy);
}

/// Units by segments: all narrow ones together; of the full ones as many as
/// leave room in half of L2 for a good number of rows. Where that half does not hold
/// the weights of them all, x is no larger than y and a vector is a cache line, one
/// segment, whose weights stay from one block of rows to the next. Of halves a line is
/// two segments: those are taken together, for a part of the outputs, unless more than
/// L2 of weights would have to be cut into more parts and lines of Y lie side by side.
template <class Real>
void RowsPart<Real>::choose_units(const std::vector<Segments>& segments) {
  const Segments& last = segments.back();
  units_.first_j = segments.front().first;
  units_.end_j = last.first + last.width * last.count;
  units_.width = units_.end_j - units_.first_j;
  units_.panels = units_.per_copy = panels_.size();
  std::int64_t count = 1;
  std::int64_t tasks = 1;  // of the segments copied together
  if (full_ && !repeated_) {
    const std::int64_t l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
    constexpr std::int64_t good_rows = 24;
    const std::int64_t budget = l2 / 2 / (good_rows * depth_ * static_cast<std::int64_t>(sizeof(Real)));
    count = std::clamp<std::int64_t>(budget / kernels_.lanes, 1, last.count);
    const std::int64_t weights =
        panels_.groups().front().width * depth_ * static_cast<std::int64_t>(sizeof(Real));
    constexpr int in_line = static_cast<int>(cache_line / sizeof(Real));
    weights_stay_ = kernels_.lanes == in_line && shape_.outs >= shape_.depth &&
                    last.count * weights > l2 / 2 && weights <= 2 * l2;
    if (weights_stay_) {
      const bool halves = shape_.storage == Storage::f16 || shape_.storage == Storage::bf16;
      count = halves && last.count > 1 && (weights <= l2 || last.count > 2) ? 2 : 1;
      panels_.take_together(count);
      if (count > 1) tasks = (count * weights + l2 * 9 / 10 - 1) / (l2 * 9 / 10);
    }
    units_.width = count * kernels_.lanes;
    units_.per_copy = count * panels_.groups().front().panels_per_segment;
  }
  units_.set_per_task(even_block(units_.per_copy, (units_.per_copy + tasks - 1) / tasks, count));
}

template bool RowsPart<float>::rows_collide() const;
template bool RowsPart<double>::rows_collide() const;
template void RowsPart<float>::choose_blocks(const std::vector<Segments>&);
template void RowsPart<double>::choose_blocks(const std::vector<Segments>&);

}  // namespace kronsparse::simd
