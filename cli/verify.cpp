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

Tensor absolute_values(const Tensor& from) {
  if (from.data() == nullptr) return {};
  Tensor out(DType::f64, from.rows(), from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    for (std::int64_t col = 0; col < from.cols(); ++col) out.set(row, col, std::abs(from.get(row, col)));
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

/// Calls visit(row, col) for every element.
template <class Visit>
void for_each_element(const Tensor& tensor, const Visit& visit) {
  for (std::int64_t row = 0; row < tensor.rows(); ++row)
    for (std::int64_t col = 0; col < tensor.cols(); ++col) visit(row, col);
}

/// Numbers in double precision, and how far those that an implementation holds in their place may be from
/// them, in either part; no errors at all where there is no tensor of them.
struct Approximate {
  Tensor exact;
  Tensor errors;

  [[nodiscard]] double error(std::int64_t row, std::int64_t col) const {
    return errors.data() == nullptr ? 0.0 : errors.get(row, col).real();
  }
};

/// Operands of one product with one factor; null where it has none.
struct StepOperands {
  const Tensor* values = nullptr;
  const Approximate* x = nullptr;
  const Approximate* g = nullptr;
  const Tensor* bias = nullptr;
};

/// The factors one after the other, each by the reference in double precision, with a bound on the error of
/// every element.
///
/// One product. A sum of n products in precision u is off by at most n·u·S, S being the sum of the
/// products' absolute values (Higham, Accuracy and Stability, 3.1). For long sums that is so pessimistic that
/// a missing term would pass, so n is replaced by 8·sqrt(n) from n = 64 on, which independent roundings
/// exceed with a probability below n·1e-13 (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). 2u instead of u
/// allows hardware that truncates, and for f64 the reference's own error. A complex product counts as two
/// terms of each part. Activations have slopes up to 1.13 and are evaluated to a few units of their argument.
/// The result is rounded once, to the dtype.
///
/// A chain. What a factor hands on was rounded to the dtype, so the next one reads x + e instead of x, where
/// |e| <= E, the bound of the product before. Its exact product is then off by K e, which is at most |K| E,
/// and its sums are of products of absolute values up to S = |K| (|x| + E). Hence with r(S, y) for the bound
/// of one product above,
///
///     E' = |K| E + r(|K| (|x| + E), |y| + |K| E),
///
/// times the slope of the activation where there is one. In the gradient, x and g may both be off, by
/// E_x and E_g: there |K| E becomes the sum over the batch of (|g| + E_g) E_x + E_g |x|. All these sums are
/// computed by the reference, on absolute values. The bound of a complex number is that of either part,
/// so its absolute value may be off by sqrt(2) of it.
class Propagation {
 public:
  Propagation(const Problem& problem, const Problem& sampled, const Inputs& inputs)
      : problem_(problem), sampled_(sampled), inputs_(inputs) {}

  [[nodiscard]] Approximate result() {
    const std::size_t count = sampled_.chain.size();
    Approximate x{gathered(inputs_.x), {}};
    switch (sampled_.operation) {
      case Operation::multiply:
        for (std::size_t factor = count; factor-- > 0;)
          x = product(factor, Operation::multiply, x, factor == 0);
        return x;
      case Operation::transposed:
      case Operation::adjoint:
        for (std::size_t factor = 0; factor < count; ++factor)
          x = product(factor, sampled_.operation, x, false);
        return x;
      case Operation::gradient:
        return gradients(std::move(x));
    }
    throw Error(ErrorCode::internal, "unknown operation");
  }

 private:
  static Tensor gathered(const Tensor& from) {
    return gather(from, all_of(from.rows()), all_of(from.cols()), from.dtype());
  }

  Approximate product(std::size_t factor, Operation operation, const Approximate& x, bool is_last) const {
    Problem step = step_problem(factor, operation);
    step.bias = is_last && sampled_.bias;
    step.activation = is_last ? sampled_.activation : Activation::none;
    return run(step,
               {.values = &inputs_.values[factor], .x = &x, .bias = step.bias ? &inputs_.bias : nullptr});
  }

  Approximate gradients(Approximate x) const {
    const std::size_t count = sampled_.chain.size();
    Approximate g{gathered(inputs_.g), {}};
    if (count == 1) return run(step_problem(0, Operation::gradient), {.x = &x, .g = &g});
    std::vector<Approximate> products(count);  // what each factor is applied to
    products[count - 1] = std::move(x);
    for (std::size_t factor = count; factor-- > 1;)
      products[factor - 1] = product(factor, Operation::multiply, products[factor], false);
    Approximate all{output_tensor(sampled_), Tensor(DType::f64, 1, sampled_.chain.nnz())};
    std::int64_t at = 0;
    for (std::size_t factor = 0; factor < count; ++factor) {
      const Approximate one =
          run(step_problem(factor, Operation::gradient), {.x = &products[factor], .g = &g});
      for_each_element(one.exact, [&](std::int64_t row, std::int64_t col) {
        all.exact.set(0, at, one.exact.get(row, col));
        all.errors.set(0, at++, one.errors.get(row, col));
      });
      if (factor + 1 < count) g = product(factor, Operation::adjoint, g, false);
    }
    return all;
  }

  [[nodiscard]] Problem step_problem(std::size_t factor, Operation operation) const {
    Problem step = sampled_;
    step.chain = sampled_.chain[factor];
    step.operation = operation;
    step.bias = false;
    step.activation = Activation::none;
    return step;
  }

  static Tensor reference(const Problem& problem, const Tensor* values, const Tensor& x, const Tensor* g,
                          const Tensor* bias) {
    Tensor y = output_tensor(problem);
    Plan(problem, values == nullptr ? nullptr : values->data(), Device{}, "reference")
        .run({.x = x.data(),
              .y = y.data(),
              .bias = bias == nullptr ? nullptr : bias->data(),
              .g = g == nullptr ? nullptr : g->data()});
    return y;
  }

  enum class Part { absolute_values, errors, both };

  /// Absolute values, what they may be off by, or the sum of the two.
  [[nodiscard]] Tensor part_of(const Approximate& x, Part part) const {
    const double sides = is_complex(problem_.dtype) ? std::sqrt(2.0) : 1.0;
    Tensor out(DType::f64, x.exact.rows(), x.exact.cols());
    for_each_element(out, [&](std::int64_t row, std::int64_t col) {
      const double value = part == Part::errors ? 0.0 : std::abs(x.exact.get(row, col));
      out.set(row, col, value + (part == Part::absolute_values ? 0.0 : sides * x.error(row, col)));
    });
    return out;
  }

  [[nodiscard]] Approximate run(const Problem& step, const StepOperands& operands) const {
    const bool is_gradient = operands.g != nullptr;
    Approximate y;
    y.exact = reference(step, operands.values, operands.x->exact, is_gradient ? &operands.g->exact : nullptr,
                        operands.bias);
    Problem positive = step;
    positive.dtype = DType::f64;
    positive.activation = Activation::none;
    const Tensor values = operands.values == nullptr ? Tensor() : absolute_values(*operands.values);
    const Tensor bias = operands.bias == nullptr ? Tensor() : absolute_values(*operands.bias);
    const auto sums = [&](Part of_x, Part of_g) {
      positive.bias = step.bias && of_x != Part::errors;
      const Tensor x = part_of(*operands.x, of_x);
      const Tensor g = is_gradient ? part_of(*operands.g, of_g) : Tensor();
      return reference(positive, operands.values == nullptr ? nullptr : &values, x,
                       is_gradient ? &g : nullptr, positive.bias ? &bias : nullptr);
    };
    const Tensor magnitude = sums(Part::both, Part::both);
    std::vector<Tensor> handed_on;
    if (operands.x->errors.data() != nullptr) handed_on.push_back(sums(Part::errors, Part::both));
    if (is_gradient && operands.g->errors.data() != nullptr)
      handed_on.push_back(sums(Part::absolute_values, Part::errors));
    y.errors = Tensor(DType::f64, y.exact.rows(), y.exact.cols());
    for_each_element(y.exact, [&](std::int64_t row, std::int64_t col) {
      double brought = 0;
      for (const Tensor& one : handed_on) brought += one.get(row, col).real();
      y.errors.set(row, col,
                   bound(step, std::abs(y.exact.get(row, col)), magnitude.get(row, col).real(), brought));
    });
    return y;
  }

  /// How far an element may be from `exact`: `magnitude` is S, `handed_on` the error that operands bring.
  [[nodiscard]] double bound(const Problem& step, double exact, double magnitude, double handed_on) const {
    const DType dtype = problem_.dtype;
    const DType accumulator = dtype == DType::f64 || dtype == DType::complex128 ? DType::f64 : DType::f32;
    const double terms = static_cast<double>(sum_length(step)) * (is_complex(dtype) ? 2 : 1);
    const double slope = step.activation == Activation::none ? 1.0 : 1.13;
    double units = (std::min(terms, 8 * std::sqrt(terms)) + 4) * 2 * unit_roundoff(accumulator);
    if (problem_.mode == Mode::tf32) units += 2 * 0x1p-10;  // both factors truncated to 10 bits
    if (step.activation != Activation::none) units = slope * units + 8 * 2 * unit_roundoff(accumulator);
    const double before_rounding =
        slope * handed_on + units * magnitude + terms * smallest_normal(accumulator);
    return before_rounding + unit_roundoff(dtype) * (std::abs(exact) + before_rounding) +
           smallest_normal(dtype);
  }

  const Problem& problem_;
  const Problem& sampled_;
  const Inputs& inputs_;
};

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
  Approximate result = Propagation(problem_, sampled_, part).result();
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
