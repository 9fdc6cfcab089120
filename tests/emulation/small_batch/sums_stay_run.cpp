#include "small_batch/sums_stay_run.hpp"

#include "cuda/device/epilogue.cuh"
#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

SumsStayCut run_sums_stay(const ProductCase& one, const cuda::sums_stay::Cut& cut) {
  const cuda::sums_stay::Arguments arguments =
      run_cut(one, cut, cuda::sums_stay_kernel(one.problem.dtype, cut.shape),
              blocks_of(cut, cuda::product_of(one.problem)),
              cut.threads() + cuda::sums_stay::producer_threads, cut.splits);
  return {one.problem.dtype,        cut, arguments.boxes, arguments.y_vectors, arguments.y_direct,
          cuda::is_plain(arguments)};
}

}  // namespace kronsparse::emulation
