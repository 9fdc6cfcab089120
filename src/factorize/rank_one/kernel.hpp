// Blocks and the matrices of rank 1 nearest to them, a block in each lane. Included by isa_*.cpp only.
//
// A block's Gram matrix G, on its shorter side, has the squared singular values. Reflectors from behind make
// three diagonals of it, Laguerre's method finds the largest eigenvalue from above, and two solutions of the
// shifted equations the leading vector u. p = u^*·block is then the other side. For the leading vector G is
// as good as the block itself: both know it to rounding times s1/(s1 - s2).
#pragma once

#include "factorize/rank_one/numbers.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

using factorization::BlocksIn;
using factorization::Centre;
using factorization::panel_cols;
using factorization::RankOneTask;

/// Squares below this are 0: the matrix that blocks are of has a norm of at least 1/2.
inline constexpr double least_square = 1e-280;
/// A block counts as nearly of rank 1 if its largest eigenvalue has at least this share of the trace. What
/// is left of the trace would then be mostly rounding.
inline constexpr double nearly_all = 15.0 / 16;
inline constexpr double epsilon = 0x1p-52;

/// Rows of a tile, whose sums are kept in registers.
#if KRONSPARSE_VECTOR_BYTES == 64 || defined(__aarch64__)
template <class Number>
inline constexpr int tile_rows = parts<Number> == 1 ? 4 : 2;
#else
template <class Number>
inline constexpr int tile_rows = 2;
#endif

template <class Number, class Real>
class RankOneBlocks {
 public:
  RankOneBlocks(const RankOneTask<Real>& task)  // NOLINT(google-explicit-constructor)
      : task_(task),
        size_(task.short_side),
        long_(task.long_side),
        panel_(task.long_side < panel_cols ? task.long_side : panel_cols),
        panels_((task.long_side + panel_ - 1) / panel_),
        rounding_(4 * static_cast<double>(size_ + long_) * epsilon) {
    auto* next = reinterpret_cast<Number*>(task.memory);
    block_ = take(next, panels_ * panel_ * size_);
    p_ = take(next, panels_ * panel_);
    gram_ = take(next, size_ * size_);
    u_ = take(next, size_);
    w_ = take(next, size_);
    turns_ = take(next, size_);
    auto* reals = reinterpret_cast<Vd*>(next);
    diagonal_ = take(reals, size_);
    corners_ = take(reals, size_);
    pivots_ = take(reals, size_);
    factors_ = take(reals, size_);
  }

  double run() {
    read();
    make_gram();
    Vd trace = {};
    Vd squares = {};  // of the eigenvalues
    for (int64_t row = 0; row < size_; ++row) {
      const Number* const elements = gram_ + (row * size_);
      const Vd own = real_part(elements[row]);
      trace += own;
      squares += own * own + 2 * sum_of_squares(elements, row);
    }
    const Mask is_something = trace > constant(least_square);
    // The largest square is between the sum of all and its product with the trace.
    const Mask is_nearly = is_something & (squares >= nearly_all * trace * trace);
    make_tridiagonal();
    const Vd largest = largest_eigenvalue(or_one(is_something, root(squares)));
    Vd distance = trace - largest - rounding_ * trace;
    if (task_.shorts.values != nullptr || any(is_nearly)) {
      find_vector(or_one(is_something, largest));
      const Vd quotient = project();
      if (any(is_nearly)) distance = select(is_nearly, distance_of(trace, quotient), distance);
      if (task_.shorts.values != nullptr) write(quotient);
    }
    distance = select(is_something, greater(distance, Vd{}), Vd{});
    double sum = 0;
    for (int lane = 0; lane < task_.blocks; ++lane) sum += distance[lane];
    return sum;
  }

 private:
  template <class Thing>
  static Thing* take(Thing*& next, int64_t count) {
    Thing* const here = next;
    next += count;
    return here;
  }

  static Vd sum_of_squares(const Number* x, int64_t count) {
    Vd sum = {};
    for (int64_t t = 0; t < count; ++t) sum += squared(x[t]);
    return sum;
  }

  /// Where column t of a row is.
  [[nodiscard]] Number* at(int64_t row, int64_t t) const {
    return block_ + ((t / panel_ * size_) + row) * panel_ + t % panel_;
  }

  // ---- reading and writing ------------------------------------------------------

  /// Lanes beyond the blocks repeat the first.
  template <class Any>
  [[nodiscard]] const Any* first_of(const BlocksIn<Any>& blocks, int lane) const {
    return blocks.values + blocks.first[lane < task_.blocks ? lane : 0] * parts<Number>;
  }
  /// Whether elements of the lanes lie side by side.
  template <class Any>
  [[nodiscard]] bool are_adjacent(const BlocksIn<Any>& blocks) const {
    if (parts<Number> != 1 || task_.blocks < width) return false;
    for (int lane = 1; lane < width; ++lane)
      if (blocks.first[lane] != blocks.first[0] + lane) return false;
    return true;
  }

  static Number gather(const Real* const (&from)[width], int64_t offset) {
    Number number;
    auto* const vectors = reinterpret_cast<Vd*>(&number);
    for (int part = 0; part < parts<Number>; ++part)
      for (int lane = 0; lane < width; ++lane)
        vectors[part][lane] = static_cast<double>(from[lane][offset * parts<Number> + part]);
    return number;
  }
  /// `width` reals of each lane, from `offset` on, to vectors of all lanes.
  template <class To>
  static void read_transposed(const Real* const (&from)[width], int64_t offset, const To& to) {
    Vd rows[width];
    for (int lane = 0; lane < width; ++lane) rows[lane] = load_as_double(from[lane] + offset);
    transpose(rows);
    for (int real = 0; real < width; ++real) to(real, rows[real]);
  }

  void prefetch(const Real* from) const {
    constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(Real));
    for (int64_t real = 0; real < size_ * parts<Number>; real += line) __builtin_prefetch(from + real);
  }

  void read() {
    const BlocksIn<const Real>& whole = task_.whole;
    const Real* from[width];
    for (int lane = 0; lane < width; ++lane) from[lane] = first_of(whole, lane);
    for (int64_t t = long_; t < panels_ * panel_; ++t)
      for (int64_t row = 0; row < size_; ++row) *at(row, t) = Number{};
    const bool is_adjacent = are_adjacent(whole);
    if (!is_adjacent && whole.long_stride == 1 && panel_ == panel_cols) {
      const int64_t full = long_ / panel_ * panel_;
      for (int64_t row = 0; row < size_; ++row) {
        const int64_t offset = row * whole.short_stride * parts<Number>;
        for (int64_t t = 0; t < full; t += panel_) {
          auto* const to = reinterpret_cast<Vd*>(at(row, t));
          for (int64_t real = 0; real < panel_ * parts<Number>; real += width)
            read_transposed(from, offset + t * parts<Number> + real,
                            [&](int place, Vd v) { to[real + place] = v; });
        }
        for (int64_t t = full; t < long_; ++t) *at(row, t) = gather(from, row * whole.short_stride + t);
      }
      return;
    }
    constexpr int64_t far = 16;
    for (int64_t t = 0; t < long_; ++t) {
      const int64_t offset = t * whole.long_stride;
      // The CPU does not see where the next ones are, each in a page of its own.
      if (t + far < long_)
        for (int lane = 0; lane < width; ++lane)
          prefetch(from[lane] + (offset + far * whole.long_stride) * parts<Number>);
      Number* const to = at(0, t);  // rows are `panel_` apart
      int64_t row = 0;
      if (is_adjacent) {
        for (; row < size_; ++row)
          *reinterpret_cast<Vd*>(to + row * panel_) =
              load_as_double(from[0] + offset + row * whole.short_stride);
      } else if (whole.short_stride == 1) {
        constexpr int step = width / parts<Number>;
        for (; row + step <= size_; row += step)
          read_transposed(from, (offset + row) * parts<Number>, [&](int place, Vd v) {
            reinterpret_cast<Vd*>(to + (row + place / parts<Number>)*panel_)[place % parts<Number>] = v;
          });
      }
      for (; row < size_; ++row) to[row * panel_] = gather(from, offset + row * whole.short_stride);
    }
  }

  /// x, each lane multiplied by `factor`.
  void write(const Number* x, int64_t count, const BlocksIn<Real>& blocks, int64_t stride, Vd factor) const {
    if (are_adjacent(blocks)) {
      for (int64_t t = 0; t < count; ++t)
        store_from_double(blocks.values + blocks.first[0] + t * stride, real_part(x[t]) * factor);
      return;
    }
    const auto* const vectors = reinterpret_cast<const Vd*>(x);
    const int64_t reals = count * parts<Number>;
    int64_t real = 0;
    if (stride == 1)
      for (; real + width <= reals; real += width) {
        Vd rows[width];
        for (int lane = 0; lane < width; ++lane) rows[lane] = vectors[real + lane] * factor;
        transpose(rows);
        for (int lane = 0; lane < task_.blocks; ++lane)
          store_from_double(blocks.values + blocks.first[lane] * parts<Number> + real, rows[lane]);
      }
    for (; real < reals; ++real) {
      const Vd v = vectors[real] * factor;
      const int64_t offset = real / parts<Number> * stride * parts<Number> + real % parts<Number>;
      for (int lane = 0; lane < task_.blocks; ++lane)
        blocks.values[blocks.first[lane] * parts<Number> + offset] = static_cast<Real>(v[lane]);
    }
  }

  /// u and p; the singular value, the root of the quotient, goes where it belongs.
  void write(Vd quotient) {
    const Vd one = constant(1);
    const Mask is_something = quotient > constant(least_square);
    const Vd value = root(select(is_something, quotient, one));
    Vd for_u = one;
    Vd for_p = one;
    if (task_.centre == Centre::short_side) {
      for_u = select(is_something, value, Vd{});
      for_p = 1 / value;
      // Any unit vector will do where there is nothing.
      for (int64_t t = 0; t < long_; ++t) p_[t] = scaled(p_[t], select(is_something, one, Vd{}));
      p_[0] = or_one(is_something, p_[0]);
    } else if (task_.centre == Centre::both) {
      for_u = root(value);
      for_p = 1 / for_u;
    }
    write(u_, size_, task_.shorts, task_.shorts.short_stride, for_u);
    write(p_, long_, task_.longs, task_.longs.long_stride, for_p);
  }

  // ---- the Gram matrix -------------------------------------------------------------

  /// Products of `rows` rows of a panel with `others` others, added to what is there.
  template <int rows, int others>
  void add_products(const Number* left, const Number* right, int64_t panels, Number* products,
                    bool is_first) const {
    Number sums[rows][others];
    for (int row = 0; row < rows; ++row)
      for (int other = 0; other < others; ++other)
        sums[row][other] = is_first ? Number{} : products[row * size_ + other];
    for (int64_t panel = 0; panel < panels; ++panel, left += size_ * panel_, right += size_ * panel_)
      for (int64_t t = 0; t < panel_; ++t)
        for (int row = 0; row < rows; ++row)
          for (int other = 0; other < others; ++other)
            add_product(sums[row][other], left[row * panel_ + t], conjugate(right[other * panel_ + t]));
    for (int row = 0; row < rows; ++row)
      for (int other = 0; other < others; ++other) products[row * size_ + other] = sums[row][other];
  }
  template <int rows>
  void add_row_of_tiles(int64_t row, const Number* panel, int64_t panels, bool is_first) const {
    constexpr int side = tile_rows<Number>;
    const Number* const left = panel + row * panel_;
    int64_t other = 0;
    // What is beyond the diagonal is written, too, where there is room, and never read.
    for (; other < row + rows && other + side <= size_; other += side)
      add_products<rows, side>(left, panel + other * panel_, panels, gram_ + row * size_ + other, is_first);
    for (; other < row + rows; ++other)
      add_products<rows, 1>(left, panel + other * panel_, panels, gram_ + row * size_ + other, is_first);
  }
  /// On and below the diagonal. So many panels at a time as stay in L1.
  void make_gram() const {
    constexpr int side = tile_rows<Number>;
    constexpr int64_t l1_numbers = 16384 / static_cast<int64_t>(sizeof(Number));
    const int64_t together = l1_numbers / (size_ * panel_) > 1 ? l1_numbers / (size_ * panel_) : 1;
    for (int64_t first = 0; first < panels_; first += together) {
      const int64_t panels = panels_ - first < together ? panels_ - first : together;
      const Number* const panel = block_ + first * size_ * panel_;
      int64_t row = 0;
      for (; row + side <= size_; row += side) add_row_of_tiles<side>(row, panel, panels, first == 0);
      for (; row < size_; ++row) add_row_of_tiles<1>(row, panel, panels, first == 0);
    }
  }

  // ---- three diagonals -------------------------------------------------------------

  /// y := gram·x on the first k rows and columns.
  void multiply_gram(int64_t k, const Number* x, Number* y) const {
    constexpr int side = tile_rows<Number>;
    int64_t row = 0;
    for (; row + side <= k; row += side) multiply_rows<side>(row, x, y);
    for (; row < k; ++row) multiply_rows<1>(row, x, y);
  }
  template <int rows>
  void multiply_rows(int64_t row, const Number* x, Number* y) const {
    const Number* const elements = gram_ + row * size_;
    Number sums[rows] = {};
    for (int64_t col = 0; col < row; ++col) {
      Number above = y[col];
      for (int r = 0; r < rows; ++r) {
        const Number element = elements[r * size_ + col];
        add_product(sums[r], element, x[col]);
        add_product(above, conjugate(element), x[row + r]);
      }
      y[col] = above;
    }
    for (int r = 0; r < rows; ++r) {
      for (int col = 0; col < r; ++col) {
        const Number element = elements[r * size_ + row + col];
        add_product(sums[r], element, x[row + col]);
        add_product(sums[col], conjugate(element), x[row + r]);
      }
      sums[r] = sum_of(sums[r], scaled(x[row + r], real_part(elements[r * size_ + row + r])));
    }
    for (int r = 0; r < rows; ++r) y[row + r] = sums[r];
  }

  /// gram -= v·w^* + w·v^* on and below the diagonal of the first k rows.
  void subtract_outer(int64_t k, const Number* v, const Number* w) const {
    constexpr int side = tile_rows<Number>;
    int64_t row = 0;
    for (; row + side <= k; row += side) subtract_rows<side>(row, v, w);
    for (; row < k; ++row) subtract_rows<1>(row, v, w);
  }
  template <int rows>
  void subtract_rows(int64_t row, const Number* v, const Number* w) const {
    Number* const elements = gram_ + row * size_;
    // A little beyond the diagonal, which is never read.
    for (int64_t col = 0; col < row + rows; ++col) {
      const Number of_w = conjugate(w[col]);
      const Number of_v = conjugate(v[col]);
      for (int r = 0; r < rows; ++r) {
        Number element = elements[r * size_ + col];
        subtract_product(element, v[row + r], of_w);
        subtract_product(element, w[row + r], of_v);
        elements[r * size_ + col] = element;
      }
    }
  }

  /// x / |x|, and 1 for 0.
  static Number phase_of(Number x, Vd length) {
    const Mask is_something = length > Vd{};
    return or_one(is_something, scaled(x, 1 / or_one(is_something, length)));
  }

  /// The diagonals of Q^*·gram·Q, with lengths for corners: row k is then that of the k-th reflector 1 -
  /// factor·v·v^*, and turns_ what each corner is divided by its length.
  void make_tridiagonal() {
    for (int64_t k = size_ - 1; k > 0; --k) {
      Number* const v = gram_ + k * size_;
      diagonal_[k] = real_part(v[k]);
      for (int64_t t = 0; t < k; ++t) v[t] = conjugate(v[t]);
      const Vd rest = sum_of_squares(v, k - 1);
      const Vd last_square = squared(v[k - 1]);
      const Vd last_length = root(last_square);
      const Number phase = phase_of(v[k - 1], last_length);
      const Mask is_done = rest <= constant(least_square);
      const Vd length = root(last_square + rest);
      const Vd factor =
          select(is_done, Vd{}, 1 / (select(is_done, constant(1), length) * (length + last_length)));
      corners_[k - 1] = select(is_done, last_length, length);
      turns_[k] = scaled(conjugate(phase), select(is_done, constant(1), constant(-1)));
      factors_[k] = factor;
      v[k - 1] = scaled(phase, last_length + length);
      if (k == 1) break;
      multiply_gram(k, v, w_);
      Vd product = {};  // of v and w, which is real
      for (int64_t t = 0; t < k; ++t) {
        w_[t] = scaled(w_[t], factor);
        Number one = {};
        add_product(one, w_[t], conjugate(v[t]));
        product += real_part(one);
      }
      product *= factor / 2;
      for (int64_t t = 0; t < k; ++t) w_[t] = sum_of(w_[t], scaled(v[t], -product));
      subtract_outer(k, v, w_);
    }
    diagonal_[0] = real_part(gram_[0]);
  }

  /// From above, so that nothing but rounding makes the rest of the trace too large. No eigenvalue is above
  /// `limit`, nor above the largest sum of a row. G = p'/p and H = G' of the characteristic polynomial p.
  [[nodiscard]] Vd largest_eigenvalue(Vd limit) const {
    constexpr int most_steps = 60;
    const auto n = static_cast<double>(size_);
    Vd x = {};
    for (int64_t t = 0; t < size_; ++t)
      x = greater(x, diagonal_[t] + (t > 0 ? corners_[t - 1] : Vd{}) + (t + 1 < size_ ? corners_[t] : Vd{}));
    x = lesser(x, limit) * (1 + 1e-12);
    Mask is_open = x > Vd{};
    x = or_one(is_open, x);
    for (int step = 0; step < most_steps && any(is_open); ++step) {
      // q: the pivots of the matrix minus x, all negative; u and v: their first and second derivative.
      Vd q = diagonal_[0] - x;
      Mask is_above = q < Vd{};
      Vd inverse = 1 / q;
      Vd u = constant(-1);
      Vd v = {};
      Vd g = -inverse;
      Vd h = -g * g;
      for (int64_t t = 1; t < size_; ++t) {
        const Vd ratio = corners_[t - 1] * corners_[t - 1] * inverse;
        const Vd slope = u * inverse;
        v = ratio * (v * inverse - 2 * slope * slope);
        u = ratio * slope - 1;
        q = diagonal_[t] - x - ratio;
        is_above &= q < Vd{};
        inverse = 1 / q;
        const Vd share = u * inverse;
        g += share;
        h += v * inverse - share * share;
      }
      is_open &= is_above;  // else rounding has led to the other side
      const Vd spread = (n - 1) * (-n * h - g * g);
      const Vd down = n / (g + root(greater(spread, Vd{})));
      x = select(is_open, x - down, x);
      is_open &= down > 4 * epsilon * x;
    }
    return x;
  }

  // ---- the vectors -----------------------------------------------------------------

  /// u: that of the eigenvalue, by two solutions of (T/value - shift)·z = z before. Corners are lengths, so
  /// that the vector has no negative element: ones are a good beginning.
  void find_vector(Vd value) const {
    const Vd inverse_value = 1 / value;
    const Vd shift = constant(1 + 4 * static_cast<double>(size_) * epsilon);
    // L·D·L^*; corners become L, pivots 1/D.
    for (int64_t k = 0; k < size_; ++k) {
      Vd q = diagonal_[k] * inverse_value - shift;
      if (k > 0) {
        const Vd corner = corners_[k - 1] * inverse_value;
        const Vd ratio = corner * pivots_[k - 1];
        q -= ratio * corner;
        corners_[k - 1] = ratio;
      }
      pivots_[k] = 1 / lesser(q, constant(-epsilon));
    }
    auto* const z = reinterpret_cast<Vd*>(w_);
    for (int64_t t = 0; t < size_; ++t) z[t] = constant(1);
    for (int solution = 0; solution < 2; ++solution) {
      for (int64_t t = 1; t < size_; ++t) z[t] -= corners_[t - 1] * z[t - 1];
      Vd square = {};
      for (int64_t t = size_ - 1; t >= 0; --t) {
        z[t] *= pivots_[t];
        if (t + 1 < size_) z[t] -= corners_[t] * z[t + 1];
        square += z[t] * z[t];
      }
      const Vd factor = 1 / root(square);
      for (int64_t t = 0; t < size_; ++t) z[t] *= factor;
    }
    Number turn = or_one(Mask{}, Number{});
    for (int64_t t = 0; t < size_; ++t) {
      if (t > 0) {
        Number next = {};
        add_product(next, turn, turns_[t]);
        turn = next;
      }
      u_[t] = scaled(turn, z[t]);
    }
    for (int64_t k = 2; k < size_; ++k) {
      const Number* const v = gram_ + k * size_;
      Number product = {};
      for (int64_t t = 0; t < k; ++t) add_product(product, u_[t], conjugate(v[t]));
      product = scaled(product, factors_[k]);
      for (int64_t t = 0; t < k; ++t) subtract_product(u_[t], product, v[t]);
    }
    const Vd factor = 1 / root(sum_of_squares(u_, size_));
    for (int64_t t = 0; t < size_; ++t) u_[t] = scaled(u_[t], factor);
  }

  /// p := u^*·block; its squared length.
  [[nodiscard]] Vd project() const {
    Vd square = {};
    for (int64_t panel = 0; panel < panels_; ++panel) {
      Number* const sums = p_ + panel * panel_;
      const Number* rows = block_ + panel * panel_ * size_;
      for (int64_t t = 0; t < panel_; ++t) sums[t] = Number{};
      for (int64_t row = 0; row < size_; ++row, rows += panel_) {
        const Number factor = conjugate(u_[row]);
        for (int64_t t = 0; t < panel_; ++t) add_product(sums[t], factor, rows[t]);
      }
      for (int64_t t = 0; t < panel_; ++t) square += squared(sums[t]);
    }
    return square;
  }

  /// For lanes that are nearly of rank 1; others get anything. With r = |gram·u - quotient·u|, no eigenvalue
  /// but the largest is above trace - quotient, and so the largest is at most quotient + r²/(quotient -
  /// (trace - quotient)) (Temple's bound): that much u may be worse than the best vector.
  [[nodiscard]] Vd distance_of(Vd trace, Vd quotient) const {
    Vd distance = {};
    for (int64_t row = 0; row < size_; ++row) w_[row] = scaled(u_[row], -quotient);
    for (int64_t panel = 0; panel < panels_; ++panel) {
      const Number* const p = p_ + panel * panel_;
      const Number* rows = block_ + panel * panel_ * size_;
      for (int64_t row = 0; row < size_; ++row, rows += panel_) {
        Number sum = {};
        for (int64_t t = 0; t < panel_; ++t) {
          Number rest = rows[t];
          add_product(sum, rest, conjugate(p[t]));
          subtract_product(rest, u_[row], p[t]);
          distance += squared(rest);
        }
        w_[row] = sum_of(w_[row], sum);
      }
    }
    const Vd zero = {};
    const Vd gap = 2 * quotient - trace;
    const Vd r = root(sum_of_squares(w_, size_)) + rounding_ * trace;
    // The rest is a difference of numbers of the block's size, whose rounding errors it keeps.
    const Vd length = greater(root(distance) - rounding_ * root(trace), zero);
    const Mask is_apart = gap > zero;
    return select(is_apart, length * length * (1 - rounding_) - r * r / or_one(is_apart, gap), zero);
  }

  const RankOneTask<Real>& task_;
  int64_t size_, long_;
  int64_t panel_, panels_;  ///< columns of a panel, the last filled up with zeros; how many there are
  double rounding_;         ///< of sums over a block, relative
  Number* block_;           ///< (panels, size, columns of a panel)
  Number* p_;
  Number* gram_;  ///< (size, size)
  Number* u_;
  Number* w_;
  Number* turns_;
  Vd* diagonal_;
  Vd* corners_;
  Vd* pivots_;
  Vd* factors_;
};

template <class Number, class Real>
double rank_one(const RankOneTask<Real>& task) {
  return RankOneBlocks<Number, Real>(task).run();
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA

namespace kronsparse::factorization {

#define KRONSPARSE_RANK_ONE_KERNELS(base)                                                               \
  {                                                                                                     \
    &simd::base, simd::KRONSPARSE_ISA::width, simd::KRONSPARSE_ISA::rank_one<simd::KRONSPARSE_ISA::Vd>, \
        simd::KRONSPARSE_ISA::rank_one<simd::KRONSPARSE_ISA::Vd>,                                       \
        simd::KRONSPARSE_ISA::rank_one<simd::KRONSPARSE_ISA::Complex>,                                  \
        simd::KRONSPARSE_ISA::rank_one<simd::KRONSPARSE_ISA::Complex>                                   \
  }

}  // namespace kronsparse::factorization
