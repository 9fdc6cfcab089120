// Small batches with values as they are given: what packing would cost is spared, and so are the copies and
// the arguments of a micro-kernel. A task is some outputs of one block i, for all samples.
#include "cpu/unpacked/unpacked.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "core/geometry.hpp"
#include "core/message.hpp"
#include "cpu/packing.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/threads.hpp"
#include "cpu/unpacked/kernel_set.hpp"

namespace kronsparse {
namespace unpacked {
namespace {

constexpr std::int64_t most_samples = 64;      // more are faster with packed values, which tiles use again
constexpr std::int64_t task_values = 1 << 15;  // that a task multiplies by: so many stay in L1 or L2

double parts(std::int64_t total, std::int64_t part) {
  return std::ceil(static_cast<double>(total) / static_cast<double>(part));
}

/// Seconds of a run on one thread of a Xeon with AVX-512: see docs/notes/cpu.md.
double seconds_alone(const Problem& problem, int lanes) {
  constexpr double seconds_per_run = 1e-7, seconds_per_block = 2e-8, seconds_per_row = 2e-9;
  constexpr double seconds_per_step = 1e-9, seconds_per_half = 4e-10, seconds_per_part = 3e-9;
  constexpr double bytes_per_second = 4e10;
  const simd::Shape shape = simd::shape_of(problem);
  const bool is_half = size_of(problem.dtype) == 2;
  const bool is_gradient = problem.operation == Operation::gradient;
  const auto samples = static_cast<double>(problem.batch);
  const auto outs = static_cast<double>(shape.outs), depth = static_cast<double>(shape.depth);
  const bool in_groups = shape.d < lanes && (shape.d & (shape.d - 1)) == 0;
  double steps = 0;    // loads of a vector, multiplied and added
  double rows = 0;     // sums that leave
  double hanging = 0;  // vectors that are not full
  if (!in_groups) {
    steps = outs * depth * parts(shape.d, lanes);
    rows = (is_gradient ? outs * depth : outs) * parts(shape.d, lanes);
    hanging = shape.d % lanes == 0 ? 0 : rows;
  } else if (is_gradient) {
    steps = outs * parts(shape.depth * shape.d, lanes);
    rows = steps;
    hanging = shape.depth * shape.d % lanes == 0 ? 0 : outs;
  } else if (is_transposed(problem.operation)) {
    steps = depth * parts(shape.outs * shape.d, lanes);
    rows = parts(shape.outs * shape.d, lanes);
  } else {
    steps = outs * parts(shape.depth * shape.d, lanes);
    rows = outs * 3;  // folded
  }
  const double a = static_cast<double>(shape.a);
  const double sums = is_gradient ? 1 : samples;
  const double per_step = seconds_per_step + (is_half ? seconds_per_half : 0);
  return seconds_per_run +
         a * (seconds_per_block + samples * steps * per_step +
              sums * (rows * seconds_per_row + hanging * seconds_per_part)) +
         static_cast<double>(problem.pattern().nnz()) * static_cast<double>(size_of(problem.dtype)) /
             bytes_per_second;
}

template <class Real>
class UnpackedExecutor final : public Executor {
 public:
  UnpackedExecutor(const Problem& problem, const Kernels<Real>& kernels)
      : problem_(problem),
        kernels_(kernels),
        shape_(simd::shape_of(problem)),
        is_gradient_(problem.operation == Operation::gradient),
        is_half_(size_of(problem.dtype) == 2),
        seconds_alone_(seconds_alone(problem, kernels.lanes)) {
    const bool is_first = problem.layout == Layout::batch_first;
    x_stride_ = is_first ? x_matrix(problem).stride : 0;
    other_stride_ = !is_first ? 0 : is_gradient_ ? rows_matrix(problem).stride : y_matrix(problem).stride;
    if (!is_gradient_)
      order_.bytes = static_cast<std::size_t>(problem.pattern().nnz()) * size_of(problem.dtype);
    const std::int64_t of_row = std::max<std::int64_t>(shape_.depth * shape_.d, 1);
    rows_ = std::clamp<std::int64_t>(task_values / of_row / 4 * 4, 4, std::max<std::int64_t>(shape_.outs, 4));
    ranges_ = (shape_.outs + rows_ - 1) / rows_;
    simd::reserve_scratch(scratch_bytes(), threads_for(seconds_alone_));
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    std::copy_n(static_cast<const std::byte*>(values), order_.bytes, static_cast<std::byte*>(packed));
  }

  void run(const Operands& operands, const Weights& weights) const override {
    simd::parallel_ranges(shape_.a * ranges_, threads_for(seconds_alone_), scratch_bytes(),
                          [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                            for (std::int64_t task = first; task < last; ++task) {
                              const std::int64_t begin = task % ranges_ * rows_;
                              const std::int64_t end = std::min(begin + rows_, shape_.outs);
                              if (is_gradient_)
                                run_gradient(operands, task / ranges_, begin, end, scratch);
                              else
                                run_product(operands, weights.data, task / ranges_, begin, end, scratch);
                            }
                          });
  }

 private:
  /// Halves are widened: x of a block, g of some rows, and the sums of some rows.
  [[nodiscard]] std::int64_t x_reals() const {
    return (is_gradient_ ? shape_.batch : 1) * shape_.depth * shape_.d;
  }
  [[nodiscard]] std::int64_t g_reals() const { return is_gradient_ ? shape_.batch * rows_ * shape_.d : 0; }
  [[nodiscard]] std::size_t scratch_bytes() const {
    if (!is_half_) return 0;
    const std::int64_t sums = rows_ * shape_.d * (is_gradient_ ? shape_.depth : 1);
    return static_cast<std::size_t>(x_reals() + g_reals() + sums) * sizeof(Real);
  }
  [[nodiscard]] const std::byte* at(const void* data, std::int64_t element) const {
    return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(size_of(problem_.dtype));
  }
  [[nodiscard]] std::byte* at(void* data, std::int64_t element) const {
    return static_cast<std::byte*>(data) + element * static_cast<std::int64_t>(size_of(problem_.dtype));
  }
  /// `count` elements of some samples as reals: where they are, or widened at `scratch`, a run after the
  /// other.
  struct Reals {
    const Real* data;
    std::int64_t stride;
  };
  [[nodiscard]] Reals reals_of(const void* data, std::int64_t first, std::int64_t count, std::int64_t samples,
                               std::int64_t stride, Real* scratch) const {
    if (!is_half_) return {reinterpret_cast<const Real*>(at(data, first)), stride};
    for (std::int64_t n = 0; n < samples; ++n)
      kernels_.widen(at(data, first + n * stride), shape_.storage, scratch + n * count, count);
    return {scratch, count};
  }

  void run_product(const Operands& operands, const void* values, std::int64_t i, std::int64_t first,
                   std::int64_t last, std::byte* scratch) const {
    const std::int64_t d = shape_.d, of_block = shape_.depth * d;
    auto* const widened = reinterpret_cast<Real*>(scratch);
    const bool is_swapped = is_transposed(problem_.operation);
    ProductArgs<Real> args{};
    args.values_size = shape_.outs * of_block;
    args.values = at(values, i * args.values_size);
    args.row_step = is_swapped ? d : of_block;
    args.term_step = is_swapped ? shape_.outs * d : d;
    args.terms = shape_.depth;
    args.d = d;
    args.first = first;
    args.last = last;
    args.x_size = of_block;
    args.storage = shape_.storage;
    const std::int64_t feature = (i * shape_.outs + first) * d;
    FinishArgs<Real> finish{};
    finish.count = (last - first) * d;
    finish.bias = problem_.bias ? at(operands.bias, feature) : nullptr;
    finish.activation = shape_.activation;
    finish.storage = shape_.storage;
    const bool is_finished = !is_half_ && !problem_.bias && problem_.activation == Activation::none;
    for (std::int64_t n = 0; n < shape_.batch; ++n) {
      args.x = reals_of(operands.x, n * x_stride_ + i * of_block, of_block, 1, 0, widened).data;
      std::byte* const y = at(operands.y, n * other_stride_ + feature);
      args.y = is_half_ ? widened + x_reals() : reinterpret_cast<Real*>(y);
      kernels_.multiply(args);
      if (is_finished) continue;
      finish.sums = args.y;
      finish.y = y;
      kernels_.finish(finish);
    }
  }

  void run_gradient(const Operands& operands, std::int64_t i, std::int64_t first, std::int64_t last,
                    std::byte* scratch) const {
    const std::int64_t d = shape_.d, of_row = shape_.depth * d, samples = shape_.batch;
    auto* const widened = reinterpret_cast<Real*>(scratch);
    const std::int64_t feature = (i * shape_.outs + first) * d, count = (last - first) * d;
    const Reals x = reals_of(operands.x, i * of_row, of_row, samples, x_stride_, widened);
    const Reals g = reals_of(operands.g, feature, count, samples, other_stride_, widened + x_reals());
    std::byte* const y = at(operands.y, feature * shape_.depth);
    GradientArgs<Real> args{};
    args.g = g.data;
    args.g_stride = g.stride;
    args.g_size = (samples - 1) * g.stride + count;
    args.x = x.data;
    args.x_stride = x.stride;
    args.x_size = (samples - 1) * x.stride + of_row;
    args.samples = samples;
    args.depth = shape_.depth;
    args.d = d;
    args.first = first;
    args.last = last;
    args.y = is_half_ ? widened + x_reals() + g_reals() : reinterpret_cast<Real*>(y);
    kernels_.gradient(args);
    if (!is_half_) return;
    FinishArgs<Real> finish{};
    finish.sums = args.y;
    finish.count = (last - first) * of_row;
    finish.storage = shape_.storage;
    finish.y = y;
    kernels_.finish(finish);
  }

  Problem problem_;
  const Kernels<Real>& kernels_;
  simd::Shape shape_;
  bool is_gradient_;
  bool is_half_;
  double seconds_alone_;
  std::int64_t x_stride_ = 0;      ///< between samples; 0 for one that batch_last has
  std::int64_t other_stride_ = 0;  ///< the same of y, or of g for the gradient
  std::int64_t rows_ = 0;          ///< outputs of a task
  std::int64_t ranges_ = 0;        ///< tasks of a block
  PackedOrder order_;              ///< as they are given
};

std::string refusal_of(const Problem& problem) {
  if (is_complex(problem.dtype)) return message("needs a real dtype, not {}", name(problem.dtype));
  if (problem.batch > most_samples)
    return message("needs a batch of at most {}, not {}", most_samples, problem.batch);
  if (problem.layout == Layout::batch_first) return {};
  if (problem.batch > 1) return message("in batch_last it needs a batch of 1, not {}", problem.batch);
  for (const MatrixShape& matrix : {cols_matrix(problem), rows_matrix(problem)})
    if (matrix.stride > 1) return message("in batch_last it needs a stride of 1, not {}", matrix.stride);
  return {};
}

template <const Isa& isa>
Proposal propose(const Problem& problem, Device /*device*/, const PackedOrder* packed_as) {
  if (!isa.base->usable()) return {.refusal = isa.base->missing};
  if (packed_as != nullptr && !packed_as->is_as_given()) return {.refusal = other_order};
  if (std::string refusal = refusal_of(problem); !refusal.empty()) return {.refusal = std::move(refusal)};
  const bool is_wide = problem.dtype == DType::f64;
  const int lanes = is_wide ? isa.f64->lanes : isa.f32->lanes;
  return {.seconds = seconds_on_threads(seconds_alone(problem, lanes)),
          .make = [problem, is_wide]() -> std::unique_ptr<Executor> {
            if (is_wide) return std::make_unique<UnpackedExecutor<double>>(problem, *isa.f64);
            return std::make_unique<UnpackedExecutor<float>>(problem, *isa.f32);
          }};
}

template <const Isa& isa>
Implementation entry(std::string_view summary) {
  return {isa.name, Backend::cpu, summary, propose<isa>};
}

const std::vector<Implementation>& table() {
  static const std::vector<Implementation> all = {
#if defined(__x86_64__)
    entry<isa_avx512>("small batches, values read as they are given, 64-byte vectors"),
    entry<isa_avx2>("small batches, values read as they are given, 32-byte vectors"),
#endif
    entry<isa_baseline>("small batches, values read as they are given, 16-byte vectors"),
  };
  return all;
}

}  // namespace
}  // namespace unpacked

std::span<const Implementation> unpacked_implementations() { return unpacked::table(); }

}  // namespace kronsparse
