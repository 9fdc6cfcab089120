// How the CPU's `fused` cuts a chain: which neighbours are multiplied together, and how many samples go
// through all products at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/fused/merging.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::fused {

struct Cut {
  std::vector<Merging> links;  ///< the left one first
  std::int64_t samples = 0;    ///< of a chunk
  double seconds = 0;          ///< predicted, of a run
};

/// The problem of one chunk: the products of the links, for so many samples, in the type of the arithmetic.
[[nodiscard]] Problem chunk_of(const Problem& problem, const Cut& cut, std::int64_t samples);

/// The threads that take chunks.
[[nodiscard]] int threads_of(const Problem& problem, const Cut& cut);

/// The parts of a total, the last of which may be smaller.
[[nodiscard]] constexpr std::int64_t parts(std::int64_t total, std::int64_t part) noexcept {
  return (total + part - 1) / part;
}

/// Nothing where no neighbours are faster multiplied together, or their products would take much more memory.
[[nodiscard]] std::optional<Cut> best_cut(const Problem& problem);
/// With these links.
[[nodiscard]] Cut best_cut(const Problem& problem, std::vector<Merging> links);

}  // namespace kronsparse::fused
