// Loops over tasks on one or all threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "cpu/scratch.hpp"
#include "cpu/thread_pool.hpp"

namespace kronsparse::simd {

using kronsparse::AlignedArray;
using kronsparse::make_aligned;
using kronsparse::reserve_scratch;

/// Orders this thread's stores around the caches before whatever it stores next. On x86 those are ordered
/// with nothing: neither the end of a run nor a flag set after it would tell another
/// thread that they have arrived. Plain stores need none of this, nor do other architectures, which
/// stream() gives no others. No test shows it: what is late arrives within nanoseconds.
inline void finish_streaming() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

/// Calls body(first, last, scratch) for ranges that together make up the tasks
/// [0, count), on threads_for(them). Ranges, so that a thread knows which task comes
/// next and can prefetch for it; several per thread, so that a thread held up
/// elsewhere does not hold up the run. An exception ends the run and is thrown
/// again here.
template <class Body>
void parallel_ranges(std::int64_t count, int threads, std::size_t scratch_bytes, const Body& body) {
  struct Context {
    std::int64_t count;
    std::int64_t ranges;
    std::size_t scratch_bytes;
    const Body& body;
    mutable std::exception_ptr failure = nullptr;
    mutable std::atomic<bool> has_failed{false};
  };
  threads = std::min(threads, most_threads);
  const std::int64_t ranges = threads == 1 ? 1 : std::min<std::int64_t>(count, 8 * threads);
  const Context context{count, ranges, scratch_bytes, body};
  const auto run_range = [](const void* untyped, std::int64_t range, Scratch& scratch) noexcept {
    const auto& run = *static_cast<const Context*>(untyped);
    if (run.has_failed.load(std::memory_order_relaxed)) return;
    try {
      run.body(run.count * range / run.ranges, run.count * (range + 1) / run.ranges,
               scratch.at_least(run.scratch_bytes));
      finish_streaming();
    } catch (...) {
      if (!run.has_failed.exchange(true)) run.failure = std::current_exception();
    }
  };
  run_ranges(ranges, threads, run_range, &context);
  if (context.failure) std::rethrow_exception(context.failure);
}

/// Calls body(task) for every task; for work that needs neither scratch nor order.
template <class Body>
void parallel_each(std::int64_t count, int threads, const Body& body) {
  parallel_ranges(count, threads, 0, [&](std::int64_t first, std::int64_t last, std::byte*) {
    for (std::int64_t task = first; task < last; ++task) body(task);
  });
}

}  // namespace kronsparse::simd
