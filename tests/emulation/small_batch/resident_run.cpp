#include "small_batch/resident_run.hpp"

#include "cuda/device/epilogue.cuh"
#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

ResidentCut run_resident(const ProductCase& one, const cuda::resident::Cut& cut) {
  const cuda::resident::Arguments arguments =
      run_cut(one, cut, cuda::resident_kernel(one.problem.dtype, cut.shape),
              blocks_of(cut, cuda::product_of(one.problem)), cuda::resident::threads);
  return {one.problem.dtype, cut, arguments.boxes, arguments.y_vectors, cuda::is_plain(arguments)};
}

}  // namespace kronsparse::emulation
