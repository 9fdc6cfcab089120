// The kernel `simt`: the choice of a tile, the cost model and the launch.

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cuda/backend.hpp"
#include "cuda/host/launch.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/simt/grid.hpp"
#include "cuda/large_batch/simt/kernels.cuh"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

using namespace simt;

std::span<const Kernel> kernels_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return f32_kernels();
    case DType::f64:
      return plain_kernels<Tile<double, 1, 4, 2, 8, 4>, Tile<double, 4, 2, 1, 8, 4>>();
    case DType::f16:
      return plain_kernels<Tile<__half, 1, 4, 2, 8, 8>, Tile<__half, 8, 1, 1, 8, 8>>();
    case DType::bf16:
      return plain_kernels<Tile<__nv_bfloat16, 1, 4, 2, 8, 8>, Tile<__nv_bfloat16, 8, 1, 1, 8, 8>>();
    case DType::complex64:
      return plain_kernels<Tile<Complex<float>, 1, 4, 2, 4, 4>, Tile<Complex<float>, 4, 2, 1, 4, 4>>();
    case DType::complex128:  // half the threads: sm_75 has only 64 KB of shared memory
      return plain_kernels<Tile<Complex<double>, 1, 2, 2, 4, 4>, Tile<Complex<double>, 2, 2, 1, 4, 4>>();
  }
  return {};
}

/// Multiplications and additions, padding included, weighted.
double arithmetic(const Kernel& kernel, const Product& p, DType dtype, const tuning::Simt& costs) {
  const double sectors = kernel.batch_first ? repeated_sectors(kernel.j, p.d, dtype) : 1;
  return 2.0 * (is_complex(dtype) ? 4 : 1) * static_cast<double>(p.a) * padded(p.batch, kernel.m) *
         padded(p.b, kernel.n) * padded(p.c, kernel.depth) * padded(p.d, kernel.j) * kernel.cost *
         (1 + costs.sectors * (sectors - 1));
}

const Kernel& choose(const Problem& problem, const tuning::Simt& costs) {
  const Product p = product_of(problem);
  return cheapest(kernels_of(problem.dtype), problem.layout == Layout::batch_first,
                  [&](const Kernel& kernel) { return arithmetic(kernel, p, problem.dtype, costs); });
}

double seconds_of(const Problem& problem, const Kernel& kernel, const GpuFacts& facts) {
  const Product p = product_of(problem);
  const double blocks = static_cast<double>(p.a) * static_cast<double>(tiles_of(p.d, kernel.j)) *
                        static_cast<double>(tiles_of(p.b, kernel.n)) *
                        static_cast<double>(tiles_of(p.batch, kernel.m));
  const double idle = idle_share(facts, blocks);
  // Shares of the FMA units' rate and of the copy rate, if there are blocks for all multiprocessors.
  const tuning::Simt& costs = tuning_of(facts).simt.costs;
  const bool batch_first = problem.layout == Layout::batch_first;
  const double fma_share = batch_first ? costs.fma_first : costs.fma_last;
  const double memory_share = std::min(
      best_fma_memory_share, (batch_first ? costs.memory_first : costs.memory_last) * clocks_per_byte(facts));
  const double seconds =
      arithmetic(kernel, p, problem.dtype, costs) * idle / (fma_share * fma_rate(facts, problem.dtype));
  // Tiles of half types read parts of sectors; on an H200 their arithmetic takes longer than that.
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const double sectors = half && batch_first ? repeated_sectors(kernel.j, p.d, problem.dtype) : 1;
  // If models are this near to each other and nothing was measured, tensor cores have the benefit of the
  // doubt.
  const double doubt =
      half && facts.compute_capability != tuning_of(facts).gpu.compute_capability ? costs.doubt : 1;
  return costs.start + doubt * std::max(seconds, sectors * problem.bytes() /
                                                     (memory_share * std::max(facts.memory_rate, 1e10)));
}

WidenTask task_of(const Problem& problem, const Kernel& kernel) {
  const Product p = product_of(problem);
  return widen_task(problem, tiles_of(p.b, kernel.n), kernel.n, tiles_of(p.d, kernel.j), kernel.j);
}

std::size_t packed_element_bytes(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? 4 : size_of(dtype);
}

PackedOrder order_of(const Problem& problem, const Kernel& kernel) {
  return {.family = "simt",
          .numbers = {static_cast<std::int64_t>(problem.operation == Operation::adjoint &&
                                                        !is_complex(problem.dtype)
                                                    ? Operation::transposed
                                                    : problem.operation),
                      kernel.n, kernel.j},
          .bytes = static_cast<std::size_t>(task_of(problem, kernel).elements) *
                   packed_element_bytes(problem.dtype)};
}

class MultiplySimtExecutor final : public CudaExecutor {
 public:
  MultiplySimtExecutor(const Problem& problem, Device device, const Kernel& kernel)
      : CudaExecutor(device, order_of(problem, kernel), task_of(problem, kernel)),
        problem_(problem),
        product_(product_of(problem)),
        kernel_(kernel) {
    const DeviceGuard guard(device.index);
    const GpuFacts& facts = gpu(device);
    cut_ = cut_of(product_, kernel_, order().bytes, facts);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_.function), facts);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    MultiplySimtArgs args = arguments_of(problem_, product_, kernel_, cut_, operands, weights.data);
    const std::uint64_t tiles = cut_.tiles(product_);
    constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
    for (; args.first_tile < tiles; args.first_tile += most)
      launch("multiply_simt", kernel_.function,
             {.blocks = static_cast<unsigned>(std::min(most, tiles - args.first_tile)),
              .threads = kernel_.threads,
              .shared_bytes = cut_.shared_bytes},
             operands.stream, args);
  }

 private:
  Problem problem_;
  Product product_;
  const Kernel& kernel_;
  Cut cut_;
};

Proposal propose(const Problem& problem, Device device, const PackedOrder* packed_as) {
  if (problem.operation == Operation::gradient)
    return refused("computes products with the matrix, not the gradient of its values");
  const GpuFacts& facts = gpu(device);
  const Kernel& kernel = choose(problem, tuning_of(facts).simt.costs);
  const PackedOrder order = order_of(problem, kernel);
  if (std::string reason = order_refusal(order, packed_as); !reason.empty())
    return refused(std::move(reason));
  return {
      .refusal = {},
      .seconds = seconds_of(problem, kernel, facts),
      .packing_seconds = tuning_of(facts).packing.costs.by_elements * packing_seconds(facts, problem, order),
      .make = [problem, device, &kernel]() -> std::unique_ptr<Executor> {
        return std::make_unique<MultiplySimtExecutor>(problem, device, kernel);
      }};
}

}  // namespace

Implementation simt_implementation() {
  return {.name = "simt",
          .backend = Backend::cuda,
          .summary = "register tiles on the FMA units, every dtype, X and Y read and written in place",
          .propose = propose};
}

}  // namespace kronsparse::cuda
