// The kernels whose constants can be fitted: the ways of each to run a problem, with their predictions.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/implementation.hpp"

namespace kronsparse::sweep {

inline constexpr Device first_gpu{Backend::cuda, 0};

/// A kernel. Its ways are numbered; their order does not depend on the constants. A kernel that has one way
/// for a problem has that one.
struct Subject {
  std::string_view name;     ///< in the table
  std::string_view columns;  ///< the parts of a label, separated by commas
  /// Predicted seconds of each way on the first GPU.
  std::vector<double> (*seconds)(const Problem& problem);
  /// The numbers that tell a way from the others of a problem, separated by commas.
  std::vector<std::string> (*labels)(const Problem& problem);
  std::unique_ptr<Executor> (*make)(const Problem& problem, std::size_t way);
};

[[nodiscard]] std::span<const Subject> subjects();
/// Error invalid_argument where there is none of this name.
[[nodiscard]] const Subject& subject(std::string_view name);
/// Why the kernel does not take a problem on the first GPU; empty when it does.
[[nodiscard]] std::string refusal(const Subject& subject, const Problem& problem);

}  // namespace kronsparse::sweep
