#include "small_batch/narrow_run.hpp"

#include "cuda/device/epilogue.cuh"
#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

NarrowCut run_narrow(const ProductCase& one, const cuda::narrow::Cut& cut) {
  const cuda::narrow::Arguments arguments =
      run_cut(one, cut, cuda::narrow_kernel(one.problem.dtype, cut.shape),
              blocks_of(cut, cuda::product_of(one.problem)), cut.threads() + cuda::narrow::producer_threads,
              cut.splits);
  return {one.problem.dtype,        cut, arguments.boxes, arguments.y_vectors, arguments.y_direct,
          cuda::is_plain(arguments)};
}

}  // namespace kronsparse::emulation
