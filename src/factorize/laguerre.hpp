// The largest eigenvalue of a symmetric tridiagonal matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kronsparse::factorization {

struct LargestEigenvalue {
  double value;
  bool has_converged;  ///< false: `value` is still above the largest eigenvalue
};

/// The largest eigenvalue, from above, by Laguerre's method on the characteristic polynomial p: G = p'/p and
/// H = G' of it. The matrix has `diagonal(t)` for t below k, and `corner(t)` between t and t+1.
template <class Diagonal, class Corner>
[[nodiscard]] LargestEigenvalue largest_eigenvalue(std::int64_t k, const Diagonal& diagonal,
                                                   const Corner& corner) {
  constexpr int most_steps = 40;
  const auto n = static_cast<double>(k);
  double x = 0;  // no eigenvalue is above the largest sum of a row
  for (std::int64_t t = 0; t < k; ++t)
    x = std::max(x, diagonal(t) + std::abs(t > 0 ? corner(t - 1) : 0) + std::abs(t + 1 < k ? corner(t) : 0));
  x *= 1 + 1e-12;
  for (int step = 0; step < most_steps; ++step) {
    // q: the pivots of the matrix minus x, all negative; u and v: their first and second derivative.
    double q = diagonal(0) - x;
    double u = -1;
    double v = 0;
    double g = u / q;
    double h = -g * g;
    for (std::int64_t t = 1; t < k; ++t) {
      const double inverse = 1 / q;
      const double between = corner(t - 1);
      const double ratio = between * between * inverse;
      const double slope = u * inverse;
      v = ratio * ((v * inverse) - (2 * slope * slope));
      u = -1 + (ratio * slope);
      q = diagonal(t) - x - ratio;
      if (q >= 0) return {x, step > 0};  // rounding has led to the other side
      const double share = u / q;
      g += share;
      h += (v / q) - (share * share);
    }
    const double spread = (n - 1) * ((-n * h) - (g * g));
    const double down = n / (g + std::sqrt(std::max(spread, 0.0)));
    x -= down;
    if (down <= 4 * std::numeric_limits<double>::epsilon() * x) return {x, true};
  }
  return {x, false};
}

}  // namespace kronsparse::factorization
