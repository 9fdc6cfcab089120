// Products of Kronecker-sparse matrices: Butterfly, Monarch and the like.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/dtype.hpp"
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

  /// One factor without zeros.
  [[nodiscard]] static Chain dense(std::int64_t rows, std::int64_t cols);
  /// A rows x rank factor times a rank x cols one.
  [[nodiscard]] static Chain low_rank(std::int64_t rows, std::int64_t cols, std::int64_t rank);
  /// The two-factor Monarch chain, whose matrix has blocks² blocks of the given rank:
  /// (1, rows/blocks, blocks·rank, blocks) times (blocks, blocks·rank, cols/blocks, 1);
  /// `blocks` must divide both sizes.
  [[nodiscard]] static Chain monarch(std::int64_t rows, std::int64_t cols, std::int64_t blocks,
                                     std::int64_t rank = 1);
  /// The square-dyadic butterfly of size n = 2^L, L factors
  /// (2^(l-1), 2, 2, 2^(L-l)), l = 1..L: the support of the FFT.
  [[nodiscard]] static Chain butterfly(std::int64_t n);
  /// The same, by the name of its support.
  [[nodiscard]] static Chain square_dyadic(std::int64_t n) { return butterfly(n); }
  /// Butterflies of any size: factor l is (product of col_radices before l, row_radices[l]·ranks[l-1],
  /// col_radices[l]·ranks[l], product of row_radices after l). Without ranks, all are 1. Every chain whose
  /// neighbours are chainable is one of these.
  ///
  ///     const auto chain = kronsparse::Chain::butterfly({4, 3}, {5, 6}, {2});
  ///     assert(chain.to_string() == "1x4x10x3*5x6x6x1");
  [[nodiscard]] static Chain butterfly(const std::vector<std::int64_t>& row_radices,
                                       const std::vector<std::int64_t>& col_radices,
                                       const std::vector<std::int64_t>& ranks = {});
  /// A butterfly of size n = 2^L times the transpose of one.
  [[nodiscard]] static Chain kaleidoscope(std::int64_t n);
  /// (2^(l-1), 2t, 2t, 2^(L-l)) for l = 1..L, of size n = 2^L·t.
  [[nodiscard]] static Chain block_butterfly(std::int64_t n, std::int64_t t);
  /// (blocks, rows/blocks, rank, 1), (1, blocks, blocks, rank), (blocks, rank, cols/blocks, 1).
  [[nodiscard]] static Chain blast(std::int64_t rows, std::int64_t cols, std::int64_t blocks,
                                   std::int64_t rank);
  /// Two cores of a block tensor train, (1, m1, n1·rank, m2), (n1, rank·m2, n2, 1).
  [[nodiscard]] static Chain btt(std::int64_t m1, std::int64_t m2, std::int64_t n1, std::int64_t n2,
                                 std::int64_t rank);
  /// m factors of b x b blocks, (n/(b·2^(l-1)), b, b, 2^(l-1)) for l = m..1.
  [[nodiscard]] static Chain boft(std::int64_t n, std::int64_t b, std::int64_t m);
  /// A chain of two factors with at most so many parameters, Monarch or low rank; the dense matrix where it
  /// is within. It has the most blocks, up to the square root of the smaller size, that use three quarters
  /// of what is allowed; their rank takes up the rest.
  ///
  ///     const auto chain = kronsparse::Chain::for_budget(4096, 4096, 600'000);
  ///     assert(chain.to_string() == "1x64x64x64*64x64x64x1");
  [[nodiscard]] static Chain for_budget(std::int64_t rows, std::int64_t cols, std::int64_t parameters);

  [[nodiscard]] const std::vector<Pattern>& factors() const noexcept { return factors_; }
  [[nodiscard]] std::size_t size() const noexcept { return factors_.size(); }
  /// The factor at `index`; Error invalid_argument when there is none.
  [[nodiscard]] const Pattern& operator[](std::size_t index) const;
  [[nodiscard]] std::int64_t rows() const noexcept { return factors_.front().rows(); }
  [[nodiscard]] std::int64_t cols() const noexcept { return factors_.back().cols(); }
  /// Sum of the factors' nnz: parameters of the product.
  [[nodiscard]] std::int64_t nnz() const noexcept;

  /// For each of the size()-1 places where the chain can be split in two, the rank of the product's blocks
  /// there; 0 where the neighbours are not chainable (Pattern::rank_with).
  [[nodiscard]] std::vector<std::int64_t> ranks() const;
  /// Whether every pair of neighbours is chainable: `factorize` needs that.
  [[nodiscard]] bool is_chainable() const;
  /// Whether a chainable pair of neighbours can do no more than its product in one factor.
  [[nodiscard]] bool is_redundant() const;
  /// The chain with redundant neighbours made one.
  [[nodiscard]] Chain reduced() const;
  /// The pattern of the product; nothing where it has none.
  [[nodiscard]] std::optional<Pattern> product() const;
  /// The share of the product's entries that may be other than zero. Counted entry by entry where the product
  /// has no pattern, which takes rows·cols bits.
  ///
  ///     assert(kronsparse::Chain::butterfly(8).density() == 1);
  [[nodiscard]] double density() const;
  /// Floating-point operations of a product with so many vectors, a multiplication and an addition for each
  /// value.
  [[nodiscard]] std::int64_t flops(std::int64_t batch = 1) const noexcept { return 2 * batch * nnz(); }
  /// Bytes of the values in a dtype.
  ///
  ///     assert(kronsparse::Chain::monarch(64, 64, 8).bytes(kronsparse::DType::f16) == 2048);
  [[nodiscard]] std::int64_t bytes(DType dtype) const;
  /// The factors and the product as lines of text.
  ///
  ///     const std::string table = kronsparse::Chain::monarch(32, 8, 4).table();
  ///     assert(table ==
  ///            "factor   pattern         rows      cols       nnz   density   rank\n"
  ///            "     0   1x8x4x4           32        16       128     0.250      1\n"
  ///            "     1   4x4x2x1           16         8        32     0.250\n"
  ///            "product                    32         8       160     1.000\n");
  [[nodiscard]] std::string table() const;
  /// The chain with factors `index` and `index` + 1 made one; Error invalid_argument where their product is
  /// not Kronecker-sparse.
  ///
  ///     const auto butterfly = kronsparse::Chain::butterfly(8);
  ///     assert(butterfly.fuse(0).to_string() == "1x4x4x2*4x2x2x1");
  [[nodiscard]] Chain fuse(std::size_t index) const;
  /// The chain of the transposed product.
  [[nodiscard]] Chain transposed() const;
  /// The chain of the product of both.
  [[nodiscard]] Chain operator*(const Chain& right) const;

  /// Patterns joined by '*', left factor first: "1x64x64x64*64x64x64x1".
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] static Chain parse(std::string_view text);

  friend bool operator==(const Chain&, const Chain&) = default;

 private:
  std::vector<Pattern> factors_;
};

}  // namespace kronsparse
