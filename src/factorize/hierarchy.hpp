// The hierarchical factorisation of a matrix in the pattern of a chain's product: split after split, each
// into the best two factors.
//
// One factor is the centre. What is left of it keeps lengths when it is multiplied from the left, what is
// right of it when it is multiplied from the right (each block of a split has orthonormal columns, or rows),
// so that an error of the centre is the error of the product.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "factorize/values.hpp"
#include "kronsparse/chain.hpp"

namespace kronsparse::factorization {

/// Told how much more work is done, in floating-point operations, between pieces of it.
using Tick = std::function<void(double)>;

/// Work of a split, in floating-point operations.
[[nodiscard]] double work_of(const Pattern& left, const Pattern& right);

template <class T>
class Hierarchy {
 public:
  /// `values` are those of the product of the chain, which is chainable, and are there as long as this is;
  /// `is_orthonormal` false leaves the centre out: factors share the singular values.
  Hierarchy(const Chain& chain, const Values<T>& values, bool is_orthonormal, Tick tick);

  /// Splits between the chain's factors `place` - 1 and `place`; the centre goes to the right or to the
  /// left part. Returns the squared error of the two, as error_of_split does.
  double split(std::size_t place, bool centre_goes_right);

  /// Makes a factor the centre. All splits must have been made.
  void move_centre(std::size_t factor);
  /// The same for factors that are not orthonormal around a centre yet.
  void make_centre(std::size_t factor);

  [[nodiscard]] std::vector<Values<T>>& factors() noexcept { return values_; }

 private:
  void move_right();
  void move_left();

  Chain chain_;
  const T* whole_;  ///< the values that the first split is made of
  bool is_orthonormal_;
  Tick tick_;
  std::vector<std::size_t> ends_;  ///< factor f is the product of the chain from ends_[f-1] to ends_[f]
  std::vector<Pattern> patterns_;  ///< of the factors so far
  std::vector<Values<T>> values_;  ///< and their values
  std::size_t centre_ = 0;
};

/// The squared error of the best two factors with these patterns, whose product has these values; where
/// blocks are small and of rank 1, less by their rounding (RankOne).
template <class T>
[[nodiscard]] double error_of_split(const Pattern& left, const Pattern& right, const T* values,
                                    const Tick& tick);

/// The squared distance of the product of a chainable chain's factors from these values of its pattern.
template <class T>
[[nodiscard]] double squared_distance(const Chain& chain, const std::vector<Values<T>>& factors,
                                      const Values<T>& values);

/// The values as a product of two factors with these patterns, exactly: the rank must allow that.
template <class T>
void lift(const Pattern& left, const Pattern& right, const Values<T>& values, Values<T>& left_values,
          Values<T>& right_values);

}  // namespace kronsparse::factorization
