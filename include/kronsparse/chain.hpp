// Products of Kronecker-sparse matrices: Butterfly, Monarch and the like.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/export.h"
#include "kronsparse/pattern.hpp"

namespace kronsparse {

/// Patterns of a product W = K_1 K_2 ... K_L, left factor first, so the last
/// one is applied first. Neighbours must fit: cols of one = rows of the next.
/// A chain is always valid: constructors throw otherwise.
///
///     kronsparse::Chain monarch = kronsparse::Chain::monarch(4096, 4096, 64);
///     assert(monarch.rows() == 4096 && monarch.size() == 2);
class KRONSPARSE_API Chain {
 public:
  Chain() : Chain(Pattern{}) {}  ///< the 1 x 1 matrix
  /// One factor.
  // NOLINTNEXTLINE(google-explicit-constructor): a pattern is a chain of one
  Chain(const Pattern& factor) : Chain(std::vector<Pattern>{factor}) {}
  explicit Chain(std::vector<Pattern> factors);
  Chain(std::initializer_list<Pattern> factors) : Chain(std::vector<Pattern>(factors)) {}

  /// The two-factor Monarch chain of a rows x cols matrix with `blocks` blocks:
  /// (1, rows/blocks, blocks, blocks) times (blocks, blocks, cols/blocks, 1);
  /// `blocks` must divide both sizes.
  [[nodiscard]] static Chain monarch(std::int64_t rows, std::int64_t cols, std::int64_t blocks);
  /// The square-dyadic butterfly of size n = 2^L, L factors
  /// (2^(l-1), 2, 2, 2^(L-l)), l = 1..L: the support of the FFT.
  [[nodiscard]] static Chain butterfly(std::int64_t n);

  [[nodiscard]] const std::vector<Pattern>& factors() const noexcept { return factors_; }
  [[nodiscard]] std::size_t size() const noexcept { return factors_.size(); }
  /// The factor at `index`; Error invalid_argument when there is none.
  [[nodiscard]] const Pattern& operator[](std::size_t index) const;
  [[nodiscard]] std::int64_t rows() const noexcept { return factors_.front().rows(); }
  [[nodiscard]] std::int64_t cols() const noexcept { return factors_.back().cols(); }
  /// Sum of the factors' nnz: parameters of the product.
  [[nodiscard]] std::int64_t nnz() const noexcept;

  /// Patterns joined by '*', left factor first: "1x64x64x64*64x64x64x1".
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static Chain parse(std::string_view text);

  friend bool operator==(const Chain&, const Chain&) = default;

 private:
  std::vector<Pattern> factors_;
};

}  // namespace kronsparse
