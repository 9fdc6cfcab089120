#include "factorize/hierarchy.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "factorize/low_rank.hpp"
#include "factorize/parallel.hpp"
#include "factorize/rank_one/rank_one.hpp"
#include "factorize/reflector.hpp"
#include "factorize/split.hpp"

namespace kronsparse::factorization {
namespace {

/// Which part of a split has orthonormal blocks.
enum class Side : std::uint8_t { left, right };

/// The place with rows and columns exchanged.
Place turned(Place place) { return {place.first, place.col_stride, place.row_stride}; }

template <class T>
void read(T* block, const T* values, Place place, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* const from = values + place.first + (row * place.row_stride);
    for (std::int64_t col = 0; col < cols; ++col) block[(row * cols) + col] = from[col * place.col_stride];
  }
}

template <class T>
void write(T* values, const T* block, Place place, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* const to = values + place.first + (row * place.row_stride);
    for (std::int64_t col = 0; col < cols; ++col) to[col * place.col_stride] = block[(row * cols) + col];
  }
}

/// The block of `values` at a place, rank x cols, becomes factor·block; factor is rank x rank.
template <class T>
void multiply_from_left(const T* factor, std::int64_t rank, T* values, Place place, std::int64_t cols) {
  std::vector<T> column(static_cast<std::size_t>(rank));
  for (std::int64_t col = 0; col < cols; ++col) {
    T* const first = values + place.first + (col * place.col_stride);
    for (std::int64_t row = 0; row < rank; ++row)
      column[static_cast<std::size_t>(row)] = first[row * place.row_stride];
    for (std::int64_t row = 0; row < rank; ++row) {
      T sum{0};
      for (std::int64_t t = 0; t < rank; ++t)
        sum += factor[(row * rank) + t] * column[static_cast<std::size_t>(t)];
      first[row * place.row_stride] = sum;
    }
  }
}

/// Calls use(row, place) for every row of every block of left·right, on all threads; sums up what it returns,
/// always in the same order. The place is that of the row in the product.
template <class T, class Use>
double over_rows(const Split& split, const T* left, const T* right, const Use& use) {
  constexpr std::int64_t elements_of_range = 20000;
  const std::int64_t in_range = 1 + (elements_of_range / (split.rows() * split.cols()));
  std::vector<double> sums(static_cast<std::size_t>((split.blocks() + in_range - 1) / in_range));
  for_ranges(split.blocks(), in_range, [&](std::int64_t first, std::int64_t last) {
    std::vector<T> rows(static_cast<std::size_t>(split.rank() * split.cols()));
    std::vector<T> sum(static_cast<std::size_t>(split.cols()));
    double used = 0;
    for (std::int64_t block = first; block < last; ++block) {
      const Place from = split.in_left(block);
      Place to = split.in_product(block);
      read(rows.data(), right, split.in_right(block), split.rank(), split.cols());
      for (std::int64_t row = 0; row < split.rows(); ++row, to.first += to.row_stride) {
        std::ranges::fill(sum, T{0});
        for (std::int64_t t = 0; t < split.rank(); ++t)
          add_multiple(sum.data(), left[from.first + (row * from.row_stride) + (t * from.col_stride)],
                       rows.data() + (t * split.cols()), split.cols());
        used += use(sum.data(), to);
      }
    }
    sums[static_cast<std::size_t>(first / in_range)] = used;
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

double work_of(const Split& split) {
  const auto small = static_cast<double>(std::min(split.rows(), split.cols()));
  const auto large = static_cast<double>(std::max(split.rows(), split.cols()));
  return static_cast<double>(split.blocks()) * ((2 * small * small * large) + (40 * small * small) + 100);
}

/// Calls use(worker, index) for indices up to `count`, on all threads, each with a worker of make(); sums up
/// what it returns. Between pieces of about a tenth of a second, the tick. Sums are those of one thread: the
/// result is always the same. `work` is that of one index.
template <class Make, class Use>
double over_indices(std::int64_t count, double work, const Make& make, const Tick& tick, const Use& use) {
  using Worker = decltype(make());
  constexpr double work_at_once = 2e8;
  constexpr double work_of_range = 2e5;
  const std::int64_t in_range = std::max<std::int64_t>(1, static_cast<std::int64_t>(work_of_range / work));
  const std::int64_t at_once =
      in_range *
      std::max<std::int64_t>(2 * thread_count(),
                             static_cast<std::int64_t>(work_at_once / work / static_cast<double>(in_range)));
  Lent<Worker, Make> workers(make);
  std::vector<double> sums(static_cast<std::size_t>((std::min(at_once, count) + in_range - 1) / in_range));
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    const std::int64_t many = std::min(at_once, count - begin);
    for_ranges(many, in_range, [&](std::int64_t first, std::int64_t last) {
      workers.with([&](Worker& worker) {
        double part = 0;
        for (std::int64_t index = first; index < last; ++index) part += use(worker, begin + index);
        sums[static_cast<std::size_t>(first / in_range)] = part;
      });
    });
    for (std::int64_t range = 0; range * in_range < many; ++range)
      sum += sums[static_cast<std::size_t>(range)];
    tick(static_cast<double>(many) * work);
  }
  return sum;
}

/// The same for every block of a split. Where there are few for the threads, all work on one after the other.
template <class T, class Use>
double over_blocks(const Split& split, LowRank<T> (*make)(const Split&), const Tick& tick, const Use& use) {
  if (split.blocks() == 1 || 2 * split.blocks() <= thread_count()) {
    const double work = work_of(split) / static_cast<double>(split.blocks());
    LowRank<T> worker = make(split);
    double told = 0;  // of the work on this block
    worker.take_threads([&](double share) {
      tick(work * (share - told));
      told = share;
    });
    double sum = 0;
    for (std::int64_t block = 0; block < split.blocks(); ++block, told = 0) {
      sum += use(worker, block);
      tick(work * (1 - told));
    }
    return sum;
  }
  return over_indices(
      split.blocks(), work_of(split) / static_cast<double>(split.blocks()), [&] { return make(split); }, tick,
      use);
}

/// The same for blocks of rank 1, some at a time.
template <class T, class Use>
double over_groups(const Split& split, const Tick& tick, const Use& use) {
  constexpr std::int64_t at_once = RankOne<T>::at_once;
  const std::int64_t groups = (split.blocks() + at_once - 1) / at_once;
  return over_indices(
      groups, work_of(split) / static_cast<double>(groups), [&] { return RankOne<T>(split); }, tick,
      [&](RankOne<T>& worker, std::int64_t group) { return use(worker, group * at_once); });
}

template <class T>
LowRank<T> worker_of_left(const Split& split) {
  return {split.rows(), split.cols(), split.rank()};
}
template <class T>
LowRank<T> worker_of_right(const Split& split) {  // on transposed blocks
  return {split.cols(), split.rows(), split.rank()};
}

/// The best two factors of a product. The part on `side` has orthonormal blocks, unless the singular values
/// are to be shared by both.
template <class T>
double split_values(const Split& split, const T* product, T* left, T* right, Side side, bool is_shared,
                    const Tick& tick) {
  const bool is_left = side == Side::left;
  if (RankOne<T>::suits(split)) {
    using Values = typename RankOne<T>::Values;
    const Values values = is_shared ? Values::to_both : is_left ? Values::to_right : Values::to_left;
    return over_groups<T>(split, tick, [&](RankOne<T>& worker, std::int64_t first) {
      return worker.approximate(product, first, left, right, values);
    });
  }
  const std::int64_t rows = is_left ? split.rows() : split.cols();
  const std::int64_t cols = is_left ? split.cols() : split.rows();
  const std::int64_t rank = split.rank();
  return over_blocks<T>(split, is_left ? &worker_of_left<T> : &worker_of_right<T>, tick,
                        [&](LowRank<T>& worker, std::int64_t block) {
                          const Place whole = split.in_product(block);
                          read(worker.block(), product, is_left ? whole : turned(whole), rows, cols);
                          const double error = worker.approximate();
                          if (is_shared) worker.share();
                          Place basis = is_left ? split.in_left(block) : turned(split.in_right(block));
                          Place rest = is_left ? split.in_right(block) : turned(split.in_left(block));
                          write(is_left ? left : right, worker.left(), basis, rows, rank);
                          write(is_left ? right : left, worker.right(), rest, rank, cols);
                          return error;
                        });
}

template <class T>
Values<T> make_values(const Pattern& pattern) {
  return Values<T>(static_cast<std::size_t>(pattern.nnz()));
}

Pattern product_of(const Chain& chain, std::size_t begin, std::size_t end) {
  Pattern product = chain[begin];
  // Neighbours are chainable, so there always is a product.
  for (std::size_t factor = begin + 1; factor < end; ++factor) product = product.times(chain[factor]).value();
  return product;
}

}  // namespace

double work_of(const Pattern& left, const Pattern& right) { return work_of(Split(left, right)); }

template <class T>
Hierarchy<T>::Hierarchy(const Chain& chain, const Values<T>& values, bool is_orthonormal, Tick tick)
    : chain_(chain),
      whole_(values.data()),
      is_orthonormal_(is_orthonormal),
      tick_(std::move(tick)),
      ends_{chain.size()} {
  patterns_.push_back(product_of(chain, 0, chain.size()));
  values_.emplace_back();
  if (chain.size() == 1) values_.front() = values;
}

template <class T>
double Hierarchy<T>::split(std::size_t place, bool centre_goes_right) {
  const auto found = std::ranges::upper_bound(ends_, place);
  const auto factor = static_cast<std::size_t>(found - ends_.begin());
  if (is_orthonormal_) move_centre(factor);
  const std::size_t begin = factor == 0 ? 0 : ends_[factor - 1];
  const Pattern left = product_of(chain_, begin, place);
  const Pattern right = product_of(chain_, place, ends_[factor]);
  Values<T> left_values = make_values<T>(left);
  Values<T> right_values = make_values<T>(right);
  const double error = split_values(Split(left, right), ends_.size() == 1 ? whole_ : values_[factor].data(),
                                    left_values.data(), right_values.data(),
                                    centre_goes_right ? Side::left : Side::right, !is_orthonormal_, tick_);
  const auto at = static_cast<std::ptrdiff_t>(factor);
  ends_.insert(ends_.begin() + at, place);
  patterns_[factor] = right;
  patterns_.insert(patterns_.begin() + at, left);
  values_[factor] = std::move(right_values);
  values_.insert(values_.begin() + at, std::move(left_values));
  centre_ = factor + (centre_goes_right ? 1 : 0);
  return error;
}

template <class T>
void Hierarchy<T>::move_centre(std::size_t factor) {
  while (centre_ < factor) move_right();
  while (centre_ > factor) move_left();
}

template <class T>
void Hierarchy<T>::make_centre(std::size_t factor) {
  centre_ = 0;
  move_centre(values_.size() - 1);
  move_centre(factor);
}

/// Makes the centre's blocks orthonormal, and gives what that takes away to the next factor.
template <class T>
void Hierarchy<T>::move_right() {
  const Split split(patterns_[centre_], patterns_[centre_ + 1]);
  T* const left = values_[centre_].data();
  T* const right = values_[centre_ + 1].data();
  const std::int64_t rank = split.rank();
  over_blocks<T>(
      split, [](const Split& one) { return LowRank<T>(one.rows(), one.rank(), one.rank()); }, tick_,
      [&](LowRank<T>& worker, std::int64_t block) {
        const Place place = split.in_left(block);
        read(worker.block(), left, place, split.rows(), rank);
        worker.approximate();
        write(left, worker.left(), place, split.rows(), rank);
        multiply_from_left(worker.right(), rank, right, split.in_right(block), split.cols());
        return 0.0;
      });
  ++centre_;
}

template <class T>
void Hierarchy<T>::move_left() {
  const Split split(patterns_[centre_ - 1], patterns_[centre_]);
  T* const left = values_[centre_ - 1].data();
  T* const right = values_[centre_].data();
  const std::int64_t rank = split.rank();
  over_blocks<T>(
      split, [](const Split& one) { return LowRank<T>(one.cols(), one.rank(), one.rank()); }, tick_,
      [&](LowRank<T>& worker, std::int64_t block) {
        const Place place = turned(split.in_right(block));
        read(worker.block(), right, place, split.cols(), rank);
        worker.approximate();
        write(right, worker.left(), place, split.cols(), rank);
        multiply_from_left(worker.right(), rank, left, turned(split.in_left(block)), split.rows());
        return 0.0;
      });
  --centre_;
}

template <class T>
double error_of_split(const Pattern& left, const Pattern& right, const T* values, const Tick& tick) {
  const Split split(left, right);
  if (RankOne<T>::suits(split))
    return over_groups<T>(split, tick, [&](RankOne<T>& worker, std::int64_t first) {
      return worker.lower_bound(values, first);
    });
  return over_blocks<T>(split, &worker_of_left<T>, tick, [&](LowRank<T>& worker, std::int64_t block) {
    read(worker.block(), values, split.in_product(block), split.rows(), split.cols());
    return worker.tail();
  });
}

template <class T>
double squared_distance(const Chain& chain, const std::vector<Values<T>>& factors, const Values<T>& values) {
  // From the right: for most chains patterns grow towards the whole product, and only the last are large. The
  // largest of all is not kept.
  Pattern right = chain[chain.size() - 1];
  Values<T> merged = factors.back();
  for (std::size_t index = chain.size() - 1; index-- > 1;) {
    const Split split(chain[index], right);
    Values<T> product = make_values<T>(chain[index].times(right).value());
    over_rows(split, factors[index].data(), merged.data(), [&](const T* row, Place place) {
      write(product.data(), row, place, 1, split.cols());
      return 0.0;
    });
    merged = std::move(product);
    right = chain[index].times(right).value();
  }
  const auto distance = [&](const T* row, Place place, std::int64_t cols) {
    const T* const expected = values.data() + place.first;
    double sum = 0;
    if (place.col_stride == 1)  // a loop that is vectorised
      for (std::int64_t col = 0; col < cols; ++col) sum += squared(expected[col] - row[col]);
    else
      for (std::int64_t col = 0; col < cols; ++col)
        sum += squared(expected[col * place.col_stride] - row[col]);
    return sum;
  };
  if (chain.size() == 1) return distance(merged.data(), {0, 0, 1}, static_cast<std::int64_t>(merged.size()));
  const Split split(chain[0], right);
  return over_rows(split, factors[0].data(), merged.data(),
                   [&](const T* row, Place place) { return distance(row, place, split.cols()); });
}

template <class T>
void lift(const Pattern& left, const Pattern& right, const Values<T>& values, Values<T>& left_values,
          Values<T>& right_values) {
  const Split split(left, right);
  left_values = make_values<T>(left);
  right_values = make_values<T>(right);
  // The smaller side becomes the identity.
  const Side side = split.rows() <= split.cols() ? Side::left : Side::right;
  split_values(split, values.data(), left_values.data(), right_values.data(), side, false, [](double) {});
}

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot have them
#define KRONSPARSE_HIERARCHY_OF(T)                                                                 \
  template class Hierarchy<T>;                                                                     \
  template double squared_distance(const Chain&, const std::vector<Values<T>>&, const Values<T>&); \
  template double error_of_split(const Pattern&, const Pattern&, const T*, const Tick&);           \
  template void lift(const Pattern&, const Pattern&, const Values<T>&, Values<T>&, Values<T>&);
KRONSPARSE_HIERARCHY_OF(float)
KRONSPARSE_HIERARCHY_OF(double)
KRONSPARSE_HIERARCHY_OF(std::complex<float>)
KRONSPARSE_HIERARCHY_OF(std::complex<double>)
#undef KRONSPARSE_HIERARCHY_OF
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace kronsparse::factorization
