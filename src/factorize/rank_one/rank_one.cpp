#include "factorize/rank_one/rank_one.hpp"

#include <algorithm>
#include <complex>

#include "factorize/reflector.hpp"

namespace kronsparse::factorization {
namespace {

/// Those of a task: see RankOneBlocks, which takes them in this order.
std::int64_t doubles_of(std::int64_t short_side, std::int64_t long_side, int lanes, int parts) {
  const std::int64_t cols = (long_side + panel_cols - 1) / panel_cols * panel_cols;
  const std::int64_t numbers = (cols * (short_side + 1)) + (short_side * short_side) + (3 * short_side);
  return lanes * ((parts * numbers) + (4 * short_side));
}

constexpr std::int64_t doubles_of_line = 8;

template <class T, class Task>
double call(const RankOneKernels& kernels, const Task& task) {
  if constexpr (std::is_same_v<T, float>)
    return kernels.f32(task);
  else if constexpr (std::is_same_v<T, double>)
    return kernels.f64(task);
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return kernels.complex64(task);
  else
    return kernels.complex128(task);
}

}  // namespace

std::span<const RankOneKernels* const> rank_one_kernels() {
  static const std::vector<const RankOneKernels*> usable = [] {
    std::vector<const RankOneKernels*> all;
#if defined(__x86_64__)
    all = {&rank_one_avx512, &rank_one_avx2};
#endif
    all.push_back(&rank_one_baseline);
    std::erase_if(all, [](const RankOneKernels* kernels) { return !kernels->base->usable(); });
    return all;
  }();
  return usable;
}

template <class T>
bool RankOne<T>::suits(const Split& split) noexcept {
  // Larger ones are left to LowRank, where threads share a block and less lies in memory at a time.
  const std::int64_t side = std::min(split.rows(), split.cols());
  return split.rank() == 1 && (side <= 32 || (side <= 256 && split.blocks() >= at_once));
}

template <class T>
RankOne<T>::RankOne(const Split& split, const RankOneKernels& kernels)
    : split_(split),
      kernels_(kernels),
      memory_(static_cast<std::size_t>(doubles_of(std::min(split.rows(), split.cols()),
                                                  std::max(split.rows(), split.cols()), kernels.lanes,
                                                  is_complex_type<T> ? 2 : 1) +
                                       doubles_of_line)) {}

template <class T>
double RankOne<T>::lower_bound(const T* product, std::int64_t first) {
  return run(product, first, nullptr, nullptr, Values::to_both);
}

template <class T>
double RankOne<T>::approximate(const T* product, std::int64_t first, T* left, T* right, Values values) {
  return run(product, first, left, right, values);
}

template <class T>
double RankOne<T>::run(const T* product, std::int64_t first, T* left, T* right, Values values) {
  using Real = RealOf<T>;
  const bool is_tall = split_.rows() > split_.cols();
  RankOneTask<Real> task{};
  task.short_side = std::min(split_.rows(), split_.cols());
  task.long_side = std::max(split_.rows(), split_.cols());
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(double);
  task.memory = memory_.data() + ((doubles_of_line - (address % doubles_of_line)) % doubles_of_line);
  task.whole.values = reinterpret_cast<const Real*>(product);
  task.shorts.values = reinterpret_cast<Real*>(is_tall ? right : left);
  task.longs.values = reinterpret_cast<Real*>(is_tall ? left : right);
  task.centre = values == Values::to_both                 ? Centre::both
                : (values == Values::to_right) == is_tall ? Centre::short_side
                                                          : Centre::long_side;
  double sum = 0;
  const std::int64_t last = std::min(first + at_once, split_.blocks());
  for (std::int64_t block = first; block < last; block += kernels_.lanes) {
    task.blocks = static_cast<int>(std::min<std::int64_t>(kernels_.lanes, last - block));
    for (int lane = 0; lane < task.blocks; ++lane) {
      const Place whole = split_.in_product(block + lane);
      const Place in_left = split_.in_left(block + lane);
      const Place in_right = split_.in_right(block + lane);
      task.whole.first[lane] = whole.first;
      task.whole.short_stride = is_tall ? whole.col_stride : whole.row_stride;
      task.whole.long_stride = is_tall ? whole.row_stride : whole.col_stride;
      task.shorts.first[lane] = is_tall ? in_right.first : in_left.first;
      task.shorts.short_stride = is_tall ? in_right.col_stride : in_left.row_stride;
      task.longs.first[lane] = is_tall ? in_left.first : in_right.first;
      task.longs.long_stride = is_tall ? in_left.row_stride : in_right.col_stride;
    }
    sum += call<T>(kernels_, task);
  }
  return sum;
}

template class RankOne<float>;
template class RankOne<double>;
template class RankOne<std::complex<float>>;
template class RankOne<std::complex<double>>;

}  // namespace kronsparse::factorization
