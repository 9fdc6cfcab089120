#include "small_batch/direct_run.hpp"

#include "cuda/device/epilogue.cuh"
#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

DirectCut run_direct(const ProductCase& one, const cuda::direct::Cut& cut) {
  const cuda::direct::Arguments arguments =
      run_cut(one, cut, cuda::direct_kernel(one.problem.dtype, cut.shape),
              blocks_of(cut, cuda::product_of(one.problem)), cut.warps() * 32);
  return {one.problem.dtype, cut, arguments.x_vectors, arguments.y_vectors, cuda::is_plain(arguments)};
}

}  // namespace kronsparse::emulation
