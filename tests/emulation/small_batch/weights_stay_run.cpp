#include "small_batch/weights_stay_run.hpp"

#include "cuda/device/epilogue.cuh"
#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

WeightsStayCut run_weights_stay(const ProductCase& one, const cuda::weights_stay::Cut& cut) {
  const cuda::weights_stay::Arguments arguments =
      run_cut(one, cut, cuda::weights_stay_kernel(one.problem.dtype, cut.shape),
              blocks_of(cut, cuda::product_of(one.problem)), cuda::weights_stay::threads);
  return {one.problem.dtype, cut, arguments.boxes, arguments.y_vectors, cuda::is_plain(arguments)};
}

}  // namespace kronsparse::emulation
