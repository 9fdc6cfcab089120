// The support of a Kronecker-sparse matrix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kronsparse/export.h"

namespace kronsparse {

/// Pattern (a,b,c,d): support I_a (x) 1_{b x c} (x) I_d. The matrix K is
/// (a·b·d) x (a·c·d); its a·b·c·d values are stored row-major as (a,b,c,d):
/// K[i·b·d + k·d + j, i·c·d + l·d + j] = values[i,k,l,j].
///
///     auto p = kronsparse::Pattern::parse("2x3x4x5");
///     assert(p.rows() == 30 && p.cols() == 40 && p.nnz() == 120);
struct KRONSPARSE_API Pattern {
  std::int64_t a = 1;
  std::int64_t b = 1;
  std::int64_t c = 1;
  std::int64_t d = 1;

  [[nodiscard]] std::int64_t rows() const noexcept { return a * b * d; }
  [[nodiscard]] std::int64_t cols() const noexcept { return a * c * d; }
  [[nodiscard]] std::int64_t nnz() const noexcept { return a * b * c * d; }
  /// nnz over rows·cols: 1/(a·d).
  [[nodiscard]] double density() const noexcept;
  /// (b+c)/(b·c), the paper's predictor of what permutations cost.
  [[nodiscard]] double h() const noexcept;
  /// Pattern of the transposed matrix: (a,c,b,d).
  [[nodiscard]] Pattern transposed() const noexcept { return {a, c, b, d}; }

  /// The rank of each block of the product with `right`, 0 where the pair is not chainable. It is where a
  /// divides right.a, right.d divides d and r = a·c/right.a is an integer: the product then consists of
  /// right.a·d separate blocks, b x right.c each, and any blocks of rank up to r can be had.
  ///
  ///     assert((kronsparse::Pattern{1, 8, 12, 4}.rank_with({4, 12, 2, 1}) == 3));
  [[nodiscard]] std::int64_t rank_with(const Pattern& right) const noexcept;
  /// The pattern of the product with `right`, whose rows are this one's columns; nothing where the product
  /// is not Kronecker-sparse.
  [[nodiscard]] std::optional<Pattern> times(const Pattern& right) const noexcept;

  /// Throws unless a,b,c,d >= 1 (invalid_argument) and rows, cols and nnz,
  /// in bytes of the widest dtype, fit in 63 bits (overflow).
  void validate() const;

  /// "2x3x4x5".
  [[nodiscard]] std::string to_string() const;
  /// Reads what to_string() writes, and validates it.
  [[nodiscard]] static Pattern parse(std::string_view text);

  friend bool operator==(const Pattern&, const Pattern&) = default;
};

}  // namespace kronsparse
