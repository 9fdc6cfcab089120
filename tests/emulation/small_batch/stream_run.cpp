#include "small_batch/stream_run.hpp"

#include <cmath>

#include "small_batch/cut_run.hpp"

namespace kronsparse::emulation {

StreamCut run_stream(const ProductCase& one) {
  const cuda::stream::Choice choice = cuda::stream::choose(one.problem, one.gpu());
  if (!std::isfinite(choice.seconds)) throw EmulationError("there is no way to cut it");
  const cuda::stream::Cut& cut = choice.cut;
  const cuda::Product p = cuda::product_of(one.problem);
  const cuda::stream::Arguments arguments =
      run_cut(one, cut, cuda::stream_kernel(one.problem.dtype, cut.samples),
              blocks_of_weights(cut, p) * sample_blocks(cut, p), cut.threads + cuda::stream::producer_threads,
              cut.cluster);
  return {one.problem.dtype, cut, arguments.cut.boxes, arguments.place.bytes, arguments.y_vector};
}

}  // namespace kronsparse::emulation
