// The threads of the CPU backend: helpers that the process has once, whoever runs.
//
// A run never depends on them. The thread that calls works on its own ranges from the first on; a helper
// that is awake takes some of them away. In the end only ranges are waited for that a helper has begun: one
// that is held up by others' threads, or that could not be created, is not missed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/scratch.hpp"

namespace kronsparse {

/// More than these are never used.
inline constexpr int most_threads = 1024;

/// Computes one range of a run, with memory of the thread that does it.
using RangeFunction = void (*)(const void* context, std::int64_t range, Scratch& scratch) noexcept;

/// Calls function(context, range, scratch) once for each of `ranges` ranges (fewer than 2^31), on this
/// thread and up to `threads` - 1 helpers, which are created now if they are not there. Returns when all are
/// done. Any number of threads may do this at the same time; they share the helpers. A forked child starts
/// helpers of its own.
void run_ranges(std::int64_t ranges, int threads, RangeFunction function, const void* context) noexcept;

/// Creates the helpers of a run on `threads` threads, and gives each of them and this thread `bytes` of
/// scratch, so that the run need not allocate. Throws std::bad_alloc for this thread's alone: helpers ask
/// again in the run. Waits for nobody.
void reserve_scratch(std::size_t bytes, int threads);

/// Helpers of this process.
[[nodiscard]] int helper_count() noexcept;

}  // namespace kronsparse
