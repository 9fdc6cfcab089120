// How many threads a piece of work gets.
#pragma once

namespace kronsparse {

/// What OpenMP would use here and now; 1 inside a parallel region, without OpenMP,
/// and in a child that was forked after this library was loaded: the threads are
/// not forked with it, and gcc's runtime would wait for them for ever.
[[nodiscard]] int thread_count();

/// One thread or all of them: all where they finish earlier what takes one of
/// them so many seconds. Nothing between: gcc's runtime ends and starts threads
/// whenever their number changes, which takes longer than a short run.
[[nodiscard]] int threads_for(double seconds_alone);

/// How long that takes on threads_for(seconds_alone) threads.
[[nodiscard]] double seconds_on_threads(double seconds_alone);

}  // namespace kronsparse
