// The patterns that the paper times: python/kronsparse/bench/problems/suites.py has the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kronsparse/pattern.hpp"

namespace kronsparse {

inline constexpr std::int64_t paper_batch = 25088;

/// The grid of the paper's appendix E.1: every d where a = 1, three values of d where a > 1.
inline std::vector<Pattern> paper_grid() {
  constexpr std::array<std::int64_t, 10> widths = {48, 64, 96, 128, 192, 256, 384, 512, 768, 1024};
  constexpr std::array<std::int64_t, 14> counts = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
  constexpr std::array<std::int64_t, 3> few = {4, 16, 64};
  const auto is_costly_twin = [](std::int64_t b, std::int64_t c) {
    const std::int64_t less = std::min(b, c);
    return std::max(b, c) == 4 * less && (less == 256 || less == 128 || less == 64);
  };
  std::vector<Pattern> all;
  for (const std::int64_t a : counts)
    for (const std::int64_t b : widths)
      for (const std::int64_t c : widths) {
        if (b != c && b != 4 * c && c != 4 * b) continue;
        if (a > 1 && is_costly_twin(b, c)) continue;
        for (const std::int64_t d :
             a == 1 ? std::span<const std::int64_t>(counts) : std::span<const std::int64_t>(few)) {
          const Pattern pattern{a, b, c, d};
          constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
          if (std::max({paper_batch * pattern.rows(), paper_batch * pattern.cols(), pattern.nnz()}) <= most)
            all.push_back(pattern);
        }
      }
  return all;
}

}  // namespace kronsparse
