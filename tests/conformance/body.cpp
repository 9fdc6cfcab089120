#include "body.hpp"

#include <cmath>
#include <sstream>

#include "answers.hpp"
#include "harness.hpp"
#include "kronsparse/error.hpp"

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

template <class Wide>
std::string compare_exactly(const kronsparse::Problem& problem, const std::vector<Wide>& got,
                            const std::vector<Wide>& expected) {
  for (std::size_t at = 0; at < expected.size(); ++at)
    if (!(got[at] == expected[at]))
      return place(problem, at) + " is " + show(got[at]) + ", must be exactly " + show(expected[at]) +
             " (integer data)";
  return {};
}

/// Exact where the oracle is finite; else the same infinity or a NaN.
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

template <class Wide>
std::string compare_closely(const kronsparse::Problem& problem, const std::vector<Wide>& got,
                            const std::vector<Wide>& expected, const std::vector<double>& bounds) {
  for (std::size_t at = 0; at < expected.size(); ++at)
    if (!(difference(got[at], expected[at]) <= bounds[at]))  // catches NaN
      return place(problem, at) + " is " + show(got[at]) + ", must be within " + show(bounds[at]) + " of " +
             show(expected[at]) + " (random data)";
  return {};
}

template <class T>
class Body {
 public:
  using Wide = WideOf<T>;

  Body(const TestDevice& device, const Target& target, const kronsparse::Problem& problem, std::uint64_t seed)
      : target_(target),
        problem_(problem),
        answers_(answers_for<T>(problem, seed)),
        harness_(device, problem, seed) {}

  std::string check() {
    harness_.load(answers_.integers);
    kronsparse::Plan plan(problem_, harness_.values(), target_.device, target_.implementation);
    if (plan.implementation() != target_.implementation)
      return "the plan took " + std::string(plan.implementation());
    harness_.forget_values();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (exact_activation(problem_.activation))
      if (std::string wrong = compare_exactly(problem_, harness_.output(), answers_.integers_expected);
          !wrong.empty())
        return wrong;
    const auto first = harness_.output_bytes();
    if (std::string wrong = harness_.run(plan); !wrong.empty()) return wrong;
    if (harness_.output_bytes() != first) return "two runs differ";

    if (std::string wrong = rerun(plan, answers_.random); !wrong.empty()) return wrong;
    if (std::string wrong =
            compare_closely(problem_, harness_.output(), answers_.random_expected, answers_.random_bounds);
        !wrong.empty())
      return wrong;
    for (const Special<Wide>& special : answers_.specials) {
      if (std::string wrong = rerun(plan, special.put_into(answers_.integers)); !wrong.empty()) return wrong;
      if (std::string wrong = compare_specials(problem_, harness_.output(), special.expected, special.what);
          !wrong.empty())
        return wrong;
    }
    return {};
  }

 private:
  /// New data and, where there are any, new values in the same plan.
  std::string rerun(kronsparse::Plan& plan, const Data<Wide>& data) {
    harness_.load(data);
    if (harness_.values() != nullptr) plan.set_values(harness_.values());
    harness_.forget_values();
    return harness_.run(plan);
  }

  const Target& target_;
  const kronsparse::Problem& problem_;
  const Answers<T>& answers_;
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
