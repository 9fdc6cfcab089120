#include "large_batch/simt_run.hpp"

#include <vector>

#include "cuda/large_batch/simt/kernels.cuh"
#include "end_of_shared.hpp"

namespace kronsparse::emulation {
namespace {

using namespace cuda::simt;

/// The tiles of multiply_simt in `plan.cu`, without those of wide and of complex numbers.
std::span<const Kernel> kernels_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return f32_kernels();
    case DType::f16:
      return plain_kernels<Tile<__half, 1, 4, 2, 8, 8>, Tile<__half, 8, 1, 1, 8, 8>>();
    case DType::bf16:
      return plain_kernels<Tile<__nv_bfloat16, 1, 4, 2, 8, 8>, Tile<__nv_bfloat16, 8, 1, 1, 8, 8>>();
    default:
      throw EmulationError("operands have no such dtype here");
  }
}

std::vector<const Kernel*> kernels_of(DType dtype, Layout layout) {
  std::vector<const Kernel*> found;
  for (const Kernel& kernel : kernels_of(dtype))
    if (kernel.batch_first == (layout == Layout::batch_first)) found.push_back(&kernel);
  return found;
}

}  // namespace

std::size_t simt_tiles(DType dtype, Layout layout) { return kernels_of(dtype, layout).size(); }

SimtCut run_simt(const ProductCase& one, std::size_t tile) {
  const Problem& problem = one.problem;
  const Kernel& kernel = *kernels_of(problem.dtype, problem.layout).at(tile);
  const cuda::Product p = cuda::product_of(problem);
  const std::int64_t groups = tiles_of(p.d, kernel.j), outputs = tiles_of(p.b, kernel.n);
  // (i, group of j, tile of outputs, l, j, output)
  const PackedOrder order{
      .elements = p.a * groups * outputs * p.c * kernel.j * kernel.n,
      .place =
          [&](std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t j) {
            const std::int64_t block = (i * groups + j / kernel.j) * outputs + k / kernel.n;
            return ((block * p.c + l) * kernel.j + j % kernel.j) * kernel.n + k % kernel.n;
          },
      .in_floats = true};
  const Cut cut = cut_of(p, kernel, static_cast<std::size_t>(order.elements) * 4, one.gpu());
  SimtCut result{problem.dtype, tile, p.c > kernel.depth, false, false};
  const EndOfShared end(cut.shared_bytes);
  run_product(one, order, false, [&](const Operands& operands, const void* weights) {
    const MultiplySimtArgs args = arguments_of(problem, p, kernel, cut, operands, weights);
    result.x_vectors = args.x_vectors;
    result.y_vectors = args.y_vectors;
    const auto function = reinterpret_cast<void (*)(MultiplySimtArgs)>(const_cast<void*>(kernel.function));
    return Launch{static_cast<int>(cut.tiles(p)), kernel.threads, static_cast<int>(cut.shared_bytes),
                  [args, function] { function(args); }};
  });
  return result;
}

}  // namespace kronsparse::emulation
