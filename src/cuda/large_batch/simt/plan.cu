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
#include "cuda/large_batch/simt/kernel.cuh"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

using namespace simt;

template <class K>
Kernel kernel() {
  return kernel_of<K>(reinterpret_cast<const void*>(&multiply_simt<K>));
}

/// The tiles of f32, made for speed. A thread has 64 (48) sums. For every small d there is a tile as wide as
/// d, because rows of d floats are contiguous. Tiles of 6 columns per thread are there for b = 48, 96, 144,
/// ...
std::span<const Kernel> f32_kernels() {
  static const Kernel kernels[] = {
      // d = 1: chunks of 16 l if registers allow, so that a sample's part of a chunk is 64 bytes.
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 8>, 16, true>>(),  // 128 x 128
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 8>, 8, true>>(),   // 256 x 64
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 6>, 16, true>>(),  // 128 x 96
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 6>, 8, true>>(),   // 256 x 48
      kernel<MultiplySimt<Tile<float, 2, 4, 1, 8, 8>, 16, true>>(),
      kernel<MultiplySimt<Tile<float, 2, 4, 1, 8, 6>, 16, true>>(),
      kernel<MultiplySimt<Tile<float, 3, 2, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 3, 2, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 4, 2, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 4, 2, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 6, 1, 1, 8, 8>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 6, 1, 1, 8, 6>, 8, true>>(),
      kernel<MultiplySimt<Tile<float, 8, 1, 1, 8, 8>, 8, true>>(),  // 32 x 64
      kernel<MultiplySimt<Tile<float, 8, 1, 1, 8, 6>, 8, true>>(),  // 32 x 48
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 8>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 8>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 4, 2, 8, 6>, 16, false>>(),
      kernel<MultiplySimt<Tile<float, 1, 8, 1, 8, 6>, 16, false>>(),
  };
  return kernels;
}

/// The other dtypes: one tile for d = 1 and batch_last, one for larger d.
template <class Single, class Grouped>
std::span<const Kernel> plain_kernels() {
  static const Kernel kernels[] = {
      kernel<MultiplySimt<Single, 8, true>>(),
      kernel<MultiplySimt<Grouped, 8, true>>(),
      kernel<MultiplySimt<Single, 8, false>>(),
  };
  return kernels;
}

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
    groups_ = tiles_of(product_.d, kernel_.j);
    output_tiles_ = tiles_of(product_.b, kernel_.n);
    sample_tiles_ = tiles_of(product_.batch, kernel_.m);

    // As many groups of j run side by side as leave their weights in L2.
    const double group_bytes = static_cast<double>(order().bytes) / static_cast<double>(product_.a * groups_);
    const double room = std::max(0.4 * static_cast<double>(facts.l2_bytes), 1.0);
    inner_groups_ = problem.layout == Layout::batch_last
                        ? 1
                        : std::clamp<std::int64_t>(static_cast<std::int64_t>(room / group_bytes), 1, groups_);
    while (groups_ % inner_groups_ != 0) --inner_groups_;

    stages_ = kernel_.depth * kernel_.j <= 16 ? 4 : 3;
    const auto bytes = [this](int stages) {
      return target_bytes +
             std::max(static_cast<std::size_t>(stages) * kernel_.stage_bytes, kernel_.staging_bytes);
    };
    while (stages_ > 2 && bytes(stages_) > facts.shared_bytes) --stages_;
    shared_bytes_ = bytes(stages_);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_.function), facts);
  }

  void run(const Operands& operands, const Weights& weights) const override {
    const DeviceGuard guard(device());
    const std::int64_t chunks = tiles_of(product_.c, kernel_.depth);
    MultiplySimtArgs args{.x = operands.x,
                          .y = operands.y,
                          .bias = problem_.bias ? operands.bias : nullptr,
                          .weights = weights.data,
                          .batch = product_.batch,
                          .b = product_.b,
                          .c = product_.c,
                          .d = product_.d,
                          .x_sample = product_.x_sample,
                          .x_feature = product_.x_feature,
                          .y_sample = product_.y_sample,
                          .y_feature = product_.y_feature,
                          .x_step = product_.d * product_.x_feature,
                          .output_tiles = static_cast<std::uint32_t>(output_tiles_),
                          .inner_groups = static_cast<std::uint32_t>(inner_groups_),
                          .sample_tiles = static_cast<std::uint32_t>(sample_tiles_),
                          .outer_groups = static_cast<std::uint32_t>(groups_ / inner_groups_),
                          .chunks = static_cast<int>(chunks),
                          .last_chunk = static_cast<int>(product_.c - (chunks - 1) * kernel_.depth),
                          .stages = stages_,
                          .activation = problem_.activation};
    // Vectors of four: samples in batch_last; j in batch_first, or outputs if there is one j (neighbouring l
    // of x are then scattered one by one).
    const bool batch_first = kernel_.batch_first;
    args.x_vectors = !batch_first && aligned_16(operands.x) && product_.x_feature % 4 == 0;
    args.y_vectors =
        aligned_16(operands.y) && (batch_first ? product_.y_sample : product_.y_feature) % 4 == 0;
    if (batch_first && kernel_.j == 1)
      args.y_vectors = args.y_vectors && product_.d == 1 && product_.b % 4 == 0;
    if (batch_first && kernel_.j > 1) args.y_vectors = args.y_vectors && product_.d % 4 == 0;

    const auto tiles = static_cast<std::uint64_t>(output_tiles_) * groups_ * sample_tiles_ * product_.a;
    constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
    for (; args.first_tile < tiles; args.first_tile += most)
      launch("multiply_simt", kernel_.function,
             {.blocks = static_cast<unsigned>(std::min(most, tiles - args.first_tile)),
              .threads = kernel_.threads,
              .shared_bytes = shared_bytes_},
             operands.stream, args);
  }

 private:
  Problem problem_;
  Product product_;
  const Kernel& kernel_;
  std::int64_t groups_ = 1, inner_groups_ = 1, output_tiles_ = 1, sample_tiles_ = 1;
  int stages_ = 2;
  std::size_t shared_bytes_ = 0;
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
