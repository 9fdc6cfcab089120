// The gradient with respect to the values: for one (i, j), a product whose sum
// runs over the batch. Lanes are (l, j), so that sums leave as runs of the
// (a,b,c,d) array; tile rows are k. Both operands are copied a block of samples
// at a time, since neither lies in memory the way the sum walks.

#include <algorithm>
#include <cstring>

#include "cpu/cpu_info.hpp"
#include "cpu/simd/cost.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {
namespace {

template <class Real>
class GradientExecutor final : public Executor {
 public:
  GradientExecutor(const Problem& problem, const KernelSet<Real>& kernels)
      : problem_(problem),
        kernels_(kernels),
        seconds_alone_(seconds_alone(problem, kernels)),
        shape_(shape_of(problem)),
        d_(shape_.d * shape_.unit),
        g_stride_(problem.rows_stride != 0                ? problem.rows_stride
                  : problem.layout == Layout::batch_first ? problem.pattern().rows()
                                                          : problem.batch),
        panels_(segments_of(d_, kernels.lanes), shape_.depth, kernels.lanes, kernels.widest_panel) {
    choose_blocks();
    reserve_scratch(scratch_bytes(), threads_for(seconds_alone_));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return no_order; }
  void pack(const void* /*values*/, void* /*packed*/, Stream /*stream*/) const override {}

  void run(const Operands& operands, const Weights& /*weights*/) const override {
    const std::int64_t ranges = (shape_.outs + k_range_ - 1) / k_range_;
    const std::int64_t units = unit_count_;
    const std::int64_t tasks = shape_.a * units * ranges;
    const auto run_range = [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t k = task % ranges * k_range_;
        const Unit unit = unit_at(task / ranges % units);
        run_unit(operands, unit, task / ranges / units, k, std::min(k_range_, shape_.outs - k), scratch);
      }
    };
    parallel_ranges(tasks, threads_for(seconds_alone_), scratch_bytes(), run_range);
  }

 private:
  /// Some panels of one segment.
  struct Unit {
    std::int64_t first_panel;
    std::int64_t last_panel;
  };

  [[nodiscard]] static std::int64_t units_per_segment(const Panels::Group& group) {
    return (group.panels_per_segment + gradient_panels_per_unit - 1) / gradient_panels_per_unit;
  }
  [[nodiscard]] Unit unit_at(std::int64_t index) const;
  void choose_blocks();
  [[nodiscard]] std::int64_t terms() const { return sample_block_ * shape_.unit; }
  /// Reals that read() widens at once: one sample's group, or a block of samples of one feature.
  [[nodiscard]] std::int64_t longest_run() const {
    return shape_.layout == Layout::batch_first ? kernels_.lanes : terms();
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    const std::int64_t sums = k_range_ * unit_lanes_;
    const std::int64_t x = terms() * unit_lanes_;
    const std::int64_t g = terms() * k_range_ * kernels_.lanes;
    return static_cast<std::size_t>(sums + x + g + longest_run()) * sizeof(Real);
  }

  /// Elements of `matrix` for samples [first, first + count) at `feature`
  /// onwards: calls put(sample, feature offset, element) in memory order. At most
  /// a vector of features, widened in `run`.
  template <class Put>
  void read(const void* matrix, std::int64_t stride, std::int64_t feature, std::int64_t features,
            std::int64_t first, std::int64_t count, Real* run, const Put& put) const;
  void copy_x(const void* x, const Panel& panel, std::int64_t i, std::int64_t first, std::int64_t samples,
              Real* run, Real* out) const;
  void copy_g(const void* g, const Segment& segment, std::int64_t i, std::int64_t k, std::int64_t k_count,
              std::int64_t first, std::int64_t samples, Real* run, Real* out) const;
  void run_unit(const Operands& operands, const Unit& unit, std::int64_t i, std::int64_t k,
                std::int64_t k_count, std::byte* scratch) const;

  Problem problem_;
  const KernelSet<Real>& kernels_;
  double seconds_alone_;
  Shape shape_;
  std::int64_t d_;  ///< reals
  std::int64_t g_stride_;
  Panels panels_;
  std::int64_t unit_count_ = 0;
  std::int64_t unit_lanes_ = 0;
  std::int64_t k_range_ = 0;
  std::int64_t sample_block_ = 0;
};

template <class Real>
auto GradientExecutor<Real>::unit_at(std::int64_t index) const -> Unit {
  auto group = panels_.groups().begin();
  for (std::int64_t units = 0; index >= (units = units_per_segment(*group) * group->segments.count); ++group)
    index -= units;
  const std::int64_t segment = index / units_per_segment(*group);
  const std::int64_t within = index - segment * units_per_segment(*group);
  const std::int64_t segment_first = group->first_panel + segment * group->panels_per_segment;
  const std::int64_t first = segment_first + within * gradient_panels_per_unit;
  return {first, std::min(first + gradient_panels_per_unit, segment_first + group->panels_per_segment)};
}

template <class Real>
void GradientExecutor<Real>::choose_blocks() {
  const std::int64_t real = sizeof(Real);
  const std::int64_t l2 = static_cast<std::int64_t>(cpu_info().l2_bytes);
  // The order of a sum must not depend on the number of threads, so the block
  // of samples is fixed: short enough for both copies to stay in L2.
  sample_block_ = std::clamp<std::int64_t>(shape_.batch, 1, gradient_sample_block);
  for (const Panels::Group& group : panels_.groups()) {
    for (std::int64_t unit = 0; unit < units_per_segment(group); ++unit) {
      const auto [first_panel, last_panel] = unit_at(unit_count_ + unit);
      const Panel last = panels_[last_panel - 1];
      const std::int64_t end = last.offset + static_cast<std::int64_t>(last.vectors) * kernels_.lanes;
      unit_lanes_ = std::max(unit_lanes_, end - panels_[first_panel].offset);
    }
    unit_count_ += units_per_segment(group) * group.segments.count;
  }
  k_range_ =
      std::max<std::int64_t>(max_tile_rows, l2 / 4 / ((unit_lanes_ + terms() * kernels_.lanes) * real));
  const std::int64_t tasks = shape_.a * unit_count_;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): every pattern has a segment, and that a panel
  const std::int64_t wanted = (4 * threads_for(seconds_alone_) + tasks - 1) / tasks;
  k_range_ = std::min(k_range_, std::max<std::int64_t>(max_tile_rows, shape_.outs / wanted));
  k_range_ = even_block(shape_.outs, k_range_, max_tile_rows);
}

template <class Real>
template <class Put>
void GradientExecutor<Real>::read(const void* matrix, std::int64_t stride, std::int64_t feature,
                                  std::int64_t features, std::int64_t first, std::int64_t count, Real* run,
                                  const Put& put) const {
  const auto bytes = static_cast<std::int64_t>(element_bytes(problem_));
  const auto* base = static_cast<const std::byte*>(matrix);
  const bool batch_first = shape_.layout == Layout::batch_first;
  const std::int64_t outer = batch_first ? count : features;
  const std::int64_t inner = batch_first ? features : count;
  const std::int64_t outer_first = batch_first ? first : feature;
  const std::int64_t inner_first = batch_first ? feature : first;
  for (std::int64_t o = 0; o < outer; ++o) {
    const std::byte* row = base + ((outer_first + o) * stride + inner_first) * bytes;
    kernels_.widen(row, shape_.storage, run, inner * shape_.unit);
    for (std::int64_t e = 0; e < inner; ++e)
      put(batch_first ? o : e, batch_first ? e : o, run + e * shape_.unit);
  }
}

/// x of one panel as [term][lanes], with conj(x) as (re, -im) and (im, re).
template <class Real>
void GradientExecutor<Real>::copy_x(const void* x, const Panel& panel, std::int64_t i, std::int64_t first,
                                    std::int64_t samples, Real* run, Real* out) const {
  const Segment& segment = panel.segment;
  const int u = shape_.unit;
  const int group = segment.width;
  const int lanes = kernels_.lanes;
  const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * lanes;
  const std::int64_t l_first = panel.first_lane / group;
  const std::int64_t feature = (i * shape_.depth + l_first) * shape_.d + segment.first / u;
  if (panel.lanes_valid < width) std::fill(out, out + samples * u * width, Real(0));

  std::int64_t lane = 0;
  if (u == 1 && shape_.layout == Layout::batch_first && (group == shape_.d || group == lanes)) {
    // Whole vectors of x lie in X as they do here: neighbours, or d apart.
    const auto bytes = static_cast<std::int64_t>(element_bytes(problem_));
    const auto* source = static_cast<const std::byte*>(x) + (first * shape_.x_stride + feature) * bytes;
    const std::int64_t apart = group == lanes ? shape_.d : lanes;
    for (; lane + lanes <= panel.lanes_valid; lane += lanes, source += apart * bytes) {
      kernels_.widen_runs(source, shape_.storage, shape_.x_stride, samples, 1, out + lane, width, lanes);
    }
  }
  for (; lane < panel.lanes_valid; lane += group) {
    read(x, shape_.x_stride, feature + lane / group * shape_.d, group / u, first, samples, run,
         [&](std::int64_t n, std::int64_t j, const Real* element) {
           Real* at = out + n * u * width + lane + j * u;
           at[0] = element[0];
           if (u == 2) {
             at[1] = -element[1];
             at[width] = element[1];
             at[width + 1] = element[0];
           }
         });
  }
}

/// g as [term][k][group]: the real part then the imaginary one, on every p.
template <class Real>
void GradientExecutor<Real>::copy_g(const void* g, const Segment& segment, std::int64_t i, std::int64_t k,
                                    std::int64_t k_count, std::int64_t first, std::int64_t samples, Real* run,
                                    Real* out) const {
  const int u = shape_.unit;
  const int group = segment.width;
  const std::int64_t term = k_count * group;
  const std::int64_t feature = (i * shape_.outs + k) * shape_.d + segment.first / u;
  if (u == 1 && shape_.layout == Layout::batch_first && (group == shape_.d || group == kernels_.lanes)) {
    const auto bytes = static_cast<std::int64_t>(element_bytes(problem_));
    for (std::int64_t n = 0; n < samples; ++n) {
      const auto* source = static_cast<const std::byte*>(g) + ((first + n) * g_stride_ + feature) * bytes;
      if (group == shape_.d) {
        kernels_.widen(source, shape_.storage, out + n * term, term);
      } else {
        kernels_.widen_runs(source, shape_.storage, shape_.d, k_count, 1, out + n * term, group, group);
      }
    }
    return;
  }
  for (std::int64_t m = 0; m < k_count; ++m) {
    read(g, g_stride_, feature + m * shape_.d, group / u, first, samples, run,
         [&](std::int64_t n, std::int64_t j, const Real* element) {
           Real* at = out + n * u * term + m * group + j * u;
           at[0] = element[0];
           if (u == 2) {
             at[1] = element[0];
             at[term] = at[term + 1] = element[1];
           }
         });
  }
}

template <class Real>
void GradientExecutor<Real>::run_unit(const Operands& operands, const Unit& unit, std::int64_t i,
                                      std::int64_t k, std::int64_t k_count, std::byte* scratch) const {
  Real* sums = reinterpret_cast<Real*>(scratch);
  Real* x_copy = sums + k_range_ * unit_lanes_;
  Real* g_copy = x_copy + terms() * unit_lanes_;
  Real* run = g_copy + terms() * k_range_ * kernels_.lanes;
  const int u = shape_.unit;
  const Segment segment = panels_[unit.first_panel].segment;
  const int group = segment.width;
  const std::int64_t unit_offset = panels_[unit.first_panel].offset;

  for (std::int64_t first = 0; first < shape_.batch; first += sample_block_) {
    const std::int64_t samples = std::min(sample_block_, shape_.batch - first);
    const std::int64_t depth = samples * u;
    for (std::int64_t p = unit.first_panel; p < unit.last_panel; ++p) {
      copy_x(operands.x, panels_[p], i, first, samples, run,
             x_copy + (panels_[p].offset - unit_offset) * depth);
    }
    copy_g(operands.g, segment, i, k, k_count, first, samples, run, g_copy);
    for (std::int64_t p = unit.first_panel; p < unit.last_panel; ++p) {
      const Panel panel = panels_[p];
      const std::int64_t width = static_cast<std::int64_t>(panel.vectors) * kernels_.lanes;
      const int tile_rows = group == kernels_.lanes ? full_tile_rows : kernels_.tile_rows[panel.vectors - 1];
      Real* panel_sums = sums + (panel.offset - unit_offset) * k_range_;
      for (std::int64_t m = 0; m < k_count; m += tile_rows) {
        TileArgs<Real> args{};
        args.depth = depth;
        args.a = g_copy + m * group;
        args.a_row_stride = group;
        args.a_step = k_count * group;
        args.rows = static_cast<int>(std::min<std::int64_t>(tile_rows, k_count - m));
        args.b = x_copy + (panel.offset - unit_offset) * depth;
        args.init = first == 0 ? nullptr : panel_sums + m * width;
        args.init_row_stride = width;
        args.out = panel_sums + m * width;
        args.out_row_stride = width;
        args.out_vector_stride = kernels_.lanes;
        tile_for(kernels_, group, panel.vectors, args.rows)(args);
      }
    }
  }

  const std::int64_t bytes = static_cast<std::int64_t>(element_bytes(problem_)) / u;
  for (std::int64_t p = unit.first_panel; p < unit.last_panel; ++p) {
    const Panel panel = panels_[p];
    FinishArgs<Real> finish{};
    finish.tile = sums + (panel.offset - unit_offset) * k_range_;
    finish.rows = static_cast<int>(k_count);
    finish.row_length = panel.vectors * kernels_.lanes;
    finish.lanes_valid = panel.lanes_valid;
    finish.activation = Act::none;
    finish.storage = shape_.storage;
    const std::int64_t l = panel.first_lane / group;
    finish.out = static_cast<std::byte*>(operands.y) +
                 (((i * shape_.outs + k) * shape_.depth + l) * d_ + segment.first) * bytes;
    finish.out_row_stride = shape_.depth * d_;
    finish.piece = group;
    finish.piece_stride = d_;
    finish.unit = 1;
    finish.unit_stride = 1;
    kernels_.finish(finish);
  }
}

}  // namespace

template <class Real>
std::unique_ptr<Executor> make_gradient(const Problem& problem, const KernelSet<Real>& kernels) {
  return std::make_unique<GradientExecutor<Real>>(problem, kernels);
}
template std::unique_ptr<Executor> make_gradient<float>(const Problem&, const KernelSet<float>&);
template std::unique_ptr<Executor> make_gradient<double>(const Problem&, const KernelSet<double>&);

}  // namespace kronsparse::simd
