// How far blocks are from the nearest matrices of rank 1, several blocks at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "factorize/split.hpp"

namespace kronsparse::factorization {

/// Works on real blocks of one size, a block in each lane of a vector register. Results are lower
/// bounds, rounding included: they are below the squared distance by at most a few thousand units in the
/// last place of the block's squared norm, and by far less where the block is nearly of rank 1.
///
/// The block's Gram matrix, on its shorter side, has the squared singular values. Its largest eigenvalue is
/// found by reducing it to three diagonals. Subtracting that from the trace would leave nothing but rounding
/// where the block is nearly of rank 1. There, a few power iterations find the leading vector u, and the
/// distance is that of the block from u·u^T·block, less a bound on what u is worse than the best vector.
class RankOneDistances {
 public:
  /// So many blocks are read at once: neighbours share cache lines.
  static constexpr std::int64_t at_once = 8;

  RankOneDistances(std::int64_t rows, std::int64_t cols);

  /// Reads the blocks at places of an array; what is beyond `count` counts as 0.
  template <class Real>
  void read(const Real* values, const std::array<Place, at_once>& places, std::int64_t count = at_once);
  /// The sum of the squared distances of these blocks, or less by rounding.
  double lower_bound();

 private:
  using Lanes [[gnu::vector_size(16)]] = double;
  static constexpr std::int64_t width = 2;
  static constexpr std::int64_t groups = at_once / width;

  double lower_bound_of_group();
  void make_gram();
  void multiply_gram(std::int64_t first, const Lanes* x, Lanes* y) const;
  void make_tridiagonal();
  [[nodiscard]] double by_eigenvalue(std::int64_t lane, double trace) const;
  Lanes by_power(Lanes trace);

  std::int64_t short_, long_;  ///< the sides of a block
  std::int64_t size_;          ///< the shorter one, made even by a row of zeros
  bool is_tall_;
  double rounding_;               ///< of sums over a block, relative
  std::vector<Lanes> blocks_;     ///< (groups, size, long)
  const Lanes* block_ = nullptr;  ///< those of the present group
  std::vector<Lanes> gram_;       ///< (size, size), on and below the diagonal
  std::vector<Lanes> diagonal_, corner_, v_, w_;
};

}  // namespace kronsparse::factorization
