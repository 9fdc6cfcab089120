// The best approximation of one dense block by a given rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "factorize/bidiagonal.hpp"

namespace kronsparse::factorization {

/// Works on one block after the other, all of one size, with memory of its own. Blocks are reduced by
/// reflectors to a triangle, that to a bidiagonal matrix, and that is diagonalised; only the leading left
/// vectors are then computed.
template <class T>
class LowRank {
 public:
  LowRank(std::int64_t rows, std::int64_t cols, std::int64_t rank);

  /// From now on all threads work on a block, if it is large, and `tell` is called on this thread with the
  /// share of the work on the block that is done. Results are the same.
  void take_threads(std::function<void(double)> tell) { tell_ = std::move(tell); }

  /// The memory for the next block, row-major; approximate() and tail() leave it as it is.
  [[nodiscard]] T* block() noexcept { return block_.data(); }

  /// The block is close to left·right: left is rows x rank with orthonormal columns, as far as there are
  /// any (min(rows, cols); the rest are 0), and right = left^*·block. Returns the squared distance.
  double approximate();
  /// Multiplies columns of left and divides rows of right so that both have the same length.
  void share();
  /// The distance without the rest.
  double tail();

  [[nodiscard]] const T* left() const noexcept { return left_.data(); }    ///< row-major
  [[nodiscard]] const T* right() const noexcept { return right_.data(); }  ///< row-major

 private:
  void reduce();
  void bidiagonalise();
  double diagonalise_and_sort(bool with_vectors);
  void make_vectors(bool are_singular);
  void make_vectors(bool are_singular, std::int64_t first, std::int64_t last, double* z, T* x);
  void project();
  template <class Body>
  void over(std::int64_t count, std::int64_t least, std::int64_t in_range, const Body& body) const;

  std::int64_t rows_, cols_, rank_;
  std::int64_t small_, large_;  ///< the smaller and the larger of rows and cols
  bool is_tall_;
  std::vector<T> block_, left_, right_;
  std::vector<T> wide_;      ///< small x large: the block or its transpose, then the triangle and reflectors
  std::vector<T> wide_tau_;  ///< of its reflectors
  std::vector<T> square_;    ///< the triangle as it is made bidiagonal
  std::vector<T> lefts_;     ///< reflectors of its columns, one in each row
  std::vector<T> lefts_tau_;
  std::vector<T> row_, vectors_;
  std::vector<T> parts_;  ///< sums over ranges of rows
  std::vector<double> d_, e_, z_;
  std::vector<std::int64_t> order_;
  std::vector<Rotation> rotations_;
  std::function<void(double)> tell_;  ///< empty: the block is this thread's alone
};

}  // namespace kronsparse::factorization
