// The conformance body of chains.
#pragma once

#include <string>

#include "device.hpp"
#include "kronsparse/problem.hpp"
#include "targets.hpp"

namespace conformance {

/// As check_problem, for chains of any length, and the values from everywhere they can come from: kept by the
/// plan, given to each run, packed apart from it. Besides what check_problem sees:
/// - nothing is written outside of the bytes of workspace and intermediates that a plan asks for, and
/// whatever
///   they held before does not matter;
/// - gradients of some factors alone, that of x, and intermediates that multiply has written.
[[nodiscard]] std::string check_chain(const TestDevice& device, const Target& target,
                                      const kronsparse::Problem& problem, std::uint64_t seed);

}  // namespace conformance
