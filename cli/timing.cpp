#include "timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace kronsparse::cli {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Timing::Timing(const std::function<void()>& work, const TimingOptions& options) {
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
  sorted_ = seconds_;
  std::sort(sorted_.begin(), sorted_.end());
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
    fmt::print(stderr,
               "note: other work keeps this machine busy (load {:.1f}, {} cores); times will not be fair\n",
               load, cores);
  }
}

double measure_copy_rate() {
  const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
  // Each thread's part is beyond its share of any cache in use today.
  const std::size_t part = std::max<std::size_t>((std::size_t{192} << 20) / threads, std::size_t{16} << 20);
  std::vector<std::vector<char>> from(threads, std::vector<char>(part, 1));
  std::vector<std::vector<char>> to(threads, std::vector<char>(part, 0));
  const auto copy = [&] {
    std::vector<std::thread> workers;
    workers.reserve(threads);
    for (std::size_t index = 0; index < threads; ++index) {
      workers.emplace_back([&, index] { std::memcpy(to[index].data(), from[index].data(), part); });
    }
    for (std::thread& worker : workers) worker.join();
  };
  const Timing timing(copy, {.min_seconds = 0.2, .min_runs = 5, .max_runs = 50});
  return 2.0 * static_cast<double>(threads * part) / timing.median();
}

}  // namespace kronsparse::cli
