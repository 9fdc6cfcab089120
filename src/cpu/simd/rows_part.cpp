// The work of one RowsPart: see rows_part.hpp.

#include "cpu/simd/rows_part.hpp"

#include <algorithm>

#include "cpu/simd/drivers.hpp"

namespace kronsparse::simd {

template <class Real>
RowsPart<Real>::RowsPart(const Problem& problem, const KernelSet<Real>& kernels,
                         const std::vector<Segments>& segments)
    : problem_(problem),
      kernels_(kernels),
      shape_(shape_of(problem)),
      d_(shape_.d * shape_.unit),
      depth_(shape_.depth * shape_.unit),
      repeated_(repeated_group(shape_, kernels) > 0),
      full_(repeated_ || segments.front().width == kernels.lanes),
      group_lanes_(repeated_ ? repeated_group(shape_, kernels) : segments.front().width),
      panel_lanes_(repeated_ ? group_lanes_ : kernels.lanes),
      in_place_(!full_ && shape_.storage == Storage::same && shape_.layout == Layout::batch_first &&
                !rows_collide()),
      panels_(segments, shape_.outs, panel_lanes_,
              (full_ ? kernels.widest_full : kernels.widest_panel) * kernels.lanes / panel_lanes_),
      widest_(static_cast<std::int64_t>(full_ ? kernels.widest_full : kernels.widest_panel) * kernels.lanes) {
  choose_blocks(segments);
  packed_size_ = count_of({shape_.a, panels_.packed_width(), depth_});
}

template <class Real>
auto RowsPart<Real>::Units::operator[](std::int64_t index) const -> Unit {
  const std::int64_t copy = index / tasks_per_copy;
  const std::int64_t copy_first = copy * per_copy;
  const std::int64_t copy_last = std::min(copy_first + per_copy, panels);
  Unit unit{};
  unit.first_j = first_j + copy * width;
  unit.width = std::min(width, end_j - unit.first_j);
  unit.first_panel = copy_first + (index - copy * tasks_per_copy) * per_task;
  unit.last_panel = std::min(unit.first_panel + per_task, copy_last);
  return unit;
}

template <class Real>
auto RowsPart<Real>::task_at(std::int64_t index) const -> Task {
  const std::int64_t units = units_.count;
  Task task{};
  task.unit = units_[weights_stay_ ? index / row_blocks() % units : index % units];
  task.first_row = (weights_stay_ ? index : index / units) % row_blocks() * row_block_;
  task.rows = std::min(row_block_, shape_.batch - task.first_row);
  task.first_block = index / units / row_blocks() * block_group_;
  task.last_block = std::min(task.first_block + block_group_, shape_.a);
  return task;
}

/// The rows of X that a task reads, and the lines of Y that it has to read before it writes; none where rows
/// are not runs.
template <class Real>
Prefetch RowsPart<Real>::prefetch_of(const Operands& operands, const Task& task) const {
  if (shape_.layout != Layout::batch_first) return {};
  const auto bytes = static_cast<std::int64_t>(element_bytes(problem_));
  const std::int64_t run = shape_.depth * shape_.d;
  const auto* first = static_cast<const char*>(operands.x) +
                      (task.first_row * shape_.x_stride + task.first_block * run) * bytes;
  const std::int64_t blocks = task.last_block - task.first_block;
  Prefetch rows{{first, task.rows, blocks * run * bytes, shape_.x_stride * bytes}};
  if (weights_stay_) {
    // A segment is a line of each term, and there are more of them.
    const std::int64_t before = task.unit.first_j / shape_.unit * bytes;
    rows.row += before;
    rows.row_bytes -= before;
    rows.step = shape_.d * bytes;
  }
  if (blocks_share_lines_) {
    const std::int64_t y_run = shape_.outs * shape_.d;
    const auto* y = static_cast<const char*>(operands.y) +
                    (task.first_row * shape_.y_stride + task.first_block * y_run) * bytes;
    rows.later = {y, task.rows, blocks * y_run * bytes, shape_.y_stride * bytes};
  }
  return rows;
}

template <class Real>
void RowsPart<Real>::run(const RunOperands& operands, std::int64_t first_task, std::int64_t last_task,
                         std::byte* scratch) const {
  Outbox<Real> outbox;
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const Task task = task_at(index);
    Prefetch prefetch;
    if (index + 1 < last_task) {
      const Task next = task_at(index + 1);
      const bool new_rows = next.first_row != task.first_row || next.first_block != task.first_block;
      if (new_rows) prefetch = prefetch_of(operands, next);
      const std::int64_t panels = task.unit.last_panel - task.unit.first_panel;
      const std::int64_t height = full_ ? full_tile_rows : max_tile_rows;
      const std::int64_t tiles =
          (task.rows + height - 1) / height * panels * (task.last_block - task.first_block);
      prefetch.spread_over(tiles, depth_, sends());
    }
    for (std::int64_t i = task.first_block; i < task.last_block; ++i) {
      run_block(operands, task, i, scratch, prefetch, outbox);
    }
  }
  if (sends()) kernels_.send(outbox);
}

template <class Real>
void RowsPart<Real>::run_block(const RunOperands& operands, const Task& task, std::int64_t i,
                               std::byte* scratch, Prefetch& prefetch, Outbox<Real>& outbox) const {
  Real* sums = reinterpret_cast<Real*>(scratch);
  Real* copy = sums + sums_size_;
  const auto source_for = [&](const Panel& panel, std::int64_t terms) {
    return source_of(operands.x, task, i, panel.segment, terms, copy);
  };
  if (copy_depth_ == depth_) {
    if (!in_place_) copy_x(operands.x, task, i, {0, depth_}, copy);
    for (std::int64_t p = task.unit.first_panel; p < task.unit.last_panel; ++p) {
      const Panel panel = panels_[p];
      const Source source = source_for(panel, depth_);
      for (std::int64_t t = 0; t < depth_; t += depth_block_) {
        const Depth depth{t, std::min(t + depth_block_, depth_)};
        run_panel(operands, task, panel, source, 0, depth, i, sums, prefetch, outbox);
      }
    }
    return;
  }
  // Too deep to copy at once: one range of depth after the other, all panels' sums kept.
  for (std::int64_t t = 0; t < depth_; t += copy_depth_) {
    const Depth depth{t, std::min(t + copy_depth_, depth_)};
    copy_x(operands.x, task, i, depth, copy);
    Real* panel_sums = sums;
    for (std::int64_t p = task.unit.first_panel; p < task.unit.last_panel; ++p) {
      const Panel panel = panels_[p];
      const Source source = source_for(panel, depth.last - depth.first);
      run_panel(operands, task, panel, source, t, depth, i, panel_sums, prefetch, outbox);
      panel_sums += row_block_ * widest_;
    }
  }
}

/// Copies x of a unit: full segments as [segment][tile][term][row of tile][lanes],
/// narrow ones as [row][term][unit's width], rows copy_row_ apart.
template <class Real>
void RowsPart<Real>::copy_x(const void* x, const Task& task, std::int64_t i, Depth depth, Real* copy) const {
  const Unit& unit = task.unit;
  const int lanes = kernels_.lanes;
  const std::int64_t terms = depth.last - depth.first;
  const std::int64_t padded_rows = (task.rows + full_tile_rows - 1) / full_tile_rows * full_tile_rows;
  const std::int64_t term_step = full_ ? full_tile_rows * group_lanes_ : unit.width;
  const std::int64_t segment_step = full_ ? padded_rows * terms * lanes : lanes;
  const bool batch_first = shape_.layout == Layout::batch_first;
  // Elements between neighbouring j and neighbouring samples.
  const std::int64_t j_stride = batch_first ? 1 : shape_.x_stride;
  const std::int64_t n_stride = batch_first ? shape_.x_stride : 1;
  const auto bytes = static_cast<std::int64_t>(element_bytes(problem_));
  const std::int64_t l_first = depth.first / shape_.unit;
  const std::int64_t l_count = terms / shape_.unit;
  const std::int64_t feature = (i * shape_.depth + l_first) * shape_.d + unit.first_j / shape_.unit;
  // A few terms of each row of a tile in turn, so that what is written stays together.
  constexpr std::int64_t few = 16;
  if (repeated_) {
    for (std::int64_t first = 0; first < task.rows; first += full_tile_rows) {
      const std::int64_t last = std::min(first + full_tile_rows, task.rows);
      for (std::int64_t l = 0; l < l_count; l += few) {
        const std::int64_t count = std::min(few, l_count - l);
        for (std::int64_t n = first; n < last; ++n) {
          const auto* source = static_cast<const std::byte*>(x) +
                               ((task.first_row + n) * n_stride + feature + l * shape_.d) * bytes;
          Real widened[few * 6 + max_lanes];  // groups of 6 at most
          kernels_.widen(source, shape_.storage, widened, count * shape_.d);
          Real* out = copy + (first / full_tile_rows * terms + l) * term_step + (n - first) * group_lanes_;
          kernels_.repeat(widened, shape_.d, count, out, term_step);
        }
      }
    }
    return;
  }
  if (shape_.unit == 1 && batch_first && full_) {
    for (std::int64_t first = 0; first < task.rows; first += full_tile_rows) {
      const std::int64_t last = std::min(first + full_tile_rows, task.rows);
      for (std::int64_t l = 0; l < l_count; l += few) {
        for (std::int64_t n = first; n < last; ++n) {
          const auto* source = static_cast<const std::byte*>(x) +
                               ((task.first_row + n) * n_stride + feature + l * shape_.d) * bytes;
          Real* out = copy + (first / full_tile_rows * terms + l) * term_step + (n - first) * lanes;
          kernels_.widen_runs(source, shape_.storage, shape_.d, std::min(few, l_count - l),
                              static_cast<int>(unit.width / lanes), out, term_step, segment_step);
        }
      }
    }
    return;
  }
  if (shape_.unit == 1 && batch_first && unit.width == shape_.d && terms * shape_.d % lanes == 0) {
    // Whole rows of whole vectors, all in one call.
    const auto* source = static_cast<const std::byte*>(x) + (task.first_row * n_stride + feature) * bytes;
    kernels_.widen_runs(source, shape_.storage, n_stride, task.rows,
                        static_cast<int>(terms * shape_.d / lanes), copy, copy_row_, lanes);
    return;
  }
  for (std::int64_t n = 0; n < task.rows; ++n) {
    const auto* source =
        static_cast<const std::byte*>(x) + ((task.first_row + n) * n_stride + feature * j_stride) * bytes;
    Real* out = full_ ? copy + n / full_tile_rows * terms * term_step + n % full_tile_rows * lanes
                      : copy + n * copy_row_;
    if (shape_.unit == 1 && batch_first && unit.width == shape_.d) {
      kernels_.widen(source, shape_.storage, out, l_count * shape_.d);
    } else if (shape_.unit == 1 && batch_first) {
      for (std::int64_t l = 0; l < l_count; ++l) {
        kernels_.widen(source + l * shape_.d * bytes, shape_.storage, out + l * term_step, unit.width);
      }
    } else {
      // Element by element; re x goes to both lanes of (j, p) for q = 0, im x for q = 1.
      for (std::int64_t l = 0; l < l_count; ++l) {
        for (std::int64_t lane = 0; lane < unit.width; lane += shape_.unit) {
          const std::byte* element = source + (l * shape_.d + lane / shape_.unit) * j_stride * bytes;
          Real value[2];
          kernels_.widen(element, shape_.storage, value, shape_.unit);
          Real* at = out + l * shape_.unit * term_step + lane / lanes * segment_step + lane % lanes;
          if (!full_) at = out + l * shape_.unit * term_step + lane;
          at[0] = value[0];
          if (shape_.unit == 2) {
            at[1] = value[0];
            at[term_step] = at[term_step + 1] = value[1];
          }
        }
      }
    }
  }
}

template <class Real>
auto RowsPart<Real>::source_of(const void* x, const Task& task, std::int64_t i, const Segment& segment,
                               std::int64_t terms, const Real* copy) const -> Source {
  if (in_place_) {
    const Real* first =
        static_cast<const Real*>(x) + task.first_row * shape_.x_stride + i * depth_ * d_ + segment.first;
    return {first, 0, shape_.x_stride, d_};
  }
  const std::int64_t within = segment.first - task.unit.first_j;
  if (!full_) return {copy + within, 0, copy_row_, task.unit.width};
  const std::int64_t padded_rows = (task.rows + full_tile_rows - 1) / full_tile_rows * full_tile_rows;
  return {copy + within * padded_rows * terms, terms * full_tile_rows * group_lanes_, group_lanes_,
          full_tile_rows * group_lanes_};
}

template <class Real>
typename KernelSet<Real>::Tile RowsPart<Real>::tile_of(const Panel& panel, int rows) const {
  if (group_lanes_ > kernels_.lanes) return kernels_.tile_of_threes[panel.vectors - 1][rows == 1 ? 1 : 0];
  return tile_for(kernels_, full_ ? kernels_.lanes : panel.segment.width, panel.vectors, rows);
}

template <class Real>
void RowsPart<Real>::gather_bias(const void* bias, const Panel& panel, std::int64_t i, Real* gathered) const {
  const Segment& segment = panel.segment;
  const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(problem_)) / shape_.unit;
  const auto* block = static_cast<const std::byte*>(bias) + i * shape_.outs * d_ * bytes;
  for (int f = 0; f < panel.vectors * panel_lanes_; ++f) {
    gathered[f] = 0;
    if (f >= panel.lanes_valid) continue;
    const std::int64_t k = (panel.first_lane + f) / segment.width;
    const std::int64_t j = segment.first + (panel.first_lane + f) % segment.width;
    kernels_.widen(block + (k * d_ + j) * bytes, shape_.storage, gathered + f, 1);
  }
}

template <class Real>
void RowsPart<Real>::run_panel(const RunOperands& operands, const Task& task, const Panel& panel,
                               const Source& source, std::int64_t source_first, Depth depth, std::int64_t i,
                               Real* sums, Prefetch& prefetch, Outbox<Real>& outbox) const {
  const Segment& segment = panel.segment;
  const int lanes = kernels_.lanes;
  const int group = segment.width;
  const int width = panel.vectors * panel_lanes_;
  const int height = tile_rows(panel);
  const bool first = depth.first == 0;
  const bool last = depth.last == depth_;
  const bool real_storage = shape_.storage == Storage::same || shape_.storage == Storage::complex;

  // Places in Y, in reals (halves for 16-bit storage).
  const bool batch_first = shape_.layout == Layout::batch_first;
  const std::int64_t unit = shape_.unit;
  const std::int64_t feature = (i * shape_.outs + panel.first_lane / group) * d_ + segment.first;
  const std::int64_t row_stride = batch_first ? shape_.y_stride * unit : unit;
  const std::int64_t origin =
      (batch_first ? feature : feature * shape_.y_stride) + task.first_row * row_stride;
  FinishArgs<Real> finish{};
  finish.row_length = width;
  finish.lanes_valid = panel.lanes_valid;
  finish.activation = shape_.activation;
  finish.storage = shape_.storage;
  finish.out_row_stride = row_stride;
  finish.piece = group;
  finish.piece_stride = batch_first ? d_ : d_ * shape_.y_stride;
  finish.unit = batch_first ? 1 : shape_.unit;
  finish.unit_stride = batch_first ? 1 : shape_.y_stride * unit;

  const bool whole_vectors = batch_first && (full_ || group == d_) && panel.lanes_valid == width;
  const bool direct = last && whole_vectors && shape_.activation == Act::none;

  alignas(cache_line) Real bias[max_panel_lanes];
  if (first && problem_.bias) gather_bias(operands.bias, panel, i, bias);
  alignas(cache_line) Real tile[max_tile_size];

  TileArgs<Real> args{};
  args.depth = depth.last - depth.first;
  args.a_row_stride = source.row_stride;
  args.a_step = source.step;
  args.b = static_cast<const Real*>(operands.weights) + (i * panels_.packed_width() + panel.offset) * depth_ +
           depth.first * width;
  args.init_row_stride = first ? 0 : width;
  args.next_x = prefetch.rows > 0 ? &prefetch : nullptr;
  args.outbox = sends() ? &outbox : nullptr;
  args.out_row_stride = direct ? row_stride : width;
  args.out_vector_stride = direct && full_ && !repeated_ ? d_ : lanes;
  args.storage = direct && !real_storage ? shape_.storage : Storage::same;
  const auto element = static_cast<std::int64_t>(real_storage ? sizeof(Real) : 2);
  auto* y = static_cast<std::byte*>(operands.y) + origin * element;
  args.stream =
      direct && stream_ && on_cache_line(y) &&
      (real_storage ? whole_cache_lines<Real>(row_stride) && whole_cache_lines<Real>(args.out_vector_stride)
                    : halves_in_cache_lines(lanes, panel.vectors, row_stride, args.out_vector_stride));
  const Real* a = source.data + (depth.first - source_first) * source.step;
  for (std::int64_t m = 0, tile_index = 0; m < task.rows; m += height, ++tile_index) {
    args.rows = static_cast<int>(std::min<std::int64_t>(height, task.rows - m));
    args.a = full_ ? a + tile_index * source.tile_stride : a + m * source.row_stride;
    args.init = first ? (problem_.bias ? bias : nullptr) : sums + m * width;
    std::byte* y_rows = y + m * row_stride * element;
    args.out = direct ? static_cast<void*>(y_rows) : last ? tile : sums + m * width;
    tile_of(panel, args.rows)(args);
    if (last && !direct) {
      finish.tile = tile;
      finish.rows = args.rows;
      finish.out = y_rows;
      kernels_.finish(finish);
    }
  }
}

template class RowsPart<float>;
template class RowsPart<double>;

}  // namespace kronsparse::simd
