// Fits a kernel's constants to measured times of its ways.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cuda/tuning/tuning.hpp"
#include "rows.hpp"
#include "subjects.hpp"

namespace kronsparse::sweep {

/// The constants of a kernel, in the order of their declaration.
[[nodiscard]] std::vector<double> constants_of(const cuda::Tuning& tuning, std::string_view kernel);
void set_constants(cuda::Tuning& tuning, std::string_view kernel, std::span<const double> constants);

/// How good choices and predictions are.
struct Quality {
  double median_regret, mean_regret, worst_regret;  ///< time of the chosen way over that of the best measured
  double least_ratio, most_ratio;                   ///< of the chosen way: predicted over measured
};
[[nodiscard]] std::string to_string(const Quality& quality);

struct Fit {
  std::vector<double> constants;    ///< with four digits
  Quality before, after;            ///< of the problems of the fit
  Quality kept_before, kept_after;  ///< of every fourth problem, which is kept out of the fit
  std::size_t used = 0;             ///< rows
  std::size_t unknown = 0;          ///< rows of ways that the kernel has no more
};

/// The constants that come nearest to the rows, from those of `start` on. Errors are relative, and a
/// problem's best ways matter most. Constants that no row depends on stay as they are. None becomes negative.
[[nodiscard]] Fit fit(const Subject& subject, const Rows& rows, const cuda::Tuning& start);

}  // namespace kronsparse::sweep
