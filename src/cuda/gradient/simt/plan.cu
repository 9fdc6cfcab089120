// The kernel `gradient-simt`: the choice of a tile, the cost model and the launch.

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cuda/backend.hpp"
#include "cuda/gradient/simt/kernels.cuh"
#include "cuda/host/launch.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/simt/grid.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

using namespace simt;
using namespace simt::gradient;

std::span<const GradientKernel> kernels_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return f32_kernels();
    case DType::f64:
      return plain_kernels<Tile<double, 1, 2, 2, 8, 4>, Tile<double, 4, 2, 1, 8, 4>>();
    case DType::f16:
      return plain_kernels<Tile<__half, 1, 2, 2, 8, 4>, Tile<__half, 8, 1, 1, 8, 4>>();
    case DType::bf16:
      return plain_kernels<Tile<__nv_bfloat16, 1, 2, 2, 8, 4>, Tile<__nv_bfloat16, 8, 1, 1, 8, 4>>();
    case DType::complex64:
      return plain_kernels<Tile<Complex<float>, 1, 2, 2, 4, 4>, Tile<Complex<float>, 4, 2, 1, 4, 4>>();
    case DType::complex128:
      return plain_kernels<Tile<Complex<double>, 1, 2, 2, 4, 4>, Tile<Complex<double>, 2, 2, 1, 4, 4>>();
  }
  return {};
}

/// Multiplications and additions, padding included, weighted.
double arithmetic(const GradientKernel& kernel, const Product& p, DType dtype,
                  const tuning::GradientSimt& costs) {
  const double sectors = kernel.batch_first ? repeated_sectors(kernel.j, p.d, dtype) : 1;
  return 2.0 * (is_complex(dtype) ? 4 : 1) * static_cast<double>(p.a) * padded(p.batch, kernel.depth) *
         padded(p.b, kernel.m) * padded(p.c, kernel.n) * padded(p.d, kernel.j) * kernel.cost *
         (1 + costs.sectors * (sectors - 1));  // both operands
}

const GradientKernel& choose(const Problem& problem, const tuning::GradientSimt& costs) {
  const Product p = product_of(problem);
  return cheapest(kernels_of(problem.dtype), problem.layout == Layout::batch_first,
                  [&](const GradientKernel& kernel) { return arithmetic(kernel, p, problem.dtype, costs); });
}

double seconds_of(const Problem& problem, const GradientKernel& kernel, const GpuFacts& facts) {
  const Product p = product_of(problem);
  const double blocks = tile_count(kernel, p) * splits_of(kernel, p, facts);
  const double idle = idle_share(facts, blocks);
  const tuning::GradientSimt& costs = tuning_of(facts).gradient_simt.costs;
  const double seconds =
      arithmetic(kernel, p, problem.dtype, costs) * idle / (costs.fma * fma_rate(facts, problem.dtype));
  // As in `simt`: tiles of half types read parts of sectors.
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const double sectors =
      half && problem.layout == Layout::batch_first ? repeated_sectors(kernel.j, p.d, problem.dtype) : 1;
  return costs.start + std::max(seconds, sectors * problem.bytes() /
                                             (best_fma_memory_share * std::max(facts.memory_rate, 1e10)));
}

class GradientSimtExecutor final : public CudaExecutor {
 public:
  GradientSimtExecutor(const Problem& problem, Device device, const GradientKernel& kernel)
      : CudaExecutor(device), product_(product_of(problem)), kernel_(kernel) {
    const DeviceGuard guard(device.index);
    const GpuFacts& facts = gpu(device);
    cut_ = cut_of(product_, kernel_, facts);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_.function), facts);
  }

  void run(const Operands& operands, const Weights& /*weights*/) const override {
    const DeviceGuard guard(device());
    GradientSimtArgs args = arguments_of(product_, kernel_, cut_, operands);
    LaunchShape shape{.threads = kernel_.threads,
                      .shared_bytes = cut_.shared_bytes,
                      .cluster_blocks = static_cast<int>(cut_.splits)};
    const std::uint64_t tiles = cut_.tiles(product_);
    constexpr std::uint64_t most = (std::numeric_limits<std::int32_t>::max() / most_splits) * most_splits;
    for (; args.first_tile < tiles; args.first_tile += most) {
      shape.blocks = static_cast<unsigned>(std::min(most, tiles - args.first_tile));
      launch("gradient_simt", kernel_.function, shape, operands.stream, args);
    }
  }

 private:
  Product product_;
  const GradientKernel& kernel_;
  Cut cut_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (problem.operation != Operation::gradient)
    return refused("computes the gradient of the values, not products with the matrix");
  if (std::string reason = order_refusal({}, packed_as); !reason.empty()) return refused(std::move(reason));
  const GradientKernel& kernel = choose(problem, tuning_of(gpu(device)).gradient_simt.costs);
  return {.refusal = {},
          .seconds = seconds_of(problem, kernel, gpu(device)),
          .packing_seconds = 0,
          .make = [problem, device, &kernel]() -> std::unique_ptr<Executor> {
            return std::make_unique<GradientSimtExecutor>(problem, device, kernel);
          }};
}

}  // namespace

Implementation gradient_simt_implementation() {
  return {
      .name = "gradient-simt",
      .backend = Backend::cuda,
      .summary = "gradient of the values on the FMA units, every dtype, sums of the batch in a fixed order",
      .propose = propose};
}

}  // namespace kronsparse::cuda
