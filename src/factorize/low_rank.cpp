#include "factorize/low_rank.hpp"

#include <algorithm>
#include <complex>
#include <numeric>

#include "factorize/parallel.hpp"
#include "factorize/reflector.hpp"
#include "kronsparse/error.hpp"

// A loop whose rows the compiler may take to be apart: too many to compare at run time.
#ifdef __clang__
#define KRONSPARSE_ROWS_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define KRONSPARSE_ROWS_APART _Pragma("GCC ivdep")
#endif

namespace kronsparse::factorization {
namespace {

std::size_t count(std::int64_t rows, std::int64_t cols = 1) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

// Work on fewer rows than the first is for one thread; more are shared in ranges. Sums are taken range by
// range on one thread, too: they are always the same.
constexpr std::int64_t many_rows = 256;
constexpr std::int64_t rows_of_range = 64;

// So many singular vectors are made at once: they share what is read of rotations and reflectors.
constexpr int vectors_at_once = 8;

// Four rows at a time share what is read of the other vectors.
constexpr std::int64_t rows_at_once = 4;

/// sum += conj(v)·rows, `many` rows of `size` elements that are `stride` apart.
template <class T>
void add_rows(T* sum, const T* v, const T* rows, std::int64_t stride, std::int64_t many, std::int64_t size) {
  std::int64_t t = 0;
  if constexpr (!is_complex_type<T>)
    for (; t + rows_at_once <= many; t += rows_at_once) {
      const T* const r0 = rows + (t * stride);
      const T* const r1 = r0 + stride;
      const T* const r2 = r1 + stride;
      const T* const r3 = r2 + stride;
      const T v0 = v[t];
      const T v1 = v[t + 1];
      const T v2 = v[t + 2];
      const T v3 = v[t + 3];
      for (std::int64_t x = 0; x < size; ++x)
        sum[x] += ((v0 * r0[x]) + (v1 * r1[x])) + ((v2 * r2[x]) + (v3 * r3[x]));
    }
  for (; t < many; ++t) add_multiple(sum, conjugate(v[t]), rows + (t * stride), size);
}

/// Both reflectors of a step at once, while rows are at hand: each row r -= left_tau·v·w, then
/// r -= right_tau·(r, u)·u.
template <class T>
void reflect_rows(T* rows, std::int64_t stride, std::int64_t many, std::int64_t size, const T* w, T left_tau,
                  const T* v, const T* u, T right_tau) {
  std::int64_t t = 0;
  if constexpr (!is_complex_type<T>)
    for (; t + rows_at_once <= many; t += rows_at_once) {
      T* const r0 = rows + (t * stride);
      T* const r1 = r0 + stride;
      T* const r2 = r1 + stride;
      T* const r3 = r2 + stride;
      const T v0 = left_tau * v[t];
      const T v1 = left_tau * v[t + 1];
      const T v2 = left_tau * v[t + 2];
      const T v3 = left_tau * v[t + 3];
      T s0 = 0;
      T s1 = 0;
      T s2 = 0;
      T s3 = 0;
      KRONSPARSE_ROWS_APART
      for (std::int64_t x = 0; x < size; ++x) {
        r0[x] -= v0 * w[x];
        r1[x] -= v1 * w[x];
        r2[x] -= v2 * w[x];
        r3[x] -= v3 * w[x];
        s0 += r0[x] * u[x];
        s1 += r1[x] * u[x];
        s2 += r2[x] * u[x];
        s3 += r3[x] * u[x];
      }
      s0 *= right_tau;
      s1 *= right_tau;
      s2 *= right_tau;
      s3 *= right_tau;
      KRONSPARSE_ROWS_APART
      for (std::int64_t x = 0; x < size; ++x) {
        r0[x] -= s0 * u[x];
        r1[x] -= s1 * u[x];
        r2[x] -= s2 * u[x];
        r3[x] -= s3 * u[x];
      }
    }
  for (; t < many; ++t) {
    T* const row = rows + (t * stride);
    add_multiple(row, -left_tau * v[t], w, size);
    add_multiple(row, -right_tau * dot(row, u, size), u, size);
  }
}

}  // namespace

template <class T>
LowRank<T>::LowRank(std::int64_t rows, std::int64_t cols, std::int64_t rank)
    : rows_(rows),
      cols_(cols),
      rank_(rank),
      small_(std::min(rows, cols)),
      large_(std::max(rows, cols)),
      is_tall_(rows > cols),
      block_(count(rows, cols)),
      left_(count(rows, rank)),
      right_(count(rank, cols)),
      wide_(count(small_, large_)),
      wide_tau_(count(small_)),
      square_(count(small_, small_)),
      lefts_(count(small_, small_)),
      lefts_tau_(count(small_)),
      row_(count(small_)),
      vectors_(count(large_, std::min<std::int64_t>(rank, vectors_at_once))),
      parts_(small_ < many_rows ? 0 : count(small_, (small_ + rows_of_range - 1) / rows_of_range)),
      d_(count(small_)),
      e_(count(small_)),
      z_(count(small_, vectors_at_once)),
      order_(count(small_)) {}

/// Calls body(range, first, last) for ranges that cover 0..count; for all of them at once where there are
/// fewer than `least`.
template <class T>
template <class Body>
void LowRank<T>::over(std::int64_t count, std::int64_t least, std::int64_t in_range, const Body& body) const {
  if (count < least) return body(0, 0, count);
  if (tell_)
    return for_ranges(count, in_range,
                      [&](std::int64_t first, std::int64_t last) { body(first / in_range, first, last); });
  for (std::int64_t first = 0; first < count; first += in_range)
    body(first / in_range, first, std::min(first + in_range, count));
}

template <class T>
double LowRank<T>::approximate() {
  std::ranges::fill(left_, T{0});
  double distance = 0;
  if (rank_ < small_) {
    reduce();
    bidiagonalise();
    distance = diagonalise_and_sort(true);
    make_vectors(true);
  } else if (is_tall_) {  // any basis of the columns will do: that of the reflectors
    reduce();
    make_vectors(false);
  } else {
    for (std::int64_t place = 0; place < small_; ++place) left_[count(place, rank_ + 1)] = T{1};
  }
  project();
  return distance;
}

template <class T>
void LowRank<T>::share() {
  for (std::int64_t place = 0; place < rank_; ++place) {
    T* const row = &right_[count(place, cols_)];
    double length = 0;
    for (std::int64_t t = 0; t < cols_; ++t) length += squared(row[t]);
    if (length == 0) continue;
    const auto root = static_cast<RealOf<T>>(std::sqrt(std::sqrt(length)));
    for (std::int64_t t = 0; t < cols_; ++t) row[t] /= root;
    for (std::int64_t t = 0; t < rows_; ++t) left_[count(t, rank_) + count(place)] *= root;
  }
}

template <class T>
double LowRank<T>::tail() {
  if (rank_ >= small_) return 0;
  reduce();
  bidiagonalise();
  return diagonalise_and_sort(false);
}

/// square := the block, if it is one; else a triangle with the same left vectors but for the reflectors of
/// tall blocks, which are in wide.
template <class T>
void LowRank<T>::reduce() {
  if (small_ == large_) {
    std::ranges::copy(block_, square_.begin());
    return;
  }
  if (is_tall_) {
    for (std::int64_t i = 0; i < small_; ++i)
      for (std::int64_t t = 0; t < large_; ++t)
        wide_[count(i, large_) + count(t)] = block_[count(t, cols_) + count(i)];
  } else {
    std::ranges::copy(block_, wide_.begin());
  }
  for (std::int64_t i = 0; i < small_; ++i) {
    T* const v = &wide_[count(i, large_ + 1)];
    const std::int64_t size = large_ - i;
    const Reflector<T> made = make_reflector(v, size);
    wide_tau_[count(i)] = made.tau;
    if (made.tau != T{0})
      over(small_ - i - 1, many_rows, rows_of_range, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        for (std::int64_t below = i + 1 + begin; below < i + 1 + end; ++below) {
          T* const row = &wide_[count(below, large_) + count(i)];
          add_multiple(row, -made.tau * dot(row, v, size), v, size);
        }
      });
    row_[count(i)] = T{made.beta};  // its place is taken by the reflector's 1
  }
  // The triangle, transposed where the block was: its left vectors are wanted.
  std::ranges::fill(square_, T{0});
  for (std::int64_t i = 0; i < small_; ++i)
    for (std::int64_t t = 0; t <= i; ++t) {
      const T element = t == i ? row_[count(i)] : wide_[count(i, large_) + count(t)];
      square_[is_tall_ ? count(t, small_) + count(i) : count(i, small_) + count(t)] = element;
    }
}

/// square := bidiagonal, its elements in d and e, by reflectors from the left and from the right in turn.
template <class T>
void LowRank<T>::bidiagonalise() {
  const std::int64_t k = small_;
  for (std::int64_t i = 0; i < k; ++i) {
    T* const v = &lefts_[count(i, k)];  // from its element i on
    for (std::int64_t t = i; t < k; ++t) v[t] = square_[count(t, k) + count(i)];
    const Reflector<T> left = make_reflector(v + i, k - i);
    lefts_tau_[count(i)] = left.tau;
    d_[count(i)] = static_cast<double>(left.beta);
    const std::int64_t rest = k - i - 1;
    if (rest == 0) break;
    // row := v^*·square, to the right of column i.
    T* const row = row_.data();
    T* const first = &square_[count(i, k) + count(i + 1)];
    over(k - i, many_rows, rows_of_range, [&](std::int64_t range, std::int64_t begin, std::int64_t end) {
      T* const sum = k - i < many_rows ? row : &parts_[count(range, k)];
      std::fill_n(sum, rest, T{0});
      add_rows(sum, v + i + begin, first + (begin * k), k, end - begin, rest);
    });
    if (k - i >= many_rows) {
      std::fill_n(row, rest, T{0});
      for (std::int64_t range = 0; range * rows_of_range < k - i; ++range)
        for (std::int64_t t = 0; t < rest; ++t) row[t] += parts_[count(range, k) + count(t)];
    }
    add_multiple(first, -left.tau, row, rest);
    const Reflector<T> right = make_reflector(first, rest);
    e_[count(i)] = static_cast<double>(right.beta);
    over(rest, many_rows, rows_of_range, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
      reflect_rows(first + ((begin + 1) * k), k, end - begin, rest, row, left.tau, v + i + 1 + begin, first,
                   right.tau);
    });
    if (tell_ && i % rows_of_range == 0) {
      const double left_over = static_cast<double>(rest) / static_cast<double>(k);
      tell_(1 - (left_over * left_over * left_over));
    }
  }
}

/// The squared sum of the singular values beyond the rank; the order of all, largest first.
template <class T>
double LowRank<T>::diagonalise_and_sort(bool with_vectors) {
  rotations_.clear();
  std::vector<Rotation>* const rotations = with_vectors ? &rotations_ : nullptr;
  // A few of many singular values are found one by one, and the rest need not be.
  if (8 * rank_ <= small_ && diagonalise_largest(d_.data(), e_.data(), small_, rank_, rotations)) {
    double rest = 0;
    for (std::int64_t t = 0; t < small_ - rank_; ++t) rest += squared(d_[count(t)]) + squared(e_[count(t)]);
    for (std::int64_t place = 0; place < rank_; ++place) order_[count(place)] = small_ - 1 - place;
    return rest;
  }
  if (!diagonalise(d_.data(), e_.data(), small_, rotations))
    throw Error(ErrorCode::internal, "factorize: singular values of a block did not converge");
  std::iota(order_.begin(), order_.end(), 0);
  const auto larger = [&](std::int64_t one, std::int64_t other) {
    return std::abs(d_[count(one)]) > std::abs(d_[count(other)]);
  };
  std::nth_element(order_.begin(), order_.begin() + rank_, order_.end(), larger);
  std::sort(order_.begin(), order_.begin() + rank_, larger);
  double distance = 0;
  for (std::int64_t place = rank_; place < small_; ++place)
    distance += squared(d_[count(order_[count(place)])]);
  return distance;
}

/// The columns of left: the singular vectors, largest first, or, for a tall block of full rank, the vectors
/// that its reflectors make of unit vectors.
template <class T>
void LowRank<T>::make_vectors(bool are_singular) {
  const std::int64_t vectors = std::min(rank_, small_);
  if (tell_ && small_ >= many_rows)
    return for_ranges(vectors, vectors_at_once, [&](std::int64_t first, std::int64_t last) {
      std::vector<double> z(z_.size());
      std::vector<T> x(vectors_.size());
      make_vectors(are_singular, first, last, z.data(), x.data());
    });
  for (std::int64_t first = 0; first < vectors; first += vectors_at_once)
    make_vectors(are_singular, first, std::min(first + vectors_at_once, vectors), z_.data(), vectors_.data());
}

/// Up to `vectors_at_once` of them; z and x are scratch.
template <class T>
void LowRank<T>::make_vectors(bool are_singular, std::int64_t first, std::int64_t last, double* z, T* x) {
  const std::int64_t many = last - first;
  std::fill_n(x, many * large_, T{0});
  if (are_singular) {
    const std::int64_t width = many == 1 ? 1 : vectors_at_once;
    std::fill_n(z, small_ * width, 0.0);
    for (std::int64_t t = 0; t < many; ++t) z[(order_[count(first + t)] * width) + t] = 1;
    if (width == 1)
      apply_rotations<1>(rotations_, z);
    else
      apply_rotations<vectors_at_once>(rotations_, z);
    for (std::int64_t t = 0; t < many; ++t)
      for (std::int64_t row = 0; row < small_; ++row)
        x[(t * large_) + row] = T{static_cast<RealOf<T>>(z[(row * width) + t])};
    for (std::int64_t i = small_ - 1; i >= 0; --i)
      for (std::int64_t t = 0; t < many; ++t)
        undo_reflector(x + (t * large_) + i, &lefts_[count(i, small_ + 1)], lefts_tau_[count(i)], small_ - i);
  } else {
    for (std::int64_t t = 0; t < many; ++t) x[(t * large_) + first + t] = T{1};
  }
  if (is_tall_)
    for (std::int64_t i = small_ - 1; i >= 0; --i)
      for (std::int64_t t = 0; t < many; ++t)
        undo_reflector(x + (t * large_) + i, &wide_[count(i, large_ + 1)], wide_tau_[count(i)], large_ - i);
  for (std::int64_t t = 0; t < many; ++t)
    for (std::int64_t row = 0; row < rows_; ++row)
      left_[count(row, rank_) + count(first + t)] = x[(t * large_) + row];
}

/// right := left^*·block.
template <class T>
void LowRank<T>::project() {
  std::ranges::fill(right_, T{0});
  over(cols_, many_rows, rows_of_range, [&](std::int64_t, std::int64_t first, std::int64_t last) {
    for (std::int64_t t = 0; t < rows_; ++t)
      for (std::int64_t place = 0; place < rank_; ++place) {
        const T factor = conjugate(left_[count(t, rank_) + count(place)]);
        if (factor != T{0})
          add_multiple(&right_[count(place, cols_) + count(first)], factor,
                       &block_[count(t, cols_) + count(first)], last - first);
      }
  });
}

template class LowRank<float>;
template class LowRank<double>;
template class LowRank<std::complex<float>>;
template class LowRank<std::complex<double>>;

}  // namespace kronsparse::factorization
