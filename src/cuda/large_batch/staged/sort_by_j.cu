// The kernel that sorts features by j, and back.
#include "cuda/large_batch/staged/sort_by_j.cuh"

namespace kronsparse::cuda {

__global__ void __launch_bounds__(kSortThreads) sort_by_j(const __grid_constant__ SortArguments p) {
  extern __shared__ __align__(16) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  ptx::let_later_kernels_start();
  ptx::wait_for_earlier_kernels();
  const std::uint32_t block = ptx::block_number();
  if (block < p.unsort.tiles) {
    if (p.unsort.in_pairs)
      sorting::unsort_tile<2>(p, p.unsort, block, shared);
    else
      sorting::unsort_tile<1>(p, p.unsort, block, shared);
  } else {
    if (p.sort.in_pairs)
      sorting::sort_tile<2>(p, p.sort, block - p.unsort.tiles, shared);
    else
      sorting::sort_tile<1>(p, p.sort, block - p.unsort.tiles, shared);
  }
}

SortKernel sort_by_j_kernel() { return sort_by_j; }

}  // namespace kronsparse::cuda
