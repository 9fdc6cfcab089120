#include "factorize/dense.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include "core/message.hpp"
#include "factorize/hierarchy.hpp"
#include "factorize/parallel.hpp"
#include "factorize/reflector.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::factorization {
namespace {

std::size_t count(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

/// The largest magnitude of real and imaginary parts in a row; an element that is not finite is an error.
template <class T>
double largest_in(const T* row, std::int64_t index, std::int64_t cols) {
  using Real = RealOf<T>;
  constexpr std::int64_t parts = is_complex_type<T> ? 2 : 1;
  const auto* const numbers = reinterpret_cast<const Real*>(row);
  Real largest = 0;
  bool is_finite = true;
  for (std::int64_t part = 0; part < parts * cols; ++part) {
    const Real size = std::abs(numbers[part]);
    is_finite &= size <= std::numeric_limits<Real>::max();  // false for NaN, too
    largest = size > largest ? size : largest;
  }
  if (!is_finite) {
    std::int64_t part = 0;
    while (std::isfinite(numbers[part])) ++part;
    throw Error(ErrorCode::invalid_argument,
                message("w: the element at row {}, column {} is not finite", index, part / parts));
  }
  return static_cast<double>(largest);
}

/// Multiplies by a power of two, which is exact as long as the result is near 1.
template <class T>
class Scale {
 public:
  explicit Scale(int exponent)
      : first_(std::ldexp(RealOf<T>{1}, exponent / 2)),
        second_(std::ldexp(RealOf<T>{1}, exponent - (exponent / 2))) {}
  T operator()(T x) const noexcept { return x * first_ * second_; }

 private:
  RealOf<T> first_, second_;  // one alone may be too large
};

/// Scales elements; the sum of the squares of the result.
template <class T>
double scale_row(const Scale<T>& scale, const T* from, T* to, std::int64_t cols) {
  constexpr std::int64_t at_once = 4;
  double sums[at_once] = {};
  std::int64_t col = 0;
  for (; col + at_once <= cols; col += at_once)
    for (std::int64_t part = 0; part < at_once; ++part) {
      to[col + part] = scale(from[col + part]);
      sums[part] += squared(to[col + part]);
    }
  for (; col < cols; ++col) {
    to[col] = scale(from[col]);
    sums[0] += squared(to[col]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
std::vector<Values<T>> conjugates(std::vector<Values<T>> factors) {
  for (Values<T>& values : factors)
    for (T& value : values) value = conjugate(value);
  return factors;
}

/// Part of a chain, with the values that belong to it, for the library's products.
template <class T>
struct Part {
  Part(const Chain& whole, const std::vector<Values<T>>& factors, std::size_t begin, std::size_t end)
      : chain(std::vector<Pattern>(whole.factors().begin() + static_cast<std::ptrdiff_t>(begin),
                                   whole.factors().begin() + static_cast<std::ptrdiff_t>(end))) {
    for (std::size_t index = begin; index < end; ++index)
      values.emplace_back(factors[index].data(), static_cast<std::int64_t>(factors[index].size()));
  }
  Chain chain;
  std::vector<ConstVector> values;
};

}  // namespace

template <class T>
Dense<T>::Dense(const ConstMatrix& w) : rows_(w.rows), cols_(w.cols), elements_(count(w.rows, w.cols)) {
  const T* const from = static_cast<const T*>(w.data);
  const std::int64_t in_range = 1 + ((1 << 15) / cols_);
  std::vector<double> of_row(static_cast<std::size_t>(rows_));
  for_ranges(rows_, in_range, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row)
      of_row[static_cast<std::size_t>(row)] = largest_in(from + (row * w.stride), row, cols_);
  });
  const double largest = std::ranges::max(of_row);
  if (largest > 0) std::frexp(largest, &exponent_);
  const Scale<T> scale(-exponent_);
  for_ranges(rows_, in_range, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row)
      of_row[static_cast<std::size_t>(row)] =
          scale_row(scale, from + (row * w.stride), &elements_[count(row, cols_)], cols_);
  });
  norm_ = std::sqrt(std::accumulate(of_row.begin(), of_row.end(), 0.0));
}

template <class T>
const Values<T>& Dense<T>::values_of(const Pattern& pattern, Values<T>& memory) const {
  if (pattern.a == 1 && pattern.d == 1) return elements_;
  Values<T>& values = memory;
  values.clear();
  values.reserve(static_cast<std::size_t>(pattern.nnz()));
  for (std::int64_t i = 0; i < pattern.a; ++i)
    for (std::int64_t k = 0; k < pattern.b; ++k)
      for (std::int64_t l = 0; l < pattern.c; ++l)
        for (std::int64_t j = 0; j < pattern.d; ++j) {
          const std::int64_t row = (((i * pattern.b) + k) * pattern.d) + j;
          const std::int64_t col = (((i * pattern.c) + l) * pattern.d) + j;
          values.push_back(elements_[count(row, cols_) + static_cast<std::size_t>(col)]);
        }
  return values;
}

template <class T>
double Dense<T>::squared_norm_outside(const Pattern& pattern) const {
  if (pattern.a == 1 && pattern.d == 1) return 0;
  double sum = 0;
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t col = 0; col < cols_; ++col)
      if (row / (pattern.b * pattern.d) != col / (pattern.c * pattern.d) ||
          row % pattern.d != col % pattern.d)
        sum += squared(elements_[count(row, cols_) + static_cast<std::size_t>(col)]);
  return sum;
}

template <class T>
double Dense<T>::squared_error_of(const Chain& chain, const std::vector<Values<T>>& factors) const {
  const Pattern pattern = chain.product().value();
  Values<T> memory;
  const Values<T>& values = values_of(pattern, memory);
  return squared_norm_outside(pattern) + squared_distance(chain, factors, values);
}

/// The factors before the one in question keep lengths, and so do those behind it: what is nearest is the
/// projection, left^*·W·right^*, in the pattern.
template <class T>
Values<T> Dense<T>::best_factor(const Chain& chain, const std::vector<Values<T>>& factors,
                                std::size_t index) const {
  Dense projected = *this;
  if (index + 1 < chain.size()) {  // W·right^* = (conj(right)·W^T)^T
    const std::vector<Values<T>> conjugated = conjugates(factors);
    const Part<T> right(chain, conjugated, index + 1, chain.size());
    projected.cols_ = right.chain.rows();
    projected.elements_.resize(count(rows_, projected.cols_));
    multiply(right.chain, right.values, {elements_.data(), rows_, cols_},
             {projected.elements_.data(), rows_, projected.cols_});
  }
  if (index > 0) {
    const Part<T> left(chain, factors, 0, index);
    MultiplyOptions adjoint;
    adjoint.layout = Layout::batch_last;
    adjoint.operation = Operation::adjoint;
    Values<T> result(count(left.chain.cols(), projected.cols_));
    multiply(left.chain, left.values, {projected.elements_.data(), rows_, projected.cols_},
             {result.data(), left.chain.cols(), projected.cols_}, adjoint);
    projected.elements_ = std::move(result);
    projected.rows_ = left.chain.cols();
  }
  Values<T> memory;
  return projected.values_of(chain[index], memory);
}

template <class T>
void Dense<T>::unscale(std::vector<Values<T>>& factors) const {
  // Shared among all: one factor alone could overflow, or lose bits where numbers are very small.
  const int factor_count = static_cast<int>(factors.size());
  int left = exponent_;
  for (int index = 0; index < factor_count; ++index) {
    const int part = left / (factor_count - index);
    left -= part;
    const Scale<T> scale(part);
    for (T& value : factors[static_cast<std::size_t>(index)]) value = scale(value);
  }
}

template class Dense<float>;
template class Dense<double>;
template class Dense<std::complex<float>>;
template class Dense<std::complex<double>>;

}  // namespace kronsparse::factorization
