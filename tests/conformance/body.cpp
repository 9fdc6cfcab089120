#include "body.hpp"

#include <cmath>
#include <limits>
#include <sstream>

#include "data.hpp"
#include "harness.hpp"
#include "kronsparse/error.hpp"
#include "oracle.hpp"

namespace conformance {
namespace {

std::string show(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}
std::string show(Cx<double> value) { return "(" + show(value.re) + ", " + show(value.im) + ")"; }

bool finite(double value) { return std::isfinite(value); }
bool finite(Cx<double> value) { return std::isfinite(value.re) && std::isfinite(value.im); }

/// "y of feature 3, sample 5" or "gradient of value 17".
std::string place(const kronsparse::Problem& problem, std::size_t at) {
  if (problem.operation == kronsparse::Operation::gradient) return "gradient of value " + std::to_string(at);
  const auto batch = static_cast<std::size_t>(problem.batch);
  return "y of feature " + std::to_string(at / batch) + ", sample " + std::to_string(at % batch);
}

/// What one rounding at the end makes of exact sums.
template <class T, class Wide>
std::vector<Wide> stored(const kronsparse::Problem& problem, std::vector<Wide> sums) {
  for (Wide& sum : sums) sum = round_to(activate(problem.activation, sum), traits<T>.digits);
  return sums;
}

template <class Wide>
std::string compare_exactly(const kronsparse::Problem& problem, const std::vector<Wide>& got,
                            const std::vector<Wide>& expected) {
  for (std::size_t at = 0; at < expected.size(); ++at)
    if (!(got[at] == expected[at]))
      return place(problem, at) + " is " + show(got[at]) + ", must be exactly " + show(expected[at]) +
             " (integer data)";
  return {};
}

/// Where the oracle is finite, exact; where not, the same infinity or a NaN.
/// A complex product may spread an infinity over both parts: there only that
/// the result is not finite is required.
template <class Wide>
std::string compare_specials(const kronsparse::Problem& problem, const std::vector<Wide>& got,
                             const std::vector<Wide>& expected, const std::string& what) {
  for (std::size_t at = 0; at < expected.size(); ++at) {
    bool right = false;
    if (finite(expected[at])) {
      right = got[at] == expected[at];
    } else if constexpr (std::is_same_v<Wide, double>) {
      right = std::isnan(expected[at]) ? std::isnan(got[at]) : got[at] == expected[at];
    } else {
      right = !finite(got[at]);
    }
    if (!right)
      return place(problem, at) + " is " + show(got[at]) + ", must be " + show(expected[at]) + " (" + what +
             ")";
  }
  return {};
}

double difference(double p, double q) { return std::abs(p - q); }
double difference(Cx<double> p, Cx<double> q) {
  return std::fmax(std::abs(p.re - q.re), std::abs(p.im - q.im));
}
/// The larger part bounds what storing either part may lose.
double scale_of(double z) { return z; }
double scale_of(Cx<double> z) { return std::fmax(std::abs(z.re), std::abs(z.im)); }

template <class T>
std::string compare_closely(const kronsparse::Problem& problem, const std::vector<WideOf<T>>& got,
                            const Data<WideOf<T>>& data) {
  const std::vector<WideOf<T>> sums = evaluate(problem, data);
  const std::vector<double> absolute_sums = evaluate(problem, magnitudes(data));
  for (std::size_t at = 0; at < sums.size(); ++at) {
    const WideOf<T> expected = activate(problem.activation, sums[at]);
    const double bound = error_bound<T>(problem, scale_of(sums[at]), absolute_sums[at]);
    if (!(difference(got[at], expected) <= bound))  // catches NaN
      return place(problem, at) + " is " + show(got[at]) + ", must be within " + show(bound) + " of " +
             show(expected) + " (random data)";
  }
  return {};
}

/// One place of one operand, with infinity or NaN put into it.
template <class Wide>
struct Injection {
  std::vector<Wide> Data<Wide>::*operand;
  double special;
  const char* what;
};

template <class T>
class Body {
 public:
  using Wide = WideOf<T>;

  Body(const TestDevice& device, const Target& target, const kronsparse::Problem& problem, std::uint64_t seed)
      : target_(target), problem_(problem), seed_(seed), harness_(device, problem, seed) {}

  std::string check() {
    const Data<IntegerOf<T>> integers = integer_data<T>(problem_, seed_);
    const Data<Wide> exact = widen(integers);
    harness_.load(exact);
    kronsparse::Plan plan(problem_, harness_.values(), target_.device, target_.implementation);
    if (plan.implementation() != target_.implementation)
      return "the plan took " + std::string(plan.implementation());
    harness_.forget_values();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (exact_activation(problem_.activation)) {
      std::vector<Wide> sums;
      for (const IntegerOf<T> sum : evaluate(problem_, integers)) sums.push_back(widen(sum));
      if (std::string wrong = compare_exactly(problem_, harness_.output(), stored<T>(problem_, sums));
          !wrong.empty())
        return wrong;
    }
    const std::vector<std::byte> first = harness_.output_bytes();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (harness_.output_bytes() != first) return "two runs differ";

    if (std::string wrong = check_random(plan); !wrong.empty()) return wrong;
    return exact_activation(problem_.activation) ? check_specials(plan, exact) : std::string();
  }

 private:
  /// New data and, where there are any, new values in the same plan.
  std::string rerun(kronsparse::Plan& plan, const Data<Wide>& data) {
    harness_.load(data);
    if (harness_.values() != nullptr) plan.set_values(harness_.values());
    harness_.forget_values();
    return harness_.run(plan);
  }

  std::string check_random(kronsparse::Plan& plan) {
    const Data<Wide> data = random_data<T>(problem_, seed_);
    if (std::string wrong = rerun(plan, data); !wrong.empty()) return wrong;
    return compare_closely<T>(problem_, harness_.output(), data);
  }

  /// Two of the injections each time, in turn: neighbours in the list of cases see the others.
  std::string check_specials(kronsparse::Plan& plan, const Data<Wide>& exact) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const bool gradient = problem_.operation == kronsparse::Operation::gradient;
    const auto other = gradient ? &Data<Wide>::g : &Data<Wide>::values;
    const std::vector<Injection<Wide>> injections = {
        {&Data<Wide>::x, kInfinity, "an infinity in x"},
        {other, kNan, gradient ? "a NaN in g" : "a NaN in the values"},
        {&Data<Wide>::x, kNan, "a NaN in x"},
        {other, -kInfinity, gradient ? "an infinity in g" : "an infinity in the values"},
    };
    for (std::uint64_t turn = 0; turn < 2; ++turn) {
      const Injection<Wide>& injection = injections[(seed_ * 2 + turn) % injections.size()];
      Data<Wide> data = exact;
      std::vector<Wide>& operand = data.*injection.operand;
      if (operand.empty()) continue;
      Random random(seed_ + turn);
      Wide& victim = operand[static_cast<std::size_t>(random.next() % operand.size())];
      if constexpr (complex_element<T>) {
        victim.re = injection.special;
      } else {
        victim = injection.special;
      }
      if (std::string wrong = rerun(plan, data); !wrong.empty()) return wrong;
      if (std::string wrong = compare_specials(problem_, harness_.output(),
                                               stored<T>(problem_, evaluate(problem_, data)), injection.what);
          !wrong.empty())
        return wrong;
    }
    return {};
  }

  const Target& target_;
  const kronsparse::Problem& problem_;
  std::uint64_t seed_;
  Harness<T> harness_;
};

}  // namespace

std::string check_problem(const TestDevice& device, const Target& target, const kronsparse::Problem& problem,
                          std::uint64_t seed) {
  const CrashNote note(reproduction(target, problem, seed));
  std::string wrong;
  try {
    wrong = with_element_type(problem.dtype, [&](auto element) {
      return Body<typename decltype(element)::type>(device, target, problem, seed).check();
    });
  } catch (const kronsparse::Error& error) {
    wrong = "threw " + std::string(name(error.code())) + ": " + error.what();
  }
  if (wrong.empty()) return {};
  return wrong + "\n  " + reproduction(target, problem, seed);
}

}  // namespace conformance
