// The right answers for chains: the oracle of one factor, factor by factor.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "data.hpp"
#include "kept.hpp"
#include "oracle.hpp"
#include "scalars.hpp"

namespace conformance {

/// Operands of a chain without their layout, as Data has those of one factor.
template <class S>
struct ChainData {
  std::vector<std::vector<S>> values;  ///< of each factor, left factor first
  std::vector<S> x;
  std::vector<S> g;
  std::vector<S> bias;
};

/// The results of a chain, and its intermediates.
template <class Numbers>
struct ChainOutcome {
  Numbers y;                            ///< all but the gradient
  std::vector<Numbers> gradients = {};  ///< of each factor
  Numbers grad_x = {};
  std::vector<Numbers> handed_on = {};
};

/// Takes the factors one after the other: step(problem of one factor, factor, x, g) has the product, or the
/// gradient where g is not null.
template <class Numbers, class Step>
ChainOutcome<Numbers> walk(const kronsparse::Problem& problem, const Numbers& x, const Numbers& g,
                           Step&& step) {
  using kronsparse::Operation;
  const std::size_t count = problem.chain.size();
  const auto one = [&](std::size_t factor, Operation operation) {
    kronsparse::Problem part = problem;
    part.chain = problem.chain[factor];
    part.operation = operation;
    part.cols_stride = part.rows_stride = 0;
    const bool is_last = problem.operation == Operation::multiply && factor == 0;
    part.bias = is_last && problem.bias;
    part.activation = is_last ? problem.activation : kronsparse::Activation::none;
    return part;
  };
  const auto product = [&](std::size_t factor, Operation operation, const Numbers& from) {
    return step(one(factor, operation), factor, from, static_cast<const Numbers*>(nullptr));
  };
  ChainOutcome<Numbers> outcome;
  if (problem.operation == Operation::gradient) {
    std::vector<Numbers> products(count);  // what each factor is applied to
    products[count - 1] = x;
    for (std::size_t factor = count; factor-- > 1;) {
      products[factor - 1] = product(factor, Operation::multiply, products[factor]);
      outcome.handed_on.push_back(products[factor - 1]);
    }
    Numbers back = g;
    for (std::size_t factor = 0; factor < count; ++factor) {
      outcome.gradients.push_back(step(one(factor, Operation::gradient), factor, products[factor], &back));
      back = product(factor, Operation::adjoint, back);
      if (factor + 1 < count) outcome.handed_on.push_back(back);
    }
    outcome.grad_x = std::move(back);
    return outcome;
  }
  Numbers here = x;
  for (std::size_t turn = 0; turn < count; ++turn) {
    const bool is_forward = problem.operation == Operation::multiply;
    here = product(is_forward ? count - 1 - turn : turn, problem.operation, here);
    if (turn + 1 < count) outcome.handed_on.push_back(here);
  }
  outcome.y = std::move(here);
  return outcome;
}

/// In the arithmetic of S; what y is before the activation.
template <class S>
ChainOutcome<std::vector<S>> evaluate_chain(const kronsparse::Problem& problem, const ChainData<S>& data) {
  return walk(problem, data.x, data.g,
              [&](const kronsparse::Problem& part, std::size_t factor, const std::vector<S>& x,
                  const std::vector<S>* g) {
                return evaluate(part, Data<S>{g == nullptr ? data.values[factor] : std::vector<S>{}, x,
                                              g == nullptr ? std::vector<S>{} : *g,
                                              part.bias ? data.bias : std::vector<S>{}});
              });
}

/// Numbers, and how far those of a correct computation may be from them, in either part.
template <class Wide>
struct Near {
  std::vector<Wide> numbers;
  std::vector<double> errors;  ///< none for numbers that are exact
};

/// An intermediate is rounded to T, so that the next one reads x + e with |e| <= E. Its product then
/// is off by at most |K| E besides its own rounding, whose S is |K| (|x| + E); of a gradient, by the sum of
/// (|g| + E_g) E_x + E_g |x|. An error in both parts of a complex number is sqrt(2) of that in one.
template <class T>
ChainOutcome<Near<WideOf<T>>> bound_chain(const kronsparse::Problem& problem,
                                          const ChainData<WideOf<T>>& data) {
  using Wide = WideOf<T>;
  enum class Part { numbers, errors, both };
  const auto part_of = [](const Near<Wide>& near, Part part) {
    const double sides = complex_element<T> ? std::sqrt(2.0) : 1.0;
    std::vector<double> to(near.numbers.size());
    for (std::size_t at = 0; at < to.size(); ++at) {
      const double error = near.errors.empty() || part == Part::numbers ? 0.0 : sides * near.errors[at];
      to[at] = (part == Part::errors ? 0.0 : magnitude(near.numbers[at])) + error;
    }
    return to;
  };
  const auto magnitudes_of = [](const std::vector<Wide>& from) {
    std::vector<double> to(from.size());
    for (std::size_t at = 0; at < to.size(); ++at) to[at] = magnitude(from[at]);
    return to;
  };
  const auto step = [&](const kronsparse::Problem& part, std::size_t factor, const Near<Wide>& x,
                        const Near<Wide>* g) {
    Data<Wide> exact{{}, x.numbers, {}, {}};
    Data<double> positive;
    if (g == nullptr) exact.values = data.values[factor];
    if (g == nullptr) positive.values = magnitudes_of(data.values[factor]);
    if (g != nullptr) exact.g = g->numbers;
    if (part.bias) exact.bias = data.bias;
    const auto sums = [&](Part of_x, Part of_g) {
      kronsparse::Problem positive_part = part;
      positive_part.bias = part.bias && of_x != Part::errors;
      positive.x = part_of(x, of_x);
      if (g != nullptr) positive.g = part_of(*g, of_g);
      positive.bias = positive_part.bias ? magnitudes_of(data.bias) : std::vector<double>{};
      return evaluate(positive_part, positive);
    };
    Near<Wide> y{evaluate(part, exact), {}};
    const std::vector<double> magnitude_sums = sums(Part::both, Part::both);
    std::vector<double> brought(magnitude_sums.size());
    const auto bring = [&](const std::vector<double>& more) {
      for (std::size_t at = 0; at < brought.size(); ++at) brought[at] += more[at];
    };
    if (!x.errors.empty()) bring(sums(Part::errors, Part::both));
    if (g != nullptr && !g->errors.empty()) bring(sums(Part::numbers, Part::errors));
    for (std::size_t at = 0; at < y.numbers.size(); ++at) {
      Wide& z = y.numbers[at];
      y.errors.push_back(error_bound<T>(part, scale_of(z), magnitude_sums[at], brought[at]));
      z = activate(part.activation, z);
    }
    return y;
  };
  ChainOutcome<Near<Wide>> outcome = walk(problem, Near<Wide>{data.x, {}}, Near<Wide>{data.g, {}}, step);
  if constexpr (!complex_element<T>) {
    // Factors may be multiplied together first. Their product is rounded to T, to half the smallest number if
    // it is so small; the sum of |x| over it is that of a chain of ones.
    if (problem.chain.size() > 1 && problem.operation != kronsparse::Operation::gradient) {
      ChainData<double> ones{{}, magnitudes_of(data.x), {}, {}};
      for (const std::vector<Wide>& factor : data.values) ones.values.emplace_back(factor.size(), 1.0);
      kronsparse::Problem plain = problem;
      plain.bias = false;
      const std::vector<double> sums = evaluate_chain(plain, ones).y;
      const double half_smallest = std::ldexp(0.5, traits<T>.subnormal_exponent);
      for (std::size_t at = 0; at < sums.size(); ++at)
        outcome.y.errors[at] += 1.13 * half_smallest * sums[at];
    }
  }
  return outcome;
}

/// Operands of the chain's sizes: value(factor) makes one of a factor's values.
template <class S, class Value, class Other>
ChainData<S> make_chain_data(const kronsparse::Problem& problem, Value&& value, Other&& x, Other&& g,
                             Other&& bias) {
  using kronsparse::Operation;
  const kronsparse::Chain& chain = problem.chain;
  const bool rows_in = problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  const auto filled = [](std::int64_t size, auto&& maker) {
    std::vector<S> items(static_cast<std::size_t>(size));
    for (S& item : items) item = maker();
    return items;
  };
  ChainData<S> data;
  for (std::size_t factor = 0; factor < chain.size(); ++factor)
    data.values.push_back(filled(chain[factor].nnz(), [&] { return value(factor); }));
  data.x = filled((rows_in ? chain.rows() : chain.cols()) * problem.batch, x);
  if (problem.operation == Operation::gradient) data.g = filled(chain.rows() * problem.batch, g);
  if (problem.bias) data.bias = filled(chain.rows(), bias);
  return data;
}

/// |re| + |im|: of a product at most the product of the two.
inline std::int64_t one_norm(std::int64_t value) { return value < 0 ? -value : value; }
inline std::int64_t one_norm(Cx<std::int64_t> value) { return one_norm(value.re) + one_norm(value.im); }

/// Small integers, many of the values zero: what factors hand on is exact in T, as operands of the next
/// factor are, and all sums are exact in the accumulator.
template <class T>
ChainData<IntegerOf<T>> chain_integers(const kronsparse::Problem& problem, std::uint64_t seed) {
  using S = IntegerOf<T>;
  constexpr std::int64_t kTf32OperandLimit = 1023;
  const std::int64_t handed_on_limit = problem.mode == kronsparse::Mode::tf32
                                           ? std::min(kTf32OperandLimit, traits<T>.operand_limit)
                                           : traits<T>.operand_limit;
  Random random(seed);
  const auto within = [&random](std::int64_t limit) {
    if constexpr (complex_element<T>) {
      const std::int64_t re = random.integer(-limit, limit);
      return S{re, random.integer(-limit, limit)};
    } else {
      return random.integer(-limit, limit);
    }
  };
  for (double nonzeros = 6;; nonzeros *= 0.7) {  // of a row, on average
    const auto value = [&](std::size_t factor) {
      const kronsparse::Pattern& pattern = problem.chain[factor];
      const double share = nonzeros / static_cast<double>(std::max(pattern.b, pattern.c));
      return (random.symmetric() + 1) / 2 < share ? within(2) : S{};
    };
    const auto other = [&] { return within(nonzeros > 3 ? 5 : 2); };
    ChainData<S> data = make_chain_data<S>(problem, value, other, other, other);
    ChainData<std::int64_t> positive;
    const auto norms = [](const std::vector<S>& from) {
      std::vector<std::int64_t> to(from.size());
      for (std::size_t at = 0; at < to.size(); ++at) to[at] = one_norm(from[at]);
      return to;
    };
    for (const std::vector<S>& one : data.values) positive.values.push_back(norms(one));
    positive.x = norms(data.x);
    positive.g = norms(data.g);
    positive.bias = norms(data.bias);
    const ChainOutcome<std::vector<std::int64_t>> sums = evaluate_chain(problem, positive);
    const auto within_limit = [](const std::vector<std::int64_t>& items, std::int64_t limit) {
      return std::all_of(items.begin(), items.end(), [limit](std::int64_t item) { return item <= limit; });
    };
    bool fits = within_limit(sums.y, traits<T>.sum_limit) && within_limit(sums.grad_x, traits<T>.sum_limit);
    for (const auto& one : sums.gradients) fits = fits && within_limit(one, traits<T>.sum_limit);
    for (const auto& one : sums.handed_on) fits = fits && within_limit(one, handed_on_limit);
    if (fits) return data;
  }
}

/// Real numbers, as random_data has them: values uniform in ±1/sqrt(length of the factor's sums).
template <class T>
ChainData<WideOf<T>> chain_random(const kronsparse::Problem& problem, std::uint64_t seed) {
  using kronsparse::Operation;
  Random random(seed ^ 0xc4a1u);
  const auto rounded = [](auto&& part) {
    if constexpr (complex_element<T>) {
      const double re = part();
      return decode(encode<T>(Cx<double>{re, part()}));
    } else {
      return decode(encode<T>(part()));
    }
  };
  const bool rows_in = problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  const auto value = [&](std::size_t factor) {
    const kronsparse::Pattern& pattern = problem.chain[factor];
    const double scale = 1 / std::sqrt(static_cast<double>(rows_in ? pattern.b : pattern.c));
    return rounded([&] { return scale * random.symmetric(); });
  };
  const auto bell = [&] { return rounded([&] { return random.bell(); }); };
  return make_chain_data<WideOf<T>>(problem, value, bell, bell, bell);
}

template <class S>
auto widen(const ChainData<S>& data) {
  using Wide = decltype(widen(S{}));
  const auto of = [](const std::vector<S>& from) {
    std::vector<Wide> to(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](S value) { return widen(value); });
    return to;
  };
  ChainData<Wide> wide{{}, of(data.x), of(data.g), of(data.bias)};
  for (const std::vector<S>& one : data.values) wide.values.push_back(of(one));
  return wide;
}

template <class T>
struct ChainAnswers {
  using Wide = WideOf<T>;

  ChainData<Wide> integers;
  ChainOutcome<std::vector<Wide>> integers_expected;  ///< rounded once; y only where the activation is exact
  ChainData<Wide> random;
  ChainOutcome<Near<Wide>> random_expected;
};

template <class T>
ChainAnswers<T> make_chain_answers(const kronsparse::Problem& problem, std::uint64_t seed) {
  using Wide = WideOf<T>;
  const ChainData<IntegerOf<T>> integers = chain_integers<T>(problem, seed);
  ChainAnswers<T> answers;
  answers.integers = widen(integers);
  const ChainOutcome<std::vector<IntegerOf<T>>> exact = evaluate_chain(problem, integers);
  const auto rounded = [](const std::vector<IntegerOf<T>>& sums, kronsparse::Activation activation) {
    std::vector<Wide> to;
    to.reserve(sums.size());
    for (const IntegerOf<T> sum : sums)
      to.push_back(round_to(activate(activation, widen(sum)), traits<T>.digits));
    return to;
  };
  using kronsparse::Activation;
  if (exact_activation(problem.activation))
    answers.integers_expected.y = rounded(exact.y, problem.activation);
  answers.integers_expected.grad_x = rounded(exact.grad_x, Activation::none);
  for (const auto& one : exact.gradients)
    answers.integers_expected.gradients.push_back(rounded(one, Activation::none));
  answers.random = chain_random<T>(problem, seed);
  answers.random_expected = bound_chain<T>(problem, answers.random);
  return answers;
}

/// The same for every implementation, hence computed once.
template <class T>
const ChainAnswers<T>& chain_answers_for(const kronsparse::Problem& problem, std::uint64_t seed) {
  return kept().get<ChainAnswers<T>>(problem, seed, [&] { return make_chain_answers<T>(problem, seed); });
}

}  // namespace conformance
