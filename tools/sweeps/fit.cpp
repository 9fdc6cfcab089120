// Levenberg's and Marquardt's method with differences for derivatives: models are made of sums, products and
// the larger of two, so that they are smooth almost everywhere.
#include "fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "core/message.hpp"
#include "cuda/tuning/entries.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::sweep {

std::vector<double> constants_of(const cuda::Tuning& tuning, std::string_view kernel) {
  std::vector<double> all;
  cuda::tuning::for_each_entry(tuning, [&](std::string_view name, const auto& entry) {
    if (name != kernel) return;
    const auto numbers = cuda::tuning::numbers_of(entry.costs);
    all.assign(numbers.begin(), numbers.end());
  });
  return all;
}

void set_constants(cuda::Tuning& tuning, std::string_view kernel, std::span<const double> constants) {
  cuda::tuning::for_each_entry(tuning, [&](std::string_view name, auto& entry) {
    if (name != kernel) return;
    using Constants = std::remove_cvref_t<decltype(entry.costs)>;
    auto numbers = cuda::tuning::numbers_of(entry.costs);
    std::ranges::copy(constants.first(numbers.size()), numbers.begin());
    entry.costs = cuda::tuning::constants_of<Constants>(numbers);
  });
}

std::string to_string(const Quality& quality) {
  return message("regret median {:.3f}, mean {:.3f}, worst {:.2f}; predicted / measured {:.2f} to {:.2f}",
                 quality.median_regret, quality.mean_regret, quality.worst_regret, quality.least_ratio,
                 quality.most_ratio);
}

namespace {

/// A measured way.
struct Sample {
  std::size_t way;
  double seconds;
  double weight;
};

struct Measured {
  Problem problem;
  std::vector<Sample> samples;
};

/// The predictions for the measured ways with other constants.
class Predictor {
 public:
  Predictor(const Subject& subject, const cuda::Tuning& start) : subject_(subject), tuning_(start) {}

  /// Calls take(problem, its predictions) for each problem.
  template <class Take>
  void predict(std::span<const double> constants, std::span<const Measured> all, const Take& take) {
    set_constants(tuning_, subject_.name, constants);
    const cuda::PretendedTuning pretended(tuning_);
    for (const Measured& one : all) take(one, subject_.seconds(one.problem));
  }

 private:
  const Subject& subject_;
  cuda::Tuning tuning_;
};

std::vector<double> residuals_of(Predictor& predictor, std::span<const double> constants,
                                 std::span<const Measured> all) {
  std::vector<double> residuals;
  predictor.predict(constants, all, [&](const Measured& one, const std::vector<double>& seconds) {
    for (const Sample& sample : one.samples)
      residuals.push_back(sample.weight * (seconds[sample.way] - sample.seconds));
  });
  return residuals;
}

double squares(std::span<const double> numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return sum;
}

Quality quality_of(Predictor& predictor, std::span<const double> constants, std::span<const Measured> all) {
  std::vector<double> regrets, ratios;
  predictor.predict(constants, all, [&](const Measured& one, const std::vector<double>& seconds) {
    const Sample& chosen =
        *std::ranges::min_element(one.samples, {}, [&](const Sample& sample) { return seconds[sample.way]; });
    const Sample& best = *std::ranges::min_element(one.samples, {}, &Sample::seconds);
    regrets.push_back(chosen.seconds / best.seconds);
    ratios.push_back(seconds[chosen.way] / chosen.seconds);
  });
  if (regrets.empty()) return {};
  std::ranges::sort(regrets);
  double sum = 0;
  for (const double regret : regrets) sum += regret;
  const auto [least, most] = std::ranges::minmax(ratios);
  return {regrets[regrets.size() / 2], sum / static_cast<double>(regrets.size()), regrets.back(), least,
          most};
}

/// Solves a symmetric system by elimination. `matrix` has rows of the right side's length.
std::vector<double> solved(std::vector<double> matrix, std::vector<double> right) {
  const std::size_t size = right.size();
  for (std::size_t pivot = 0; pivot < size; ++pivot) {
    std::size_t largest = pivot;
    for (std::size_t row = pivot + 1; row < size; ++row)
      if (std::abs(matrix[row * size + pivot]) > std::abs(matrix[largest * size + pivot])) largest = row;
    if (matrix[largest * size + pivot] == 0) continue;
    for (std::size_t at = 0; at < size; ++at)
      std::swap(matrix[pivot * size + at], matrix[largest * size + at]);
    std::swap(right[pivot], right[largest]);
    for (std::size_t row = 0; row < size; ++row) {
      if (row == pivot) continue;
      const double share = matrix[row * size + pivot] / matrix[pivot * size + pivot];
      for (std::size_t at = pivot; at < size; ++at)
        matrix[row * size + at] -= share * matrix[pivot * size + at];
      right[row] -= share * right[pivot];
    }
  }
  for (std::size_t at = 0; at < size; ++at)
    right[at] = matrix[at * size + at] == 0 ? 0 : right[at] / matrix[at * size + at];
  return right;
}

/// The columns of derivatives; empty for constants that nothing depends on.
std::vector<std::vector<double>> derivatives(Predictor& predictor, std::span<const double> constants,
                                             std::span<const double> residuals,
                                             std::span<const Measured> all) {
  const double largest = std::ranges::max(constants);
  std::vector<std::vector<double>> columns(constants.size());
  std::vector<double> other(constants.begin(), constants.end());
  for (std::size_t at = 0; at < constants.size(); ++at) {
    const double step = constants[at] > 0 ? 1e-4 * constants[at] : 1e-7 * largest;
    other[at] = constants[at] + step;
    std::vector<double> column = residuals_of(predictor, other, all);
    other[at] = constants[at];
    for (std::size_t row = 0; row < column.size(); ++row) column[row] = (column[row] - residuals[row]) / step;
    if (squares(column) > 0) columns[at] = std::move(column);
  }
  return columns;
}

std::vector<double> fitted(Predictor& predictor, std::vector<double> constants,
                           std::span<const Measured> all) {
  constexpr int most_steps = 60;
  constexpr double least_gain = 1e-6;
  std::vector<double> residuals = residuals_of(predictor, constants, all);
  double cost = squares(residuals), damping = 1e-3;
  for (int step = 0; step < most_steps; ++step) {
    const std::vector<std::vector<double>> columns = derivatives(predictor, constants, residuals, all);
    std::vector<std::size_t> free;
    for (std::size_t at = 0; at < columns.size(); ++at) {
      if (columns[at].empty()) continue;
      double slope = 0;
      for (std::size_t row = 0; row < residuals.size(); ++row) slope += columns[at][row] * residuals[row];
      if (constants[at] > 0 || slope < 0) free.push_back(at);  // a zero that wants to fall stays
    }
    const std::size_t size = free.size();
    std::vector<double> products(size * size), right(size), scales(size);
    for (std::size_t one = 0; one < size; ++one) scales[one] = std::sqrt(squares(columns[free[one]]));
    for (std::size_t one = 0; one < size; ++one) {
      for (std::size_t row = 0; row < residuals.size(); ++row)
        right[one] -= columns[free[one]][row] * residuals[row] / scales[one];
      for (std::size_t two = 0; two <= one; ++two) {
        double sum = 0;
        for (std::size_t row = 0; row < residuals.size(); ++row)
          sum += columns[free[one]][row] * columns[free[two]][row];
        products[one * size + two] = products[two * size + one] = sum / scales[one] / scales[two];
      }
    }
    double gain = 0;
    for (int attempt = 0; attempt < 12 && gain == 0; ++attempt) {
      std::vector<double> damped = products;
      for (std::size_t one = 0; one < size; ++one) damped[one * size + one] += damping;
      const std::vector<double> move = solved(damped, right);
      std::vector<double> next = constants;
      for (std::size_t one = 0; one < size; ++one)
        next[free[one]] = std::max(0.0, next[free[one]] + move[one] / scales[one]);
      std::vector<double> left = residuals_of(predictor, next, all);
      const double after = squares(left);
      if (std::isfinite(after) && after < cost) {
        gain = 1 - after / cost;
        cost = after;
        constants = std::move(next);
        residuals = std::move(left);
        damping = std::max(damping / 5, 1e-9);
      } else {
        damping *= 4;
      }
    }
    if (gain < least_gain) break;
  }
  return constants;
}

double with_four_digits(double number) { return std::strtod(message("{:.4g}", number).c_str(), nullptr); }

}  // namespace

Fit fit(const Subject& subject, const Rows& rows, const cuda::Tuning& start) {
  const cuda::PretendedGpus machine({rows.facts});
  Fit result{};
  std::vector<Measured> all;
  for (const Problem& problem : rows.problems) all.push_back({problem, {}});
  std::vector<std::map<std::string, std::size_t>> ways(all.size());
  for (std::size_t at = 0; at < all.size(); ++at) {
    const std::vector<std::string> labels = subject.labels(all[at].problem);
    for (std::size_t way = 0; way < labels.size(); ++way) ways[at].emplace(labels[way], way);
  }
  for (const Row& row : rows.rows) {
    const auto found = ways[row.problem].find(row.label);
    if (found == ways[row.problem].end()) {
      ++result.unknown;
      continue;
    }
    all[row.problem].samples.push_back({found->second, row.seconds, 0});
    ++result.used;
  }
  std::erase_if(all, [](const Measured& one) { return one.samples.empty(); });
  if (all.empty())
    throw Error(ErrorCode::invalid_argument, message("rows: {} has none of these ways", subject.name));
  std::vector<Measured> of_fit, kept_out;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const double best = std::ranges::min(all[at].samples, {}, &Sample::seconds).seconds;
    for (Sample& sample : all[at].samples)
      sample.weight = std::pow(best / sample.seconds, 1.5) / sample.seconds;
    (at % 4 == 3 ? kept_out : of_fit).push_back(std::move(all[at]));
  }
  Predictor predictor(subject, start);
  const std::vector<double> before = constants_of(start, subject.name);
  result.constants = fitted(predictor, before, of_fit);
  std::ranges::transform(result.constants, result.constants.begin(), with_four_digits);
  result.before = quality_of(predictor, before, of_fit);
  result.after = quality_of(predictor, result.constants, of_fit);
  result.kept_before = quality_of(predictor, before, kept_out);
  result.kept_after = quality_of(predictor, result.constants, kept_out);
  return result;
}

}  // namespace kronsparse::sweep
