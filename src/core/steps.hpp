// A chain's operation as products with single factors, and where each reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kronsparse/problem.hpp"

namespace kronsparse {

/// The kinds of memory that a step reads or writes.
enum class Place : std::uint8_t {
  nothing,
  x,  ///< the operands of the run, by their names
  y,
  g,
  grad_x,
  gradient,      ///< of the step's factor
  intermediate,  ///< the product of x with factors [index, end)
  scratch,       ///< one of two that steps take in turn
};

struct Location {
  Place place = Place::nothing;
  std::size_t index = 0;  ///< which intermediate, or which scratch

  friend bool operator==(const Location&, const Location&) = default;
};

/// One product with one factor.
struct Step {
  std::size_t factor;
  Problem problem;  ///< with this factor alone
  Location x, g, y;
};

/// All steps of a problem, in their order. Of the gradient those of products that Operands::intermediates
/// can stand for come first; see is_wanted.
[[nodiscard]] std::vector<Step> make_steps(const Problem& problem);

/// Features of intermediate `index`, 1 to the number of factors - 1: the rows of factor `index`.
[[nodiscard]] inline std::int64_t intermediate_features(const Chain& chain, std::size_t index) {
  return chain[index].rows();
}

}  // namespace kronsparse
