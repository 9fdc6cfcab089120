// The runs of the driver of columns.hpp.
#include "cpu/simd/columns.hpp"

namespace kronsparse::simd {

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
