// Times repeated calls and measures the machine's copy rate.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace kronsparse::cli {

struct TimingOptions {
  double min_seconds = 0.5;   ///< keep timing until this much time has passed
  std::size_t min_runs = 10;  ///< and this many runs were timed
  std::size_t max_runs = 10'000;
};

/// Seconds of each timed run, in order, after at least one untimed warm-up.
class Timing {
 public:
  Timing(const std::function<void()>& work, const TimingOptions& options);

  [[nodiscard]] const std::vector<double>& seconds() const noexcept { return seconds_; }
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// Between neighbouring runs, linearly; 0.25 and 0.75 are the quartiles.
  [[nodiscard]] double quantile(double fraction) const;

 private:
  std::vector<double> seconds_;
  std::vector<double> sorted_;
};

/// Says so on stderr when other work keeps the machine's cores busy: long runs
/// are then interrupted more often than short ones, and no statistic is fair.
void warn_if_busy();

/// Bytes read plus bytes written per second when every core copies a part of
/// an array too large for the caches.
[[nodiscard]] double measure_copy_rate();

}  // namespace kronsparse::cli
