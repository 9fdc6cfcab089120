// Outputs of chains beside what they must be.
#pragma once

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "chain_harness.hpp"

namespace conformance {

inline std::string show(double value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}
inline std::string show(Cx<double> value) { return "(" + show(value.re) + ", " + show(value.im) + ")"; }

inline double difference(double p, double q) { return std::abs(p - q); }
inline double difference(Cx<double> p, Cx<double> q) {
  return std::fmax(std::abs(p.re - q.re), std::abs(p.im - q.im));
}

/// Empty when all are equal.
template <class T>
std::string compare_exactly(const ChainHarness<T>& harness,
                            const ChainOutcome<std::vector<WideOf<T>>>& outcome) {
  const auto expected = harness.expected(outcome);
  const auto got = harness.outputs();
  for (std::size_t output = 0; output < got.size(); ++output)
    for (std::size_t at = 0; at < got[output].numbers.size(); ++at)
      if (!(got[output].numbers[at] == expected[output][at]))
        return got[output].name + " has " + show(got[output].numbers[at]) + " at " + std::to_string(at) +
               ", must have exactly " + show(expected[output][at]) + " (integer data)";
  return {};
}

template <class T>
std::string compare_closely(const ChainHarness<T>& harness, const ChainOutcome<Near<WideOf<T>>>& outcome) {
  const auto expected = harness.expected(outcome);
  const auto got = harness.outputs();
  for (std::size_t output = 0; output < got.size(); ++output)
    for (std::size_t at = 0; at < got[output].numbers.size(); ++at) {
      const auto right = expected[output].numbers[at];
      const double bound = expected[output].errors[at];
      if (!(difference(got[output].numbers[at], right) <= bound))  // catches NaN
        return got[output].name + " has " + show(got[output].numbers[at]) + " at " + std::to_string(at) +
               ", must be within " + show(bound) + " of " + show(right) + " (random data)";
    }
  return {};
}

}  // namespace conformance
