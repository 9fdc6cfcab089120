#include "held_run.hpp"

#include "cut_run.hpp"

namespace kronsparse::emulation {

HeldCut run_held(const ProductCase& one, const cuda::held::Cut& cut) {
  const auto run = [&](bool ordinary) {
    return run_cut(one, cut, cuda::held_kernel(one.problem.dtype, cut.shape, ordinary),
                   blocks_of(cut, cuda::product_of(one.problem)), cuda::held::threads);
  };
  const cuda::held::Arguments arguments = run(false);
  if (is_ordinary(arguments)) run(true);
  return {one.problem.dtype, cut, arguments.boxes, arguments.y_vectors, is_ordinary(arguments)};
}

}  // namespace kronsparse::emulation
