// The conformance body: what every implementation must do with every problem.
#pragma once

#include <string>

#include "device.hpp"
#include "kronsparse/problem.hpp"
#include "targets.hpp"

namespace conformance {

/// Runs the problem and returns what is wrong, with the command that shows it
/// again; empty when all is well. The problem must not be refused. Checked:
/// - integer data: the result equals the exact sum rounded once;
/// - random data: the result is within the bound of a correct computation;
/// - inf and nan reach exactly the outputs that IEEE arithmetic sends them to;
/// - nothing outside y's elements is written, nothing outside the operands read;
/// - the same run twice gives the same bits; new values replace the old ones,
///   and the caller's values are not needed after planning.
[[nodiscard]] std::string check_problem(const TestDevice& device, const Target& target,
                                        const kronsparse::Problem& problem, std::uint64_t seed);

}  // namespace conformance
