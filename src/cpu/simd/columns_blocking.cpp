// The sizes by which the driver of columns.hpp divides a problem.
#include "cpu/simd/columns.hpp"

namespace kronsparse::simd {

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

template void ColumnsExecutor<float>::choose_blocks();
template void ColumnsExecutor<double>::choose_blocks();

}  // namespace kronsparse::simd
