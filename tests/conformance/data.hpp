// Deterministic operands: the same numbers on every machine for one seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "oracle.hpp"
#include "scalars.hpp"

namespace conformance {

/// SplitMix64: small, and defined bit by bit, unlike the standard distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high].
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Uniform in [-1, 1).
  double symmetric() { return static_cast<double>(next() >> 11) * 0x1p-52 - 1; }
  /// Nearly normal with variance 1: the sum of three uniforms of variance 1/3.
  double bell() { return symmetric() + symmetric() + symmetric(); }
  template <class Item>
  const Item& pick(const std::vector<Item>& items) {
    return items[static_cast<std::size_t>(next() % items.size())];
  }

 private:
  std::uint64_t state_;
};

/// Operands of the problem's sizes, element by element from the four makers.
template <class S, class Values, class X, class G, class Bias>
Data<S> make_data(const kronsparse::Problem& problem, Values&& values, X&& x, G&& g, Bias&& bias) {
  using kronsparse::Operation;
  const kronsparse::Pattern& pattern = problem.pattern();
  const bool gradient = problem.operation == Operation::gradient;
  const bool rows_in = problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  const auto filled = [](std::int64_t size, auto&& maker) {
    std::vector<S> items(static_cast<std::size_t>(size));
    for (S& item : items) item = maker();
    return items;
  };
  Data<S> data;
  if (!gradient) data.values = filled(pattern.nnz(), values);
  data.x = filled((rows_in ? pattern.rows() : pattern.cols()) * problem.batch, x);
  if (gradient) data.g = filled(pattern.rows() * problem.batch, g);
  if (problem.bias) data.bias = filled(pattern.rows(), bias);
  return data;
}

/// Integers so small that every sum is exact in the accumulator and no result
/// overflows, and so large that a narrower type could not hold the operands.
template <class T>
Data<IntegerOf<T>> integer_data(const kronsparse::Problem& problem, std::uint64_t seed) {
  constexpr ElementTraits limits = traits<T>;
  constexpr std::int64_t kBiasLimit = 100;
  constexpr std::int64_t kTf32OperandLimit = 1023;
  Random random(seed);
  const auto within = [&random](std::int64_t limit) {
    return [&random, limit] {
      if constexpr (complex_element<T>) {
        const std::int64_t re = random.integer(-limit, limit);
        return Cx<std::int64_t>{re, random.integer(-limit, limit)};
      } else {
        return random.integer(-limit, limit);
      }
    };
  };
  const std::int64_t longest = std::max<std::int64_t>(terms(problem), 1);
  const bool tf32 = problem.mode == kronsparse::Mode::tf32;
  const std::int64_t x_limit = std::min(tf32 ? kTf32OperandLimit : limits.operand_limit,
                                        (limits.sum_limit - kBiasLimit) / (longest * limits.value_limit));
  const auto small = within(limits.value_limit);
  return make_data<IntegerOf<T>>(problem, small, within(x_limit), small, within(kBiasLimit));
}

/// Real numbers as a network has them: x, g and bias about normal, values
/// uniform in ±1/sqrt(length of the sum); already rounded to T.
template <class T>
Data<WideOf<T>> random_data(const kronsparse::Problem& problem, std::uint64_t seed) {
  Random random(seed ^ 0x5eedu);
  const auto rounded = [](auto&& part) {
    return [part] {
      if constexpr (complex_element<T>) {
        const double re = part();
        return decode(encode<T>(Cx<double>{re, part()}));
      } else {
        return decode(encode<T>(part()));
      }
    };
  };
  const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(terms(problem), 1)));
  const auto bell = rounded([&random] { return random.bell(); });
  const auto uniform = rounded([&random, scale] { return scale * random.symmetric(); });
  return make_data<WideOf<T>>(problem, uniform, bell, bell, bell);
}

template <class S>
auto widen(const Data<S>& data) {
  using Wide = decltype(widen(S{}));
  const auto of = [](const std::vector<S>& from) {
    std::vector<Wide> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](S value) { return widen(value); });
    return to;
  };
  return Data<Wide>{of(data.values), of(data.x), of(data.g), of(data.bias)};
}

}  // namespace conformance
