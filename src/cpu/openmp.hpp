// The number of threads that OpenMP is set to, without using it.
#pragma once

namespace kronsparse {

/// Threads that a parallel region of OpenMP would have if it began here and now: 1 inside of one, 0 where no
/// runtime of OpenMP is loaded. There may be several, as PyTorch brings its own: the fewest of what they say,
/// so that omp_set_num_threads and torch.set_num_threads are heard, whoever called them.
[[nodiscard]] int openmp_threads() noexcept;

}  // namespace kronsparse
