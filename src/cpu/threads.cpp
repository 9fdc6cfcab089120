#include "cpu/threads.hpp"

#include <pthread.h>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace kronsparse {
namespace {

bool in_forked_child = false;

/// From the start, not from our first parallel region: the runtime's threads may be others' doing.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });

/// `threads` threads woken, their work shared, and the last of them waited for.
double seconds_shared(double seconds_alone, int threads) {
  constexpr double seconds_to_wake = 5e-6;
  constexpr double seconds_for_each = 5e-7;
  return seconds_to_wake + (seconds_for_each * threads) + (seconds_alone / threads);
}

}  // namespace

int thread_count() {
#if defined(_OPENMP)
  return in_forked_child || omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
#else
  return 1;
#endif
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
