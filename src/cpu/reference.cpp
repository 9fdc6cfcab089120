#include "cpu/reference.hpp"

#include <cmath>
#include <complex>
#include <cstring>
#include <numbers>
#include <type_traits>

#include "core/dispatch.hpp"
#include "core/geometry.hpp"
#include "cpu/packing.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/storage.hpp"
#include "cpu/threads.hpp"

namespace kronsparse {
namespace {

double add_product(double sum, double left, double right) { return sum + left * right; }

// The textbook product: what C's complex multiplication does beyond it to turn
// some NaNs into infinities is not what dense libraries or GPUs do.
std::complex<double> add_product(std::complex<double> sum, std::complex<double> left,
                                 std::complex<double> right) {
  return {sum.real() + left.real() * right.real() - left.imag() * right.imag(),
          sum.imag() + left.real() * right.imag() + left.imag() * right.real()};
}

double conjugate(double value) { return value; }
std::complex<double> conjugate(std::complex<double> value) { return std::conj(value); }

double activate(double value, Activation activation) {
  switch (activation) {
    case Activation::none:
      return value;
    case Activation::relu:
      return value < 0 ? 0 : value;  // a NaN stays
    case Activation::gelu:
      return 0.5 * value * std::erfc(-value / std::numbers::sqrt2);
    case Activation::gelu_tanh: {
      // x/2 (1 + tanh u) without its cancellation: x / (1 + e^(-2u)).
      const double u = std::sqrt(2 / std::numbers::pi) * (value + 0.044715 * value * value * value);
      return value / (1 + std::exp(-2 * u));
    }
    case Activation::silu:
      return value / (1 + std::exp(-value));
  }
  return value;
}

// Complex problems have no activation.
std::complex<double> activate(std::complex<double> value, Activation) { return value; }

// Elements of a batch of feature vectors, wherever the layout puts them.
template <class T>
class Batch {
 public:
  Batch(const void* data, Layout layout, std::int64_t stride)
      : data_(static_cast<const T*>(data)),
        sample_step_(layout == Layout::batch_first ? stride : 1),
        feature_step_(layout == Layout::batch_first ? 1 : stride) {}

  typename Storage<T>::Wide operator()(std::int64_t sample, std::int64_t feature) const {
    return Storage<T>::load(data_[sample * sample_step_ + feature * feature_step_]);
  }

 private:
  const T* data_;
  std::int64_t sample_step_;
  std::int64_t feature_step_;
};

/// Seconds of a run on one thread. Up to twice what was measured where operands stay in caches (Neoverse
/// N1), so that it is chosen only where it is faster by far: sums of one term, or outputs of one.
double seconds_alone(const Problem& problem) {
  constexpr double seconds_per_run = 5e-7;
  const bool is_half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const bool is_complex_type = is_complex(problem.dtype);
  const double seconds_per_output = is_half ? 2e-8 : 1.2e-8;
  const double seconds_per_term = problem.dtype == DType::f16    ? 1.3e-8
                                  : problem.dtype == DType::bf16 ? 9e-9
                                  : is_complex_type              ? 4e-9
                                                                 : 2.5e-9;
  const MatrixShape shape = y_matrix(problem);
  const double outputs = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  const double terms = problem.flops() / (is_complex_type ? 8 : 2);
  return seconds_per_run + outputs * seconds_per_output + terms * seconds_per_term;
}

template <class T>
class ReferenceExecutor final : public Executor {
 public:
  explicit ReferenceExecutor(const Problem& problem) : problem_(problem) {
    if (problem.operation != Operation::gradient)
      order_.bytes = static_cast<std::size_t>(problem.pattern().nnz()) * sizeof(T);
  }

  [[nodiscard]] const PackedOrder& order() const noexcept override { return order_; }
  void pack(const void* values, void* packed, Stream /*stream*/) const override {
    std::memcpy(packed, values, order_.bytes);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    if (problem_.operation == Operation::gradient)
      gradient(operands);
    else
      multiply(operands, static_cast<const T*>(weights.data));
  }

 private:
  using Wide = typename Storage<T>::Wide;

  // y[i,k,j] = sum over l of values[i,k,l,j] x[i,l,j]; transposed, k and l change roles.
  void multiply(const Operands& operands, const T* all_values) const {
    const std::int64_t b = problem_.pattern().b;
    const std::int64_t c = problem_.pattern().c;
    const std::int64_t d = problem_.pattern().d;
    const bool transposed = is_transposed(problem_.operation);
    const std::int64_t outputs = transposed ? c : b;          // k, or l when transposed
    const std::int64_t terms = transposed ? b : c;            // l, or k when transposed
    const std::int64_t output_step = transposed ? d : c * d;  // between values of neighbouring outputs
    const std::int64_t term_step = transposed ? c * d : d;    // between values of neighbouring terms

    const Batch<T> x(operands.x, problem_.layout, problem_.x_stride());
    const T* bias = static_cast<const T*>(operands.bias);
    T* y = static_cast<T*>(operands.y);
    const MatrixShape shape = y_matrix(problem_);
    simd::parallel_each(shape.rows * shape.cols, worthwhile_threads(), [&](std::int64_t element) {
      const std::int64_t row = element / shape.cols;
      const std::int64_t col = element % shape.cols;
      const std::int64_t sample = problem_.layout == Layout::batch_first ? row : col;
      const std::int64_t feature = problem_.layout == Layout::batch_first ? col : row;
      const std::int64_t j = feature % d;
      const std::int64_t output = feature / d % outputs;
      const std::int64_t i = feature / d / outputs;

      const T* values = all_values + i * b * c * d + output * output_step + j;
      Wide sum{};
      for (std::int64_t term = 0; term < terms; ++term) {
        const Wide value = Storage<T>::load(values[term * term_step]);
        sum = add_product(sum, problem_.operation == Operation::adjoint ? conjugate(value) : value,
                          x(sample, (i * terms + term) * d + j));
      }
      if (bias != nullptr) sum += Storage<T>::load(bias[feature]);
      y[row * shape.stride + col] = Storage<T>::store(activate(sum, problem_.activation));
    });
  }

  // y[i,k,l,j] = sum over samples of g[i,k,j] conj(x[i,l,j]).
  void gradient(const Operands& operands) const {
    const std::int64_t b = problem_.pattern().b;
    const std::int64_t c = problem_.pattern().c;
    const std::int64_t d = problem_.pattern().d;
    const Batch<T> x(operands.x, problem_.layout, cols_matrix(problem_).stride);
    const Batch<T> g(operands.g, problem_.layout, rows_matrix(problem_).stride);
    T* y = static_cast<T*>(operands.y);
    simd::parallel_each(problem_.pattern().nnz(), worthwhile_threads(), [&](std::int64_t element) {
      const std::int64_t j = element % d;
      const std::int64_t l = element / d % c;
      const std::int64_t k = element / d / c % b;
      const std::int64_t i = element / d / c / b;
      Wide sum{};
      for (std::int64_t sample = 0; sample < problem_.batch; ++sample)
        sum = add_product(sum, g(sample, (i * b + k) * d + j), conjugate(x(sample, (i * c + l) * d + j)));
      y[element] = Storage<T>::store(sum);
    });
  }

  [[nodiscard]] int worthwhile_threads() const { return threads_for(seconds_alone(problem_)); }

  Problem problem_;
  PackedOrder order_;  ///< as they are given
};

Proposal propose(const Problem& problem, Device /*device*/, const PackedOrder* packed_as) {
  if (packed_as != nullptr && !packed_as->is_as_given()) return {.refusal = other_order};
  return {.seconds = seconds_on_threads(seconds_alone(problem)), .make = [problem] {
            return dispatch_dtype(problem.dtype, [&]<class T>() -> std::unique_ptr<Executor> {
              return std::make_unique<ReferenceExecutor<T>>(problem);
            });
          }};
}

}  // namespace

Implementation reference_implementation() {
  return {.name = "reference",
          .backend = Backend::cpu,
          .summary = "plain loops with double accumulation; accepts everything",
          .propose = propose};
}

}  // namespace kronsparse
