// Which implementation runs a problem.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.hpp"

namespace kronsparse {

/// One implementation's answer to a problem.
struct Assessment {
  const Implementation* implementation;
  std::string refusal;  ///< empty when it accepts
  double seconds = 0;   ///< predicted; meaningful when it accepts
};

/// The answers of a table, those that accept first, cheapest first; the table's
/// order decides between equals.
[[nodiscard]] std::vector<Assessment> assess(std::span<const Implementation> table, const Problem& problem,
                                             Device device);

/// The cheapest of a table that accepts the problem and whose name or family is
/// `forced`, if that is not empty. `argument` is where that came from.
[[nodiscard]] const Implementation& choose_from(std::span<const Implementation> table, const Problem& problem,
                                                Device device, std::string_view argument,
                                                std::string_view forced);

/// The same for the device's table. When `forced` is empty, the variable
/// KRONSPARSE_IMPL takes its place.
[[nodiscard]] const Implementation& choose(const Problem& problem, Device device, std::string_view forced);

}  // namespace kronsparse
