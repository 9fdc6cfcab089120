#include "factorize/bidiagonal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "factorize/laguerre.hpp"

namespace kronsparse::factorization {
namespace {

struct Turn {
  double cos;
  double sin;
  double length;
};
/// The rotation that turns (x, y) into (length, 0). Elements are at most near 1, see `diagonalise`.
Turn turn(double x, double y) {
  if (y == 0) return {1, 0, x};
  const double length = std::sqrt((x * x) + (y * y));
  if (length < std::numeric_limits<double>::min() * 1e16) {  // the squares have vanished, or nearly
    const double exact = std::hypot(x, y);
    return {x / exact, y / exact, exact};
  }
  const double inverse = 1 / length;
  return {x * inverse, y * inverse, length};
}

class Diagonaliser {
 public:
  Diagonaliser(double* d, double* e, std::vector<Rotation>* rotations)
      : d_(d), e_(e), rotations_(rotations) {}

  void find_least(std::int64_t k) {
    double largest = 0;
    e_[k - 1] = 0;
    for (std::int64_t t = 0; t < k; ++t) largest = std::max({largest, std::abs(d_[t]), std::abs(e_[t])});
    least_ = largest * std::numeric_limits<double>::epsilon() * 0x1p-3;
  }

  bool run_largest(std::int64_t k, std::int64_t wanted) {
    constexpr int most_steps = 8;
    find_least(k);
    for (std::int64_t last = k - 1; last >= k - wanted; --last) {
      for (std::int64_t t = 1; t <= last; ++t)
        if (std::abs(d_[t - 1]) <= least_ || is_small(e_[t - 1], t)) return false;
      if (std::abs(d_[last]) <= least_) return false;
      const double value = largest_value(last + 1);
      if (value == 0) return false;
      int steps = 0;
      while (steps++ < most_steps && !is_small(e_[last - 1], last)) {
        const double begin = d_[0];
        chase(0, last, (begin - value) * ((begin + value) / begin), e_[0]);
      }
      if (!is_small(e_[last - 1], last) || std::abs(std::abs(d_[last]) - value) > 1e-8 * value) return false;
      e_[last - 1] = 0;
    }
    return true;
  }

  bool run(std::int64_t k) {
    constexpr std::int64_t most_steps_each = 60;
    find_least(k);
    std::int64_t steps = most_steps_each * k;
    for (std::int64_t last = k - 1; last > 0;) {
      if (is_small(e_[last - 1], last)) {
        e_[--last] = 0;
        continue;
      }
      if (steps-- == 0) return false;
      std::int64_t first = last - 1;
      while (first > 0 && !is_small(e_[first - 1], first)) --first;
      if (first > 0) e_[first - 1] = 0;
      std::int64_t zero = last;
      while (zero >= first && std::abs(d_[zero]) > least_) --zero;
      if (zero == last)
        clear_last(first, last);
      else if (zero >= first)
        clear_row(zero, last);
      else
        step(first, last);
    }
    return true;
  }

 private:
  [[nodiscard]] bool is_small(double x, std::int64_t right) const {
    return std::abs(x) <= std::max(least_, std::numeric_limits<double>::epsilon() *
                                               (std::abs(d_[right - 1]) + std::abs(d_[right])));
  }

  void record(std::int64_t first, std::int64_t second, const Turn& made) {
    if (rotations_ != nullptr)
      rotations_->push_back(
          {static_cast<std::int32_t>(first), static_cast<std::int32_t>(second), made.cos, made.sin});
  }

  /// d[last] is 0: what is above it goes, by rotations of columns alone.
  void clear_last(std::int64_t first, std::int64_t last) {
    d_[last] = 0;
    double bulge = e_[last - 1];
    e_[last - 1] = 0;
    for (std::int64_t t = last - 1; t >= first; --t) {
      const Turn made = turn(d_[t], bulge);
      d_[t] = made.length;
      if (t == first) break;
      bulge = -made.sin * e_[t - 1];
      e_[t - 1] *= made.cos;
    }
  }

  /// d[zero] is 0: its row becomes 0, and the matrix falls apart.
  void clear_row(std::int64_t zero, std::int64_t last) {
    d_[zero] = 0;
    double bulge = e_[zero];
    e_[zero] = 0;
    for (std::int64_t t = zero + 1; t <= last; ++t) {
      const Turn made = turn(d_[t], bulge);
      d_[t] = made.length;
      bulge = -made.sin * e_[t];
      e_[t] *= made.cos;
      record(t, zero, made);
    }
  }

  /// One QR step with the shift of the last two rows.
  void step(std::int64_t first, std::int64_t last) {
    const double scale = std::max({std::abs(d_[last]), std::abs(d_[last - 1]), std::abs(e_[last - 1]),
                                   std::abs(d_[first]), std::abs(e_[first])});
    const double end = d_[last] / scale;
    const double before = d_[last - 1] / scale;
    const double above = e_[last - 1] / scale;
    const double begin = d_[first] / scale;
    const double half = (((before + end) * (before - end)) + (above * above)) / 2;
    const double cross = (end * above) * (end * above);
    double shift = 0;
    if (half != 0 || cross != 0) {
      const double root = std::sqrt((half * half) + cross);
      shift = cross / (half + (half < 0 ? -root : root));
    }
    chase(first, last, ((begin + end) * (begin - end)) + shift, begin * (e_[first] / scale));
  }

  /// The rotations of a step: the first turns (f, g), which say what the shift is, the others chase what that
  /// leaves outside the two diagonals.
  void chase(std::int64_t first, std::int64_t last, double f, double g) {
    for (std::int64_t t = first; t < last; ++t) {
      const Turn right = turn(f, g);
      if (t != first) e_[t - 1] = right.length;
      f = (right.cos * d_[t]) + (right.sin * e_[t]);
      e_[t] = (right.cos * e_[t]) - (right.sin * d_[t]);
      g = right.sin * d_[t + 1];
      d_[t + 1] *= right.cos;
      const Turn left = turn(f, g);
      d_[t] = left.length;
      f = (left.cos * e_[t]) + (left.sin * d_[t + 1]);
      d_[t + 1] = (left.cos * d_[t + 1]) - (left.sin * e_[t]);
      g = left.sin * e_[t + 1];
      e_[t + 1] *= left.cos;
      record(t, t + 1, left);
    }
    e_[last - 1] = f;
  }

  /// The largest singular value of the first k rows, from B^T·B. 0 where that takes long.
  [[nodiscard]] double largest_value(std::int64_t k) const {
    const LargestEigenvalue found = largest_eigenvalue(
        k, [&](std::int64_t t) { return (d_[t] * d_[t]) + (t > 0 ? e_[t - 1] * e_[t - 1] : 0); },
        [&](std::int64_t t) { return d_[t] * e_[t]; });
    return found.has_converged ? std::sqrt(found.value) : 0;
  }

  double* d_;
  double* e_;
  std::vector<Rotation>* rotations_;
  double least_ = 0;
};

}  // namespace

bool diagonalise(double* d, double* e, std::int64_t k, std::vector<Rotation>* rotations) {
  return Diagonaliser(d, e, rotations).run(k);
}

bool diagonalise_largest(double* d, double* e, std::int64_t k, std::int64_t wanted,
                         std::vector<Rotation>* rotations) {
  return Diagonaliser(d, e, rotations).run_largest(k, wanted);
}

}  // namespace kronsparse::factorization
