// Barriers that compute-sanitizer's racecheck follows.
//
// It knows what every thread says for itself through a barrier in shared memory. It does not know that a
// lane's arrival, after __syncwarp, speaks for its warp; nor what is handed over at a numbered barrier that
// some only signal, or whose threads are others than those of the barrier before. Kernels do all of these,
// because they are faster. In a build for racecheck (KRONSPARSE_RACECHECK) every lane speaks for itself.
#pragma once

namespace kronsparse::cuda {

#ifdef KRONSPARSE_RACECHECK
inline constexpr bool for_racecheck = true;
#else
inline constexpr bool for_racecheck = false;
#endif

/// What a barrier has to expect where so many warps arrive.
[[nodiscard]] __host__ __device__ constexpr int arrivals_of_warps(int warps) {
  return for_racecheck ? warps * 32 : warps;
}

/// Whether this lane arrives for its warp, whose lanes all ask: what they have read and written comes before.
__device__ inline bool speaks_for_warp() {
  if constexpr (for_racecheck) {
    return true;
  } else {
    __syncwarp();
    return threadIdx.x % 32 == 0;
  }
}

}  // namespace kronsparse::cuda
