#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "propagation.hpp"

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

/// The sampled elements as a problem of their own, without strides. Of a chain only the batch is sampled.
Problem sampled_problem(const Problem& problem, const Sample& sample) {
  const auto size = [](const Indices& indices) { return static_cast<std::int64_t>(indices.size()); };
  Problem sampled = problem;
  if (problem.chain.size() == 1)
    sampled.chain = Pattern{size(sample.i), size(sample.k), size(sample.l), size(sample.j)};
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

/// The places of the sample's rows and columns in the whole problem's tensors.
class Gatherer {
 public:
  Gatherer(const Problem& problem, const Sample& sample) : problem_(problem), sample_(sample) {
    if (is_chain()) {
      with_rows_ = all_of(problem.chain.rows());
      with_cols_ = all_of(problem.chain.cols());
    } else {
      with_rows_ = feature_indices(sample, sample.k, problem.pattern().b, problem.pattern().d);
      with_cols_ = feature_indices(sample, sample.l, problem.pattern().c, problem.pattern().d);
    }
  }

  [[nodiscard]] Inputs inputs(const Inputs& whole, DType dtype) const {
    const bool transposed =
        problem_.operation == Operation::transposed || problem_.operation == Operation::adjoint;
    Inputs part;
    part.x = batch(whole.x, transposed ? with_rows_ : with_cols_, dtype);
    if (whole.g.data() != nullptr) part.g = batch(whole.g, with_rows_, dtype);
    for (const Tensor& factor : whole.values) {
      const auto [rows, cols] =
          is_chain() ? std::pair(all_of(factor.rows()), all_of(factor.cols())) : value_indices();
      part.values.push_back(gather(factor, rows, cols, dtype));
    }
    if (whole.bias.data() != nullptr) part.bias = gather(whole.bias, {0}, with_rows_, dtype);
    return part;
  }

  /// Rows and columns of y that the sample takes.
  [[nodiscard]] std::pair<Indices, Indices> output_indices() const {
    if (problem_.operation == Operation::gradient)
      return is_chain() ? std::pair(all_of(1), all_of(problem_.chain.nnz())) : value_indices();
    const Indices& features = problem_.operation == Operation::multiply ? with_rows_ : with_cols_;
    return problem_.layout == Layout::batch_first ? std::pair(sample_.batch, features)
                                                  : std::pair(features, sample_.batch);
  }

 private:
  [[nodiscard]] bool is_chain() const { return problem_.chain.size() > 1; }

  [[nodiscard]] Tensor batch(const Tensor& whole, const Indices& features, DType dtype) const {
    return problem_.layout == Layout::batch_first ? gather(whole, sample_.batch, features, dtype)
                                                  : gather(whole, features, sample_.batch, dtype);
  }

  /// Values are kept as a (a·b, c·d) matrix.
  [[nodiscard]] std::pair<Indices, Indices> value_indices() const {
    std::pair<Indices, Indices> indices;
    for (const std::int64_t i : sample_.i) {
      for (const std::int64_t k : sample_.k) indices.first.push_back(i * problem_.pattern().b + k);
    }
    for (const std::int64_t l : sample_.l) {
      for (const std::int64_t j : sample_.j) indices.second.push_back(l * problem_.pattern().d + j);
    }
    return indices;
  }

  const Problem& problem_;
  const Sample& sample_;
  Indices with_rows_;
  Indices with_cols_;
};

std::string number(std::complex<double> value) {
  return value.imag() == 0 ? fmt::format("{:.9g}", value.real())
                           : fmt::format("{:.9g}{:+.9g}i", value.real(), value.imag());
}

}  // namespace

Sample choose_sample(const Problem& problem, double reference_flops, std::uint64_t seed) {
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
  const bool is_chain = problem.chain.size() > 1;
  Sample sample;
  sample.batch = shrunk(problem.batch, operation == Operation::gradient && !is_chain);
  if (is_chain) return sample;
  const Pattern& pattern = problem.pattern();
  sample.i = shrunk(pattern.a, false);
  sample.j = shrunk(pattern.d, false);
  sample.k = shrunk(pattern.b, operation == Operation::transposed || operation == Operation::adjoint);
  sample.l = shrunk(pattern.c, operation == Operation::multiply);
  return sample;
}

bool needs_thinning(const Problem& problem, const Sample& sample) {
  return problem.operation == Operation::gradient && problem.chain.size() > 1 &&
         static_cast<std::int64_t>(sample.batch.size()) < problem.batch;
}

void thin(Inputs& inputs, const Problem& problem, const Sample& sample) {
  if (!needs_thinning(problem, sample)) return;
  std::vector<bool> is_kept(static_cast<std::size_t>(problem.batch));
  for (const std::int64_t at : sample.batch) is_kept[static_cast<std::size_t>(at)] = true;
  const bool batch_first = problem.layout == Layout::batch_first;
  for_each_element(inputs.g, [&](std::int64_t row, std::int64_t col) {
    if (!is_kept[static_cast<std::size_t>(batch_first ? row : col)]) inputs.g.set(row, col, 0.0);
  });
}

Expected::Expected(const Problem& problem, const Inputs& inputs, Sample sample)
    : problem_(problem), sample_(std::move(sample)), sampled_(sampled_problem(problem_, sample_)) {
  const Inputs part = Gatherer(problem_, sample_).inputs(inputs, sampled_.dtype);
  Approximate result = propagated(problem_, sampled_, part);
  exact_ = std::move(result.exact);
  allowed_ = std::move(result.errors);
}

Expected::Comparison Expected::compare(const Tensor& y) const {
  Comparison result;
  result.elements = y.rows() * y.cols();
  if (needs_thinning(problem_, sample_))
    result.batch_share = static_cast<double>(sampled_.batch) / static_cast<double>(problem_.batch);
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
      const double allowed = allowed_.get(row, col).real();
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
