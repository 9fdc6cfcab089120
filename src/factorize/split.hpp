// A chainable pair of patterns and their product: the blocks in which the three have to do with each other.
//
// The product of (a,b1,c1,d1) and (a2,b2,c2,d) has a2·d1 separate blocks, b1 x c2 each: block = left part
// (b1 x rank) times right part (rank x c2). With s = a2/a and q = d1/d, a block is told by (i, ii, jj, j)
// below a, s, q and d; the values of the product are an array (a, b1, q, s, c2, d).
#pragma once

#include <cstdint>

#include "kronsparse/pattern.hpp"

namespace kronsparse::factorization {

/// Elements of a block in an array: the first, and how far rows and columns are apart.
struct Place {
  std::int64_t first;
  std::int64_t row_stride;
  std::int64_t col_stride;
};

class Split {
 public:
  /// left.rank_with(right) must not be 0.
  Split(const Pattern& left, const Pattern& right)
      : left_(left),
        right_(right),
        rank_(left.rank_with(right)),
        parts_of_a_(right.a / left.a),
        parts_of_d_(left.d / right.d) {}

  [[nodiscard]] std::int64_t rows() const noexcept { return left_.b; }
  [[nodiscard]] std::int64_t cols() const noexcept { return right_.c; }
  [[nodiscard]] std::int64_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::int64_t blocks() const noexcept { return right_.a * left_.d; }

  [[nodiscard]] Place in_product(std::int64_t block) const noexcept {
    const At at = locate(block);
    const std::int64_t row = parts_of_d_ * parts_of_a_ * right_.c * right_.d;
    const std::int64_t first =
        (at.i * left_.b * row) + ((at.jj * parts_of_a_ + at.ii) * right_.c * right_.d) + at.j;
    return {first, row, right_.d};
  }
  [[nodiscard]] Place in_left(std::int64_t block) const noexcept {
    const At at = locate(block);
    const std::int64_t first =
        ((at.i * left_.b * left_.c) + (at.ii * rank_)) * left_.d + (at.jj * right_.d) + at.j;
    return {first, left_.c * left_.d, left_.d};
  }
  [[nodiscard]] Place in_right(std::int64_t block) const noexcept {
    const At at = locate(block);
    const std::int64_t first =
        ((((at.i * parts_of_a_) + at.ii) * right_.b + at.jj) * right_.c * right_.d) + at.j;
    return {first, parts_of_d_ * right_.c * right_.d, right_.d};
  }

 private:
  struct At {
    std::int64_t i, ii, jj, j;
  };
  /// Neighbouring blocks lie near each other in the product.
  [[nodiscard]] At locate(std::int64_t block) const noexcept {
    At at{};
    at.j = block % right_.d;
    block /= right_.d;
    at.ii = block % parts_of_a_;
    block /= parts_of_a_;
    at.jj = block % parts_of_d_;
    at.i = block / parts_of_d_;
    return at;
  }

  Pattern left_, right_;
  std::int64_t rank_;
  std::int64_t parts_of_a_;
  std::int64_t parts_of_d_;
};

}  // namespace kronsparse::factorization
