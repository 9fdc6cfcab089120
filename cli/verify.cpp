#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cli {
namespace {

using Indices = std::vector<std::int64_t>;

Indices all_of(std::int64_t size) {
  Indices indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

/// `count` increasing indices below `size`: the first, the last, and between
/// them one at random from each of as many equal stretches.
Indices spread(std::int64_t size, std::int64_t count, std::mt19937_64& random) {
  if (count >= size) return all_of(size);
  Indices indices;
  for (std::int64_t stretch = 0; stretch < count; ++stretch) {
    const std::int64_t begin = size / count * stretch + std::min(stretch, size % count);
    const std::int64_t length = size / count + (stretch < size % count ? 1 : 0);
    const auto offset = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length));
    indices.push_back(stretch == 0 ? 0 : stretch == count - 1 ? size - 1 : begin + offset);
  }
  return indices;
}

/// The sampled elements as a problem of their own, without strides.
Problem sampled_problem(const Problem& problem, const Sample& sample) {
  const auto size = [](const Indices& indices) { return static_cast<std::int64_t>(indices.size()); };
  Problem sampled = problem;
  sampled.pattern = {size(sample.i), size(sample.k), size(sample.l), size(sample.j)};
  sampled.batch = size(sample.batch);
  sampled.dtype = is_complex(problem.dtype) ? DType::complex128 : DType::f64;
  sampled.mode = Mode::fp32;
  sampled.cols_stride = sampled.rows_stride = 0;
  return sampled;
}

/// Features (i, m, j) of the sample as feature numbers of the whole problem;
/// `middle` lists the sampled m, of `middle_size` in the whole.
Indices feature_indices(const Sample& sample, const Indices& middle, std::int64_t middle_size,
                        std::int64_t d) {
  Indices features;
  for (const std::int64_t i : sample.i) {
    for (const std::int64_t m : middle) {
      for (const std::int64_t j : sample.j) features.push_back((i * middle_size + m) * d + j);
    }
  }
  return features;
}

Tensor gather(const Tensor& from, const Indices& rows, const Indices& cols, DType dtype) {
  Tensor out(dtype, static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(cols.size()));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t col = 0; col < cols.size(); ++col) {
      out.set(static_cast<std::int64_t>(row), static_cast<std::int64_t>(col), from.get(rows[row], cols[col]));
    }
  }
  return out;
}

Tensor absolute_values(const Tensor& from) {
  if (from.data() == nullptr) return {};
  Tensor out(DType::f64, from.rows(), from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    for (std::int64_t col = 0; col < from.cols(); ++col) out.set(row, col, std::abs(from.get(row, col)));
  }
  return out;
}

/// Where in the whole problem's tensors the sample's rows and columns are.
class Gatherer {
 public:
  Gatherer(const Problem& problem, const Sample& sample)
      : problem_(problem),
        sample_(sample),
        with_rows_(feature_indices(sample, sample.k, problem.pattern.b, problem.pattern.d)),
        with_cols_(feature_indices(sample, sample.l, problem.pattern.c, problem.pattern.d)) {}

  [[nodiscard]] Inputs inputs(const Inputs& whole, DType dtype) const {
    const bool transposed =
        problem_.operation == Operation::transposed || problem_.operation == Operation::adjoint;
    Inputs part;
    part.x = batch(whole.x, transposed ? with_rows_ : with_cols_, dtype);
    if (whole.g.data() != nullptr) part.g = batch(whole.g, with_rows_, dtype);
    if (whole.values.data() != nullptr) {
      const auto [rows, cols] = value_indices();
      part.values = gather(whole.values, rows, cols, dtype);
    }
    if (whole.bias.data() != nullptr) part.bias = gather(whole.bias, {0}, with_rows_, dtype);
    return part;
  }

  /// Rows and columns of y that the sample takes.
  [[nodiscard]] std::pair<Indices, Indices> output_indices() const {
    if (problem_.operation == Operation::gradient) return value_indices();
    const Indices& features = problem_.operation == Operation::multiply ? with_rows_ : with_cols_;
    return problem_.layout == Layout::batch_first ? std::pair(sample_.batch, features)
                                                  : std::pair(features, sample_.batch);
  }

 private:
  [[nodiscard]] Tensor batch(const Tensor& whole, const Indices& features, DType dtype) const {
    return problem_.layout == Layout::batch_first ? gather(whole, sample_.batch, features, dtype)
                                                  : gather(whole, features, sample_.batch, dtype);
  }

  /// Values are kept as a (a·b, c·d) matrix.
  [[nodiscard]] std::pair<Indices, Indices> value_indices() const {
    std::pair<Indices, Indices> indices;
    for (const std::int64_t i : sample_.i) {
      for (const std::int64_t k : sample_.k) indices.first.push_back(i * problem_.pattern.b + k);
    }
    for (const std::int64_t l : sample_.l) {
      for (const std::int64_t j : sample_.j) indices.second.push_back(l * problem_.pattern.d + j);
    }
    return indices;
  }

  const Problem& problem_;
  const Sample& sample_;
  Indices with_rows_;
  Indices with_cols_;
};

Tensor run_reference(const Problem& problem, const Inputs& inputs) {
  Tensor y = output_tensor(problem);
  Plan(problem, inputs.values.data(), Device{}, "reference").run(inputs.operands(y));
  return y;
}

std::string number(std::complex<double> value) {
  return value.imag() == 0 ? fmt::format("{:.9g}", value.real())
                           : fmt::format("{:.9g}{:+.9g}i", value.real(), value.imag());
}

/// Unit roundoff (half the distance from 1 to the next number).
double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::complex64:
      return 0x1p-24;
    case DType::f64:
    case DType::complex128:
      return 0x1p-53;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
  }
  throw Error(ErrorCode::internal, "unknown dtype");
}

/// The smallest normal number: what rounding can lose absolutely, however small the result.
double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-14 * 0x1p-11;  // f16 has gradual underflow: half its smallest step
    case DType::f64:
    case DType::complex128:
      return 0x1p-1022;
    default:
      return 0x1p-126;
  }
}

}  // namespace

Sample choose_sample(const Problem& problem, double reference_flops, std::uint64_t seed) {
  const Pattern& pattern = problem.pattern;
  std::mt19937_64 random(seed);
  double excess = problem.flops() / std::max(reference_flops, 1.0);
  // Each dimension in turn gives what it can, the longer ones first in line: the batch, then a, d, b, c.
  const auto shrunk = [&](std::int64_t size, bool summed) {
    constexpr std::int64_t at_least = 4;
    if (summed || excess <= 1.0 || size <= at_least) return all_of(size);
    const std::int64_t count =
        std::max(at_least, static_cast<std::int64_t>(static_cast<double>(size) / excess));
    excess *= static_cast<double>(count) / static_cast<double>(size);
    return spread(size, count, random);
  };
  const Operation operation = problem.operation;
  Sample sample;
  sample.batch = shrunk(problem.batch, operation == Operation::gradient);
  sample.i = shrunk(pattern.a, false);
  sample.j = shrunk(pattern.d, false);
  sample.k = shrunk(pattern.b, operation == Operation::transposed || operation == Operation::adjoint);
  sample.l = shrunk(pattern.c, operation == Operation::multiply);
  return sample;
}

Expected::Expected(const Problem& problem, const Inputs& inputs, Sample sample)
    : problem_(problem), sample_(std::move(sample)), sampled_(sampled_problem(problem_, sample_)) {
  const Inputs part = Gatherer(problem_, sample_).inputs(inputs, sampled_.dtype);
  exact_ = run_reference(sampled_, part);
  Problem absolute = sampled_;
  absolute.dtype = DType::f64;
  absolute.activation = Activation::none;
  const Inputs positive{absolute_values(part.values), absolute_values(part.x), absolute_values(part.g),
                        absolute_values(part.bias)};
  magnitude_ = run_reference(absolute, positive);
}

// A sum of n products in precision u is off by at most n·u·S, S being the sum of
// the products' absolute values (Higham, Accuracy and Stability, 3.1). For long
// sums that is so pessimistic that a missing term would pass, so n is replaced
// by 8·sqrt(n) from n = 64 on, which independent roundings exceed with a
// probability below n·1e-13 (Higham and Mary, SIAM J. Sci. Comput. 41, 2019).
// 2u instead of u allows hardware that truncates, and for f64 the reference's
// own error. A complex product counts as two terms of each part. Activations
// have slopes up to 1.13 and are evaluated to a few units of their argument.
// The result is rounded once, to the dtype.
double Expected::bound(double exact, double magnitude) const {
  const DType accumulator =
      problem_.dtype == DType::f64 || problem_.dtype == DType::complex128 ? DType::f64 : DType::f32;
  const double terms = static_cast<double>(sum_length(problem_)) * (is_complex(problem_.dtype) ? 2 : 1);
  double units = (std::min(terms, 8 * std::sqrt(terms)) + 4) * 2 * unit_roundoff(accumulator);
  if (problem_.mode == Mode::tf32) units += 2 * 0x1p-10;  // both factors truncated to 10 bits
  if (problem_.activation != Activation::none) units = 1.13 * units + 8 * 2 * unit_roundoff(accumulator);
  const double before_rounding = units * magnitude + terms * smallest_normal(accumulator);
  return before_rounding + unit_roundoff(problem_.dtype) * (std::abs(exact) + before_rounding) +
         smallest_normal(problem_.dtype);
}

Expected::Comparison Expected::compare(const Tensor& y) const {
  Comparison result;
  result.elements = y.rows() * y.cols();
  const auto fail = [&](std::string reason) {
    if (result.failure.empty()) result.failure = std::move(reason);
  };
  for (std::int64_t row = 0; row < y.rows(); ++row) {
    for (std::int64_t col = 0; col < y.cols(); ++col) {
      const std::complex<double> element = y.get(row, col);
      if (std::isnan(element.real()) || std::isnan(element.imag())) {
        fail(fmt::format("y[{}, {}] is NaN or was never written", row, col));
      }
    }
  }
  if (!y.surroundings_untouched()) fail("memory outside y was written");

  const auto [rows, cols] = Gatherer(problem_, sample_).output_indices();
  double worst_ratio = -1;
  for (std::int64_t row = 0; row < exact_.rows(); ++row) {
    for (std::int64_t col = 0; col < exact_.cols(); ++col) {
      const std::int64_t y_row = rows[static_cast<std::size_t>(row)];
      const std::int64_t y_col = cols[static_cast<std::size_t>(col)];
      const std::complex<double> exact = exact_.get(row, col);
      const std::complex<double> actual = y.get(y_row, y_col);
      const std::complex<double> difference = actual - exact;
      const double error = std::max(std::abs(difference.real()), std::abs(difference.imag()));
      const double allowed = bound(std::abs(exact), magnitude_.get(row, col).real());
      result.max_error = std::max(result.max_error, error);
      if (error / allowed > worst_ratio) {
        worst_ratio = error / allowed;
        result.error_at_worst = error;
        result.bound_at_worst = allowed;
      }
      if (!(error <= allowed)) {
        fail(fmt::format("y[{}, {}] is {} where {} is right: off by {:.3g}, {:.3g} is allowed", y_row, y_col,
                         number(actual), number(exact), error, allowed));
      }
      ++result.compared;
    }
  }
  result.pass = result.failure.empty();
  return result;
}

}  // namespace kronsparse::cli
