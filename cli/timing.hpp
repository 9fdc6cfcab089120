// Times repeated calls and measures the machine's copy rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kronsparse/device.hpp"

namespace kronsparse::cli {

struct TimingOptions {
  double min_seconds = 0.5;     ///< keep timing until this much time has passed
  std::uint64_t min_runs = 10;  ///< and this many runs were timed
  std::uint64_t max_runs = 10'000;
};

/// Seconds of each timed run, in order, after at least one untimed warm-up.
/// `work` enqueues one run on the device's default stream. A GPU's runs are
/// timed by its own clock, one behind the other, and short ones several at a
/// time: then each of the seconds is a mean of several runs.
class Timing {
 public:
  Timing(const std::function<void()>& work, const TimingOptions& options, Device device = {});

  [[nodiscard]] const std::vector<double>& seconds() const noexcept { return seconds_; }
  [[nodiscard]] double median() const { return quantile(0.5); }
  /// Between neighbouring runs, linearly; 0.25 and 0.75 are the quartiles.
  [[nodiscard]] double quantile(double fraction) const;

 private:
  void time_on_host(const std::function<void()>& work, const TimingOptions& options);
  void time_on_device(const std::function<void()>& work, const TimingOptions& options, Device device);

  std::vector<double> seconds_;
  std::vector<double> sorted_;
};

/// Says so on stderr when other work keeps the machine's cores busy: long runs
/// are then interrupted more often than short ones, and no statistic is fair.
void warn_if_busy();

/// Bytes read plus bytes written per second when an array too large for the
/// caches is copied: on the CPU every core copies a part, a GPU copies in its
/// own memory.
[[nodiscard]] double measure_copy_rate(Device device = {});

}  // namespace kronsparse::cli
