// How many threads a piece of work gets.
#pragma once

namespace kronsparse {

/// The threads that OpenMP would use here and now, where a runtime of it is loaded (omp_set_num_threads,
/// torch.set_num_threads; 1 inside a parallel region); else OMP_NUM_THREADS, else the CPUs of this process.
/// The threads are this library's own: thread_pool.hpp.
[[nodiscard]] int thread_count();

/// One thread or all of them: all where they finish earlier what takes one of
/// them so many seconds.
[[nodiscard]] int threads_for(double seconds_alone);

/// How long that takes on threads_for(seconds_alone) threads.
[[nodiscard]] double seconds_on_threads(double seconds_alone);

}  // namespace kronsparse
