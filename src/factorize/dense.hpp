// The matrix that is factorised: its elements in a pattern, and how far products are from it.
#pragma once

#include <cstdint>
#include <vector>

#include "factorize/values.hpp"
#include "kronsparse/chain.hpp"
#include "kronsparse/multiply.hpp"

namespace kronsparse::factorization {

/// A copy of the matrix, divided by a power of two near its largest element: squares of what is left neither
/// overflow nor vanish. Error invalid_argument where an element is not finite.
template <class T>
class Dense {
 public:
  explicit Dense(const ConstMatrix& w);

  /// The Frobenius norm of the copy.
  [[nodiscard]] double norm() const noexcept { return norm_; }
  /// The elements of the copy that a pattern has, as its values: all of them, or those that `memory` then
  /// has.
  [[nodiscard]] const Values<T>& values_of(const Pattern& pattern, Values<T>& memory) const;
  /// The squared norm of the elements that a pattern does not have.
  [[nodiscard]] double squared_norm_outside(const Pattern& pattern) const;
  /// The squared norm of copy - product.
  [[nodiscard]] double squared_error_of(const Chain& chain, const std::vector<Values<T>>& factors) const;
  /// The values of one factor that bring the product nearest to the copy, the others being orthonormal
  /// around it.
  [[nodiscard]] Values<T> best_factor(const Chain& chain, const std::vector<Values<T>>& factors,
                                      std::size_t index) const;
  /// Makes factors of the copy factors of the matrix.
  void unscale(std::vector<Values<T>>& factors) const;

 private:
  std::int64_t rows_, cols_;
  Values<T> elements_;
  double norm_ = 0;
  int exponent_ = 0;  ///< the matrix is the copy times 2^exponent
};

}  // namespace kronsparse::factorization
