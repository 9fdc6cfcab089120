#include "cpu/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cpu/openmp.hpp"
#include "cpu/thread_pool.hpp"

namespace kronsparse {
namespace {

constexpr double seconds_to_wake = 5e-6;

/// `threads` threads woken, their work shared, and the last of them waited for.
double seconds_shared(double seconds_alone, int threads) {
  constexpr double seconds_for_each = 5e-7;
  return seconds_to_wake + (seconds_for_each * threads) + (seconds_alone / threads);
}

/// The first number of OMP_NUM_THREADS, which may be a list, else the CPUs of this process.
int threads_without_openmp() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const long given = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (given > 0) return static_cast<int>(std::min<long>(given, most_threads));
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int thread_count() {
  static const int otherwise = threads_without_openmp();
  const int openmp = openmp_threads();
  return std::clamp(openmp > 0 ? openmp : otherwise, 1, most_threads);
}

int threads_for(double seconds_alone) {
  if (seconds_alone <= seconds_to_wake) return 1;  // what is so short should not even ask for the number
  const int all = thread_count();
  return seconds_shared(seconds_alone, all) < seconds_alone ? all : 1;
}

double seconds_on_threads(double seconds_alone) {
  const int threads = threads_for(seconds_alone);
  return threads == 1 ? seconds_alone : seconds_shared(seconds_alone, threads);
}

}  // namespace kronsparse
