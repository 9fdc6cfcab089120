// Barriers in a form that compute-sanitizer's racecheck follows.
//
// racecheck follows barriers in shared memory where every thread arrives for itself. It does not follow one
// lane that arrives for its warp after __syncwarp, nor numbered barriers at which some threads only arrive,
// or whose threads change from one use to the next. The kernels do all of these, because they are faster. In
// a build for racecheck (KRONSPARSE_RACECHECK) every lane arrives for itself.
#pragma once

namespace kronsparse::cuda {

#ifdef KRONSPARSE_RACECHECK
inline constexpr bool for_racecheck = true;
#else
inline constexpr bool for_racecheck = false;
#endif

/// The arrivals that a barrier must expect when this many warps arrive.
[[nodiscard]] __host__ __device__ constexpr int arrivals_of_warps(int warps) {
  return for_racecheck ? warps * 32 : warps;
}

/// Whether this lane arrives for its warp. All lanes of the warp call it, and their reads and writes come
/// before.
__device__ inline bool speaks_for_warp() {
  if constexpr (for_racecheck) {
    return true;
  } else {
    __syncwarp();
    return threadIdx.x % 32 == 0;
  }
}

}  // namespace kronsparse::cuda
