#include "cpu/fused/merging.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/dispatch.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/storage.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::fused {
namespace {

/// The columns of one row of a matrix: `c` of them, the first one at `first`, the others d apart.
struct Row {
  std::int64_t first;
  std::int64_t c;
  std::int64_t d;
};
Row row_of(const Pattern& p, std::int64_t row) {
  return {row / (p.b * p.d) * p.c * p.d + row % p.d, p.c, p.d};
}
/// The index of a row's first value. The others are d apart, too.
std::int64_t first_value(const Pattern& p, std::int64_t row) { return row / p.d * p.c * p.d + row % p.d; }

template <class T>
using Arithmetic = std::conditional_t<sizeof(T) == 2, float, T>;

/// A row of the product is the row of the first factor, times one factor after the other. `sums` and `next`
/// have room for one row each.
template <class T, class Wide = typename Storage<T>::Wide>
void merge_row(std::span<const Pattern> factors, std::span<const Pattern> products, const void* const* values,
               std::int64_t row, Wide* sums, Wide* next, Arithmetic<T>* to) {
  const auto value = [&](std::size_t factor, std::int64_t index) {
    return Storage<T>::load(static_cast<const T*>(values[factor])[index]);
  };
  Row at = row_of(factors.front(), row);
  const std::int64_t begin = first_value(factors.front(), row);
  for (std::int64_t l = 0; l < at.c; ++l) sums[l] = value(0, begin + l * at.d);
  for (std::size_t factor = 1; factor < factors.size(); ++factor) {
    const Pattern& p = factors[factor];
    const Row product = row_of(products[factor], row);
    std::fill_n(next, product.c, Wide{});
    for (std::int64_t l = 0; l < at.c; ++l) {
      const std::int64_t middle = at.first + l * at.d;  // a column of what is there, a row of this factor
      const Row other = row_of(p, middle);
      const std::int64_t other_begin = first_value(p, middle);
      const std::int64_t place = (other.first - product.first) / product.d, step = other.d / product.d;
      for (std::int64_t m = 0; m < other.c; ++m)
        next[place + m * step] += sums[l] * value(factor, other_begin + m * other.d);
    }
    std::swap(sums, next);
    at = product;
  }
  const std::int64_t out = first_value(products.back(), row);
  for (std::int64_t l = 0; l < at.c; ++l) to[out + l * at.d] = static_cast<Arithmetic<T>>(sums[l]);
}

}  // namespace

std::optional<Merging> Merging::times(const Pattern& factor) const {
  const std::optional<Pattern> pattern = product().times(factor);
  if (!pattern) return {};
  Merging longer = *this;
  longer.factors_.push_back(factor);
  longer.products_.push_back(*pattern);
  return longer;
}

double Merging::seconds() const noexcept {
  constexpr double seconds_per_row = 2e-8, seconds_per_term = 1.5e-9;
  auto terms = static_cast<double>(factors_[0].c);
  for (std::size_t at = 1; at < size(); ++at)
    terms += static_cast<double>(products_[at - 1].c) * static_cast<double>(factors_[at].c);
  return static_cast<double>(product().rows()) * (seconds_per_row + terms * seconds_per_term);
}

void Merging::merge(DType dtype, const void* const* values, void* to) const {
  const std::int64_t most = std::ranges::max(products_, {}, &Pattern::c).c;
  dispatch_dtype(dtype, [&]<class T>() {
    using Wide = typename Storage<T>::Wide;
    simd::parallel_ranges(product().rows(), threads_for(seconds()),
                          2 * static_cast<std::size_t>(most) * sizeof(Wide),
                          [&](std::int64_t first, std::int64_t last, std::byte* scratch) {
                            auto* const sums = reinterpret_cast<Wide*>(scratch);
                            for (std::int64_t row = first; row < last; ++row)
                              merge_row<T>(factors_, products_, values, row, sums, sums + most,
                                           static_cast<Arithmetic<T>*>(to));
                          });
  });
}

}  // namespace kronsparse::fused
