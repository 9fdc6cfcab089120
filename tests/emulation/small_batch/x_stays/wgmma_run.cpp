#include "small_batch/x_stays/wgmma_run.hpp"

#include <cmath>

#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

XStaysWgmmaCut run_x_stays_wgmma(const ProductCase& one) {
  const cuda::x_stays_wgmma::Choice choice = cuda::x_stays_wgmma::choose(one.problem, one.gpu());
  if (!std::isfinite(choice.seconds)) throw EmulationError("there is no way to cut it");
  const cuda::x_stays_wgmma::Cut& cut = choice.cut;
  const cuda::Product p = cuda::product_of(one.problem);
  const cuda::x_stays_wgmma::Arguments arguments =
      run_cut(one, cut, cuda::x_stays_wgmma_kernel(one.problem.dtype, cut.samples),
              blocks_of_weights(cut, p) * sample_blocks(cut, p),
              cut.threads + cuda::x_stays_wgmma::producer_threads, cut.cluster);
  return {one.problem.dtype, cut, arguments.cut.boxes, arguments.place.bytes, arguments.y_vector};
}

}  // namespace kronsparse::emulation
