#include "cpu/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cpu/thread_pool.hpp"

namespace kronsparse {
namespace {

/// `threads` threads woken, their work shared, and the last of them waited for.
double seconds_shared(double seconds_alone, int threads) {
  constexpr double seconds_to_wake = 5e-6;
  constexpr double seconds_for_each = 5e-7;
  return seconds_to_wake + (seconds_for_each * threads) + (seconds_alone / threads);
}

#if !defined(_OPENMP)
/// The first number of OMP_NUM_THREADS, which may be a list, else the CPUs of this process.
int threads_of_environment() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const long given = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
  if (given > 0) return static_cast<int>(std::min<long>(given, most_threads));
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  return static_cast<int>(std::thread::hardware_concurrency());
}
#endif

}  // namespace

int thread_count() {
#if defined(_OPENMP)
  const int threads = omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
#else
  static const int threads = threads_of_environment();
#endif
  return std::clamp(threads, 1, most_threads);
}

int threads_for(double seconds_alone) {
  const int all = thread_count();
  return seconds_shared(seconds_alone, all) < seconds_alone ? all : 1;
}

double seconds_on_threads(double seconds_alone) {
  const int threads = threads_for(seconds_alone);
  return threads == 1 ? seconds_alone : seconds_shared(seconds_alone, threads);
}

}  // namespace kronsparse
