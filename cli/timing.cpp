#include "timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>

#include "kronsparse/buffer.hpp"
#include "terminal.hpp"

namespace kronsparse::cli {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double device_seconds(Device device, const std::function<void()>& work) {
  Timer timer(device);
  timer.mark();
  work();
  timer.mark();
  return timer.seconds().front();
}

/// Half a millisecond or more of copying, to enqueue before something short.
class Plug {
 public:
  explicit Plug(Device device) : from_(bytes, device), to_(bytes, device) {}
  void enqueue() {
    for (int repeat = 0; repeat < 8; ++repeat) to_.copy_from(from_);
  }

 private:
  static constexpr std::size_t bytes = std::size_t{128} << 20;
  Buffer from_;
  Buffer to_;
};

double host_copy_rate() {
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  // Each thread's part is beyond its share of any cache in use today.
  const std::size_t part = std::max<std::size_t>((std::size_t{192} << 20) / threads, std::size_t{16} << 20);
  std::vector<std::vector<char>> from(threads, std::vector<char>(part, 1));
  std::vector<std::vector<char>> to(threads, std::vector<char>(part, 0));
  const auto copy_part = [&](std::size_t index) { std::memcpy(to[index].data(), from[index].data(), part); };
  const auto copy = [&] {
    std::vector<std::jthread> workers;
    workers.reserve(threads);
    for (std::size_t index = 0; index < threads; ++index) {
      try {
        workers.emplace_back(copy_part, index);
      } catch (const std::system_error&) {  // no more threads: it is this one's
        copy_part(index);
      }
    }
  };
  const Timing timing(copy, {.min_seconds = 0.2, .min_runs = 5, .max_runs = 50});
  return 2.0 * static_cast<double>(threads * part) / timing.median();
}

double device_copy_rate(Device device) {
  constexpr std::size_t bytes = std::size_t{1} << 30;
  Buffer from(bytes, device);
  Buffer to(bytes, device);
  from.clear();
  const Timing timing([&] { to.copy_from(from); }, {.min_seconds = 0.1, .min_runs = 10, .max_runs = 100},
                      device);
  return 2.0 * static_cast<double>(bytes) / timing.median();
}

}  // namespace

Timing::Timing(const std::function<void()>& work, const TimingOptions& options, Device device) {
  if (device.backend == Backend::cpu) {
    time_on_host(work, options);
  } else {
    time_on_device(work, options, device);
  }
  sorted_ = seconds_;
  std::sort(sorted_.begin(), sorted_.end());
}

void Timing::time_on_host(const std::function<void()>& work, const TimingOptions& options) {
  // Warm up for a tenth of the budget: pages are touched, threads started, clocks raised.
  double warm_up = 0;
  do {
    warm_up += seconds_of(work);
  } while (warm_up < 0.1 * options.min_seconds);
  double total = 0;
  while (seconds_.size() < options.min_runs ||
         (total < options.min_seconds && seconds_.size() < options.max_runs)) {
    seconds_.push_back(seconds_of(work));
    total += seconds_.back();
  }
}

void Timing::time_on_device(const std::function<void()>& work, const TimingOptions& options, Device device) {
  const auto enqueue = [&](std::size_t runs) {
    for (std::size_t run = 0; run < runs; ++run) work();
  };
  enqueue(1);
  synchronise(device);
  double total = 0;
  double estimate = 0;
  std::size_t warm_up_runs = 1;
  do {
    const double seconds = device_seconds(device, [&] { enqueue(warm_up_runs); });
    estimate = seconds / static_cast<double>(warm_up_runs);
    total += seconds;
    warm_up_runs = std::min<std::size_t>(2 * warm_up_runs, 64);
  } while (total < 0.1 * options.min_seconds);
  // A mark takes a microsecond or two of the GPU's time: let the runs between two take much longer.
  constexpr double between_marks = 100e-6;
  constexpr double longest_group = 32;
  const auto group =
      static_cast<std::size_t>(std::clamp(std::ceil(between_marks / estimate), 1.0, longest_group));
  // Enqueueing takes longer than a short run. A copy that keeps the GPU busy meanwhile
  // lets the runs behind it follow each other without gaps.
  const double wanted = std::max(options.min_seconds / (estimate * static_cast<double>(group)),
                                 static_cast<double>(options.min_runs));
  const auto groups = static_cast<std::size_t>(std::min(wanted, 64.0 / static_cast<double>(group))) + 1;
  std::optional<Plug> plug;
  if (estimate < between_marks) plug.emplace(device);

  total = 0;
  while (seconds_.size() < options.min_runs ||
         (total < options.min_seconds && seconds_.size() < options.max_runs)) {
    if (plug) plug->enqueue();
    Timer timer(device);
    timer.mark();
    for (std::size_t index = 0; index < groups; ++index) {
      enqueue(group);
      timer.mark();
    }
    for (const double seconds : timer.seconds()) {
      seconds_.push_back(seconds / static_cast<double>(group));
      total += seconds;
    }
  }
}

double Timing::quantile(double fraction) const {
  const double position = fraction * static_cast<double>(sorted_.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, sorted_.size() - 1);
  return std::lerp(sorted_[below], sorted_[above], position - static_cast<double>(below));
}

void warn_if_busy() {
  double load = 0;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (::getloadavg(&load, 1) == 1 && load > 0.75 * cores) {
    print_to_stderr(fmt::format(
        "note: other work keeps this machine busy (load {:.1f}, {} cores); times will not be fair\n", load,
        cores));
  }
}

double measure_copy_rate(Device device) {
  return device.backend == Backend::cpu ? host_copy_rate() : device_copy_rate(device);
}

}  // namespace kronsparse::cli
