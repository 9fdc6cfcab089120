// The kernel `gradient-simt`: the choice of a tile, the cost model and the launch.

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cuda/backend.hpp"
#include "cuda/gradient/simt/kernel.cuh"
#include "cuda/host/launch.hpp"
#include "cuda/host/product.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/large_batch/simt/grid.hpp"
#include "cuda/packing/packing.hpp"
#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda {
namespace {

using namespace simt;

/// Samples after which single-precision sums are added to the totals. Rounding errors then grow with the
/// square root of this, not of the batch.
constexpr int flush_samples = 512;
static_assert((flush_samples & (flush_samples - 1)) == 0);
/// Blocks of a cluster that every Hopper GPU can run.
constexpr std::uint32_t most_splits = 8;
/// A block's part of the batch is at least this long.
constexpr std::int64_t least_samples = 128;

/// And what gradients need beside it.
struct GradientKernel : Kernel {
  int blocks;  ///< on a multiprocessor
  std::size_t totals_bytes;
};

template <class K>
GradientKernel kernel() {
  return {kernel_of<K>(reinterpret_cast<const void*>(&gradient_simt<K>)), K::blocks, K::totals_bytes};
}

/// f32: a large tile and one for b and c up to 64, and for d > 1 tiles of 2, 4 and 8 neighbouring j. Chunks
/// are short if J is large: the totals take up to 64 KB, and two blocks share a multiprocessor.
std::span<const GradientKernel> f32_kernels() {
  static const GradientKernel kernels[] = {
      kernel<GradientSimt<Tile<float, 1, 4, 2, 8, 8>, 16, true>>(),  // 128 x 128
      kernel<GradientSimt<Tile<float, 1, 2, 2, 8, 4>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 2, 2, 1, 8, 8>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 4, 2, 1, 8, 8>, 8, true>>(),   // 64 x 64
      kernel<GradientSimt<Tile<float, 8, 1, 1, 8, 8>, 4, true>>(),   // 32 x 64
      kernel<GradientSimt<Tile<float, 1, 4, 2, 8, 8>, 16, false>>(),
      kernel<GradientSimt<Tile<float, 1, 2, 2, 8, 4>, 8, false>>(),
  };
  return kernels;
}

/// The other dtypes: one tile for d = 1 and batch_last, one for larger d.
template <class Single, class Grouped>
std::span<const GradientKernel> plain_kernels() {
  static const GradientKernel kernels[] = {
      kernel<GradientSimt<Single, 8, true>>(),
      kernel<GradientSimt<Grouped, 4, true>>(),
      kernel<GradientSimt<Single, 8, false>>(),
  };
  return kernels;
}

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

double tile_count(const GradientKernel& kernel, const Product& p) {
  return static_cast<double>(p.a) * static_cast<double>(tiles_of(p.b, kernel.m)) *
         static_cast<double>(tiles_of(p.c, kernel.n)) * static_cast<double>(tiles_of(p.d, kernel.j));
}

const GradientKernel& choose(const Problem& problem, const tuning::GradientSimt& costs) {
  const Product p = product_of(problem);
  return cheapest(kernels_of(problem.dtype), problem.layout == Layout::batch_first,
                  [&](const GradientKernel& kernel) { return arithmetic(kernel, p, problem.dtype, costs); });
}

/// Parts of the batch: the power of two that fills the GPU, as far as possible.
std::uint32_t splits_of(const GradientKernel& kernel, const Product& p, const GpuFacts& facts) {
  if (!facts.has_clusters()) return 1;
  const double slots = static_cast<double>(kernel.blocks) * facts.multiprocessors;
  std::uint32_t splits = 1;
  while (splits < most_splits && tile_count(kernel, p) * splits * 2 <= slots &&
         p.batch / (splits * 2) >= least_samples)
    splits *= 2;
  return splits;
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
    splits_ = splits_of(kernel_, product_, facts);
    // Two buffers hide the latency if a chunk is 8 or 16 deep; three do if it is shorter.
    stages_ = kernel_.depth >= 8 ? 2 : 3;
    const std::size_t pipeline = static_cast<std::size_t>(stages_) * kernel_.stage_bytes;
    totals_at_ = target_bytes + std::max(pipeline, kernel_.staging_bytes);
    // A GPU with too little shared memory (sm_75) goes without totals.
    const bool totals = kernel_.totals_bytes != 0 && totals_at_ + kernel_.totals_bytes <= facts.shared_bytes;
    flush_mask_ = totals ? flush_samples / kernel_.depth - 1 : -1;
    shared_bytes_ = totals_at_ + (totals ? kernel_.totals_bytes : 0);
    allow_shared_memory(reinterpret_cast<const void*>(kernel_.function), facts);
  }

  void run(const Operands& operands, const Weights& /*weights*/) const override {
    const DeviceGuard guard(device());
    const Product& p = product_;
    const std::int64_t l_tiles = tiles_of(p.c, kernel_.n), k_tiles = tiles_of(p.b, kernel_.m);
    const std::int64_t groups = tiles_of(p.d, kernel_.j);
    GradientSimtArgs args{.g = operands.g,
                          .x = operands.x,
                          .y = operands.y,
                          .batch = p.batch,
                          .b = p.b,
                          .c = p.c,
                          .d = p.d,
                          .x_sample = p.x_sample,
                          .x_feature = p.x_feature,
                          .g_sample = p.y_sample,
                          .g_feature = p.y_feature,
                          .x_row = p.d * p.x_feature,
                          .g_row = p.d * p.y_feature,
                          .splits = splits_,
                          .l_tiles = static_cast<std::uint32_t>(l_tiles),
                          .k_tiles = static_cast<std::uint32_t>(k_tiles),
                          .groups = static_cast<std::uint32_t>(groups),
                          .chunks = static_cast<int>(tiles_of(tiles_of(p.batch, kernel_.depth), splits_)),
                          .flush_mask = flush_mask_,
                          .stages = stages_,
                          .totals_at = static_cast<int>(totals_at_)};
    // Vectors of four: outputs or inputs of a sample if there is one j; for y also j.
    const bool alone = kernel_.batch_first && p.d == 1;
    args.g_vectors = alone && aligned_16(operands.g) && p.y_sample % 4 == 0 && p.b % 4 == 0;
    args.x_vectors = alone && aligned_16(operands.x) && p.x_sample % 4 == 0 && p.c % 4 == 0;
    args.y_vectors = aligned_16(operands.y) &&
                     (kernel_.j == 1 ? p.d == 1 && p.c % 4 == 0 : kernel_.j % 4 == 0 && p.d % 4 == 0);

    LaunchShape shape{.threads = kernel_.threads,
                      .shared_bytes = shared_bytes_,
                      .cluster_blocks = static_cast<int>(splits_)};
    const auto tiles =
        static_cast<std::uint64_t>(p.a * groups) * static_cast<std::uint64_t>(k_tiles * l_tiles) * splits_;
    constexpr std::uint64_t most = (std::numeric_limits<std::int32_t>::max() / most_splits) * most_splits;
    for (; args.first_tile < tiles; args.first_tile += most) {
      shape.blocks = static_cast<unsigned>(std::min(most, tiles - args.first_tile));
      launch("gradient_simt", kernel_.function, shape, operands.stream, args);
    }
  }

 private:
  Product product_;
  const GradientKernel& kernel_;
  std::uint32_t splits_ = 1;
  int stages_ = 2, flush_mask_ = -1;
  std::size_t totals_at_ = 0, shared_bytes_ = 0;
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
