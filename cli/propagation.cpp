#include "propagation.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <utility>

#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cli {
namespace {

Tensor absolute_values(const Tensor& from) {
  if (from.data() == nullptr) return {};
  Tensor out(DType::f64, from.rows(), from.cols());
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    for (std::int64_t col = 0; col < from.cols(); ++col) out.set(row, col, std::abs(from.get(row, col)));
  }
  return out;
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

/// Operands of one product with one factor; null where it has none.
struct StepOperands {
  const Tensor* values = nullptr;
  const Approximate* x = nullptr;
  const Approximate* g = nullptr;
  const Tensor* bias = nullptr;
};

class Propagation {
 public:
  Propagation(const Problem& problem, const Problem& sampled, const Inputs& inputs)
      : problem_(problem), sampled_(sampled), inputs_(inputs) {}

  [[nodiscard]] Approximate result() {
    const std::size_t count = sampled_.chain.size();
    Approximate x{copied(inputs_.x), {}};
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
  static Tensor copied(const Tensor& from) {
    Tensor to(from.dtype(), from.rows(), from.cols());
    for_each_element(from, [&](std::int64_t row, std::int64_t col) { to.set(row, col, from.get(row, col)); });
    return to;
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
    Approximate g{copied(inputs_.g), {}};
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

Approximate propagated(const Problem& problem, const Problem& sampled, const Inputs& inputs) {
  return Propagation(problem, sampled, inputs).result();
}

}  // namespace kronsparse::cli
