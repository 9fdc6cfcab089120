// Operands that an implementation is given, and the answers that must come out.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "data.hpp"
#include "kept.hpp"
#include "oracle.hpp"
#include "scalars.hpp"

namespace conformance {

/// The integer data with infinity or NaN put into one place of one operand.
template <class Wide>
struct Special {
  std::vector<Wide> Data<Wide>::*operand;
  std::size_t place;
  double number;
  const char* what;
  std::vector<Wide> expected;  ///< rounded once

  [[nodiscard]] Data<Wide> put_into(Data<Wide> data) const {
    Wide& victim = (data.*operand)[place];
    if constexpr (std::is_same_v<Wide, double>) {
      victim = number;
    } else {
      victim.re = number;
    }
    return data;
  }
};

template <class T>
struct Answers {
  using Wide = WideOf<T>;

  Data<Wide> integers;
  Data<Wide> random;
  std::vector<Wide> random_expected;
  std::vector<double> random_bounds;  ///< how far from that is right
  // Only where the activation is exact:
  std::vector<Wide> integers_expected;  ///< rounded once
  std::vector<Special<Wide>> specials;
};

/// Exact sums after one rounding at the end.
template <class T, class Wide>
std::vector<Wide> stored(const kronsparse::Problem& problem, std::vector<Wide> sums) {
  for (Wide& sum : sums) sum = round_to(activate(problem.activation, sum), traits<T>.digits);
  return sums;
}

/// Two of the four each time, in turn: neighbours in the list of cases see the others.
template <class T>
std::vector<Special<WideOf<T>>> make_specials(const kronsparse::Problem& problem,
                                              const Data<WideOf<T>>& integers, std::uint64_t seed) {
  using Wide = WideOf<T>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const bool gradient = problem.operation == kronsparse::Operation::gradient;
  const auto other = gradient ? &Data<Wide>::g : &Data<Wide>::values;
  const std::array<Special<Wide>, 4> all = {{
      {&Data<Wide>::x, 0, kInfinity, "an infinity in x", {}},
      {other, 0, kNan, gradient ? "a NaN in g" : "a NaN in the values", {}},
      {&Data<Wide>::x, 0, kNan, "a NaN in x", {}},
      {other, 0, -kInfinity, gradient ? "an infinity in g" : "an infinity in the values", {}},
  }};
  std::vector<Special<Wide>> specials;
  for (std::uint64_t turn = 0; turn < 2; ++turn) {
    Special<Wide> special = all[(seed * 2 + turn) % all.size()];
    const std::vector<Wide>& operand = integers.*special.operand;
    if (operand.empty()) continue;
    Random random(seed + turn);
    special.place = static_cast<std::size_t>(random.next() % operand.size());
    special.expected = stored<T>(problem, evaluate(problem, special.put_into(integers)));
    specials.push_back(std::move(special));
  }
  return specials;
}

template <class T>
Answers<T> make_answers(const kronsparse::Problem& problem, std::uint64_t seed) {
  using Wide = WideOf<T>;
  const Data<IntegerOf<T>> integers = integer_data<T>(problem, seed);
  Answers<T> answers;
  answers.integers = widen(integers);
  answers.random = random_data<T>(problem, seed);
  if (exact_activation(problem.activation)) {
    std::vector<Wide> sums;
    for (const IntegerOf<T> sum : evaluate(problem, integers)) sums.push_back(widen(sum));
    answers.integers_expected = stored<T>(problem, std::move(sums));
    answers.specials = make_specials<T>(problem, answers.integers, seed);
  }
  answers.random_expected = evaluate(problem, answers.random);
  answers.random_bounds = evaluate(problem, magnitudes(answers.random));
  for (std::size_t at = 0; at < answers.random_expected.size(); ++at) {
    Wide& z = answers.random_expected[at];
    double& absolute_sum = answers.random_bounds[at];
    absolute_sum = error_bound<T>(problem, scale_of(z), absolute_sum);
    z = activate(problem.activation, z);
  }
  return answers;
}

/// The same for every implementation, hence computed once.
template <class T>
const Answers<T>& answers_for(const kronsparse::Problem& problem, std::uint64_t seed) {
  return kept().get<Answers<T>>(problem, seed, [&] { return make_answers<T>(problem, seed); });
}

}  // namespace conformance
