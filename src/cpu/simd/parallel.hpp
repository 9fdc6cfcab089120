// Loops over tasks on one or all threads, and the scratch memory of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define KRONSPARSE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KRONSPARSE_ASAN 1
#endif
#endif
#if defined(KRONSPARSE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace kronsparse::simd {

inline constexpr std::size_t cache_line = 64;

struct AlignedDelete {
  void operator()(void* memory) const noexcept { ::operator delete (memory, std::align_val_t{cache_line}); }
};

/// Uninitialised, cache-line aligned memory of a trivial type.
template <class T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;
template <class T>
[[nodiscard]] AlignedArray<T> make_aligned(std::size_t count) {
  // Beyond this, the bytes or what operator new rounds them up to would wrap to a small number.
  if (count > (PTRDIFF_MAX - cache_line) / sizeof(T)) throw std::bad_alloc();
  return AlignedArray<T>(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{cache_line})));
}

/// This thread's scratch memory of at least `bytes`, aligned to a cache line.
/// It belongs to the thread, not to a plan: concurrent runs never share it, and
/// it only ever grows, so repeated runs do not allocate.
[[nodiscard]] inline std::byte* thread_scratch(std::size_t bytes) {
  struct Scratch {
    AlignedArray<std::byte> memory;
    std::size_t capacity = 0;
  };
  thread_local Scratch scratch;
  if (bytes > scratch.capacity) {
    scratch = {};  // before the larger one is asked for
    scratch.memory = make_aligned<std::byte>(bytes);
    scratch.capacity = bytes;
  }
#if defined(KRONSPARSE_ASAN)
  // An earlier plan may have left more: beyond what this one asked for is out of bounds all the same.
  ASAN_UNPOISON_MEMORY_REGION(scratch.memory.get(), scratch.capacity);
  ASAN_POISON_MEMORY_REGION(scratch.memory.get() + bytes, scratch.capacity - bytes);
#endif
  return scratch.memory.get();  // NOLINT(clang-analyzer-cplusplus.NewDelete): it misreads the assignment
}

/// Gives every thread that a run from this thread would use its scratch memory,
/// so that the run need not allocate. `threads` is threads_for(the run).
inline void reserve_scratch(std::size_t bytes, [[maybe_unused]] int threads) {
  static_cast<void>(thread_scratch(bytes));
#if defined(_OPENMP)
  if (threads > 1) {
    // A thread that fails here tries again in the run, where failure is reported.
#pragma omp parallel
    try {
      static_cast<void>(thread_scratch(bytes));
    } catch (const std::bad_alloc&) {
    }
  }
#endif
}

/// Orders this thread's stores around the caches before whatever it stores next. On x86 those are ordered
/// with nothing: neither the end of a parallel region nor a flag set after the run would tell another
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
  const std::int64_t ranges = threads == 1 ? 1 : std::min<std::int64_t>(count, 8 * threads);
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto guarded = [&](const auto& step) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      step();
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  const auto run_range = [&](std::int64_t range) {
    guarded([&] {
      body(count * range / ranges, count * (range + 1) / ranges, thread_scratch(scratch_bytes));
      finish_streaming();
    });
  };
#if defined(_OPENMP)
  if (ranges > 1) {
#pragma omp parallel
    {
      // Every thread's scratch in the first run: which run brings a thread its first range is chance.
      guarded([&] { static_cast<void>(thread_scratch(scratch_bytes)); });
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t range = 0; range < ranges; ++range) run_range(range);
    }
  } else
#endif
  {
    for (std::int64_t range = 0; range < ranges; ++range) run_range(range);
  }
  if (failure) std::rethrow_exception(failure);
}

/// Calls body(task) for every task; for work that needs neither scratch nor order.
template <class Body>
void parallel_each(std::int64_t count, int threads, const Body& body) {
  parallel_ranges(count, threads, 0, [&](std::int64_t first, std::int64_t last, std::byte*) {
    for (std::int64_t task = first; task < last; ++task) body(task);
  });
}

}  // namespace kronsparse::simd
