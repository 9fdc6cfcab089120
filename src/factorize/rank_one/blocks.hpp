// Blocks as they lie in memory, and in lanes. Included by kernel.hpp only.
#pragma once

#include "factorize/rank_one/numbers.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

using factorization::BlocksIn;
using factorization::panel_cols;
using factorization::RankOneTask;

/// The blocks of a task, the shorter side as rows, in panels of columns: (panels, rows, columns of a panel).
template <class Number, class Real>
class Blocks {
 protected:
  explicit Blocks(const RankOneTask<Real>& task)
      : task_(task),
        size_(task.short_side),
        long_(task.long_side),
        panel_(task.long_side < panel_cols ? task.long_side : panel_cols),
        panels_((task.long_side + panel_ - 1) / panel_),
        block_(reinterpret_cast<Number*>(task.memory)) {}

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

  const RankOneTask<Real>& task_;
  int64_t size_, long_;
  int64_t panel_, panels_;  ///< columns of a panel, the last filled up with zeros; how many there are
  Number* block_;

 private:
  /// Where column t of a row is.
  [[nodiscard]] Number* at(int64_t row, int64_t t) const {
    return block_ + ((t / panel_ * size_) + row) * panel_ + t % panel_;
  }

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
};

}  // namespace kronsparse::simd::KRONSPARSE_ISA
