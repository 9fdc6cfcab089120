#include "gradient/simt_run.hpp"

#include <vector>

#include "cuda/gradient/simt/kernels.cuh"
#include "end_of_shared.hpp"
#include "gradient/gradient_run.hpp"

namespace kronsparse::emulation {
namespace {

using namespace cuda::simt;
namespace gradient = cuda::simt::gradient;

/// The tiles of gradient_simt in `plan.cu`, without those of wide and of complex numbers.
std::span<const gradient::GradientKernel> kernels_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return gradient::f32_kernels();
    case DType::f16:
      return gradient::plain_kernels<Tile<__half, 1, 2, 2, 8, 4>, Tile<__half, 8, 1, 1, 8, 4>>();
    case DType::bf16:
      return gradient::plain_kernels<Tile<__nv_bfloat16, 1, 2, 2, 8, 4>,
                                     Tile<__nv_bfloat16, 8, 1, 1, 8, 4>>();
    default:
      throw EmulationError("operands have no such dtype here");
  }
}

std::vector<const gradient::GradientKernel*> kernels_of(DType dtype, Layout layout) {
  std::vector<const gradient::GradientKernel*> found;
  for (const gradient::GradientKernel& kernel : kernels_of(dtype))
    if (kernel.batch_first == (layout == Layout::batch_first)) found.push_back(&kernel);
  return found;
}

}  // namespace

std::size_t gradient_simt_tiles(DType dtype, Layout layout) { return kernels_of(dtype, layout).size(); }

GradientSimtCut run_gradient_simt(const ProductCase& one, std::size_t tile) {
  const Problem& problem = one.problem;
  problem.validate();
  const gradient::GradientKernel& kernel = *kernels_of(problem.dtype, problem.layout).at(tile);
  const cuda::Product p = cuda::product_of(problem);
  cuda::GpuFacts facts = one.gpu();
  facts.compute_capability = facts.code.compute_capability = 80;  // no clusters
  const gradient::Cut cut = gradient::cut_of(p, kernel, facts);
  if (cut.splits != 1) throw EmulationError("blocks of a cluster reach each other's memory by pointers");
  GradientSimtCut result{problem.dtype, cut.flush_mask >= 0 && p.batch > gradient::flush_samples, false,
                         false, false};
  const EndOfShared end(cut.shared_bytes);
  run_gradient_launch(one, [&](const Operands& operands) {
    const GradientSimtArgs args = gradient::arguments_of(p, kernel, cut, operands);
    result.g_vectors = args.g_vectors;
    result.x_vectors = args.x_vectors;
    result.y_vectors = args.y_vectors;
    const auto function = reinterpret_cast<void (*)(GradientSimtArgs)>(const_cast<void*>(kernel.function));
    return Launch{static_cast<int>(cut.tiles(p)), kernel.threads, static_cast<int>(cut.shared_bytes),
                  [args, function] { function(args); }};
  });
  return result;
}

}  // namespace kronsparse::emulation
