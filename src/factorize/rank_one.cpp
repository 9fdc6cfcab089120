#include "factorize/rank_one.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "factorize/laguerre.hpp"

namespace kronsparse::factorization {
namespace {

/// A block counts as nearly of rank 1 if its largest eigenvalue has at least this share of the trace. The
/// next eigenvalue then has at most 1/15 of it, so that each power iteration gains more than a digit.
constexpr double nearly_all = 15.0 / 16;
/// Squares below this are 0: the matrix that blocks are of has a norm of at least 1/2.
constexpr double least_square = 1e-280;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Products of `Side` rows of a block with as many others, each of `size` elements.
template <int Side, class Lanes>
void make_products(const Lanes* rows, const Lanes* others, std::int64_t size, Lanes* products,
                   std::int64_t apart) {
  Lanes sums[Side][Side] = {};
  for (std::int64_t t = 0; t < size; ++t)
    for (int row = 0; row < Side; ++row)
      for (int other = 0; other < Side; ++other)
        sums[row][other] += rows[(row * size) + t] * others[(other * size) + t];
  for (int row = 0; row < Side; ++row)
    for (int other = 0; other < Side; ++other) products[(row * apart) + other] = sums[row][other];
}

template <class Lanes>
Lanes sum_of_squares(const Lanes* x, std::int64_t size) {
  Lanes sum = {};
  for (std::int64_t t = 0; t < size; ++t) sum += x[t] * x[t];
  return sum;
}

}  // namespace

RankOneDistances::RankOneDistances(std::int64_t rows, std::int64_t cols)
    : short_(std::min(rows, cols)),
      long_(std::max(rows, cols)),
      size_(short_ + (short_ % 2)),
      is_tall_(rows > cols),
      rounding_(4 * static_cast<double>(short_ + long_) * std::numeric_limits<double>::epsilon()),
      blocks_(at(groups * size_ * long_)),
      gram_(at(size_ * size_)),
      diagonal_(at(size_)),
      corner_(at(size_)),
      v_(at(size_)),
      w_(at(size_)) {}

/// A row of each block in turn: where blocks are tall and narrow, these are in one cache line.
template <class Real>
void RankOneDistances::read(const Real* values, const std::array<Place, at_once>& places,
                            std::int64_t count) {
  const std::int64_t rows = is_tall_ ? long_ : short_;
  const std::int64_t cols = is_tall_ ? short_ : long_;
  const std::int64_t row_apart = is_tall_ ? 1 : long_;
  const std::int64_t col_apart = is_tall_ ? long_ : 1;
  if (count < at_once) std::ranges::fill(blocks_, Lanes{});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t block = 0; block < count; ++block) {
      const Place& place = places[at(block)];
      const Real* const from = values + place.first + (row * place.row_stride);
      Lanes* const to = &blocks_[at((block / width * size_ * long_) + (row * row_apart))];
      for (std::int64_t col = 0; col < cols; ++col)
        to[col * col_apart][block % width] = static_cast<double>(from[col * place.col_stride]);
    }
}

double RankOneDistances::lower_bound() {
  double sum = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    block_ = &blocks_[at(group * size_ * long_)];
    sum += lower_bound_of_group();
  }
  return sum;
}

double RankOneDistances::lower_bound_of_group() {
  make_gram();
  Lanes trace = {};
  Lanes squares = {};  // of the eigenvalues: between that of the largest, and its product with the trace
  for (std::int64_t row = 0; row < size_; ++row) {
    const Lanes* const elements = &gram_[at(row * size_)];
    trace += elements[row];
    squares += 2 * sum_of_squares(elements, row) + (elements[row] * elements[row]);
  }
  bool is_nearly[width];
  bool is_some = false;
  bool is_every = true;
  for (std::int64_t lane = 0; lane < width; ++lane) {
    is_nearly[lane] = squares[lane] >= nearly_all * trace[lane] * trace[lane];
    is_some = is_some || is_nearly[lane];
    is_every = is_every && is_nearly[lane];
  }
  const Lanes distance = is_some ? by_power(trace) : Lanes{};
  if (!is_every) make_tridiagonal();
  double sum = 0;
  for (std::int64_t lane = 0; lane < width; ++lane)
    if (trace[lane] > least_square)
      sum += is_nearly[lane] ? distance[lane] : std::max(0.0, by_eigenvalue(lane, trace[lane]));
  return sum;
}

void RankOneDistances::make_gram() {
  for (std::int64_t row = 0; row < size_;) {
    const std::int64_t rows = row + 4 <= size_ ? 4 : 2;
    for (std::int64_t other = 0; other < row + rows;) {
      const Lanes* const left = &block_[at(row * long_)];
      const Lanes* const right = &block_[at(other * long_)];
      Lanes* const products = &gram_[at((row * size_) + other)];
      if (rows == 4 && other + 4 <= size_) {
        make_products<4>(left, right, long_, products, size_);
        other += 4;
      } else {
        make_products<2>(left, right, long_, products, size_);
        other += 2;
      }
    }
    row += rows;
  }
}

/// y := gram·x, from row and column `first` on.
void RankOneDistances::multiply_gram(std::int64_t first, const Lanes* x, Lanes* y) const {
  for (std::int64_t row = first; row < size_; ++row) {
    const Lanes* const elements = &gram_[at(row * size_)];
    Lanes sum = elements[row] * x[row];
    for (std::int64_t col = first; col < row; ++col) {
      sum += elements[col] * x[col];
      y[col] += elements[col] * x[row];
    }
    y[row] = sum;
  }
}

/// The diagonals of Q^T·gram·Q, by reflectors.
void RankOneDistances::make_tridiagonal() {
  for (std::int64_t k = 0; k + 1 < size_; ++k) {
    diagonal_[at(k)] = gram_[at(k * (size_ + 1))];
    for (std::int64_t row = k + 1; row < size_; ++row) v_[at(row)] = gram_[at((row * size_) + k)];
    Lanes& first = v_[at(k + 1)];
    const Lanes rest = sum_of_squares(v_.data() + k + 2, size_ - k - 2);
    Lanes factor = {};  // the reflector is 1 - factor·v·v^T
    for (std::int64_t lane = 0; lane < width; ++lane) {
      const double x = first[lane];
      corner_[at(k)][lane] = x;
      if (rest[lane] <= least_square) continue;
      const double square = (x * x) + rest[lane];
      const double length = x > 0 ? -std::sqrt(square) : std::sqrt(square);
      corner_[at(k)][lane] = length;
      first[lane] = x - length;
      factor[lane] = 1 / (square - (length * x));
    }
    if (k + 2 == size_) break;
    multiply_gram(k + 1, v_.data(), w_.data());
    Lanes product = {};
    for (std::int64_t row = k + 1; row < size_; ++row) {
      w_[at(row)] *= factor;
      product += v_[at(row)] * w_[at(row)];
    }
    product *= factor / 2;
    for (std::int64_t row = k + 1; row < size_; ++row) w_[at(row)] -= product * v_[at(row)];
    for (std::int64_t row = k + 1; row < size_; ++row) {
      Lanes* const elements = &gram_[at(row * size_)];
      const Lanes v = v_[at(row)];
      const Lanes w = w_[at(row)];
      for (std::int64_t col = k + 1; col <= row; ++col)
        elements[col] -= (v * w_[at(col)]) + (w * v_[at(col)]);
    }
  }
  diagonal_[at(size_ - 1)] = gram_[at((size_ * size_) - 1)];
}

/// The largest eigenvalue is found from above, so that nothing but rounding makes the rest of the trace too
/// large.
double RankOneDistances::by_eigenvalue(std::int64_t lane, double trace) const {
  const double largest = largest_eigenvalue(
                             size_, [&](std::int64_t t) { return diagonal_[at(t)][lane]; },
                             [&](std::int64_t t) { return corner_[at(t)][lane]; })
                             .value;
  return (trace - largest) - (rounding_ * trace);
}

/// For lanes that are nearly of rank 1; others get anything. For a unit vector u, quotient = (u, gram·u) and
/// r = |gram·u - quotient·u|, no eigenvalue but the largest is above trace - quotient, and so the largest is
/// at most quotient + r²/(quotient - (trace - quotient)) (Temple's bound).
auto RankOneDistances::by_power(Lanes trace) -> Lanes {
  constexpr int most_steps = 16;
  Lanes* const u = v_.data();
  Lanes* const y = w_.data();
  for (std::int64_t lane = 0; lane < width; ++lane) {
    std::int64_t longest = 0;
    for (std::int64_t row = 1; row < size_; ++row)
      if (gram_[at(row * (size_ + 1))][lane] > gram_[at(longest * (size_ + 1))][lane]) longest = row;
    for (std::int64_t row = 0; row < size_; ++row)
      y[row][lane] = gram_[at((std::max(row, longest) * size_) + std::min(row, longest))][lane];
  }
  Lanes quotient = {};
  Lanes residual = {};
  for (int step = 0; step < most_steps; ++step) {
    Lanes length = sum_of_squares(y, size_);
    for (std::int64_t lane = 0; lane < width; ++lane)
      length[lane] = length[lane] > least_square ? 1 / std::sqrt(length[lane]) : 0;
    for (std::int64_t row = 0; row < size_; ++row) u[row] = y[row] * length;
    multiply_gram(0, u, y);
    quotient = residual = Lanes{};
    for (std::int64_t row = 0; row < size_; ++row) quotient += u[row] * y[row];
    for (std::int64_t row = 0; row < size_; ++row) {
      const Lanes rest = y[row] - (quotient * u[row]);
      residual += rest * rest;
    }
    bool is_found = true;
    for (std::int64_t lane = 0; lane < width; ++lane) {
      const double allowed = rounding_ * trace[lane] / 16;
      is_found = is_found && residual[lane] <= allowed * allowed;
    }
    if (is_found) break;
  }
  Lanes distance = {};
  for (std::int64_t t = 0; t < long_; ++t) {
    Lanes product = {};
    for (std::int64_t row = 0; row < size_; ++row) product += u[row] * block_[at((row * long_) + t)];
    for (std::int64_t row = 0; row < size_; ++row) {
      const Lanes rest = block_[at((row * long_) + t)] - (u[row] * product);
      distance += rest * rest;
    }
  }
  for (std::int64_t lane = 0; lane < width; ++lane) {
    const double gap = (2 * quotient[lane]) - trace[lane];
    const double r = std::sqrt(residual[lane]) + (rounding_ * trace[lane]);
    // The rest is a difference of numbers of the block's size, whose rounding errors it keeps.
    const double root = std::max(0.0, std::sqrt(distance[lane]) - (rounding_ * std::sqrt(trace[lane])));
    distance[lane] = gap > 0 ? std::max(0.0, (root * root * (1 - rounding_)) - (r * r / gap)) : 0;
  }
  return distance;
}

template void RankOneDistances::read(const float*, const std::array<Place, at_once>&, std::int64_t);
template void RankOneDistances::read(const double*, const std::array<Place, at_once>&, std::int64_t);

}  // namespace kronsparse::factorization
