// The best approximation of one dense block by a given rank.
#pragma once

#include <cstdint>
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
  void make_vector(std::int64_t index, std::int64_t place);
  void project();

  std::int64_t rows_, cols_, rank_;
  std::int64_t small_, large_;  ///< the smaller and the larger of rows and cols
  bool is_tall_;
  std::vector<T> block_, left_, right_;
  std::vector<T> wide_;      ///< small x large: the block or its transpose, then the triangle and reflectors
  std::vector<T> wide_tau_;  ///< of its reflectors
  std::vector<T> square_;    ///< the triangle as it is made bidiagonal
  std::vector<T> lefts_;     ///< reflectors of its columns, one in each row
  std::vector<T> lefts_tau_;
  std::vector<T> row_, vector_;
  std::vector<double> d_, e_, z_;
  std::vector<std::int64_t> order_;
  std::vector<Rotation> rotations_;
};

}  // namespace kronsparse::factorization
