// The kernel `gradient-simt`: the gradient of the values on the FMA units, for every dtype.
//
// For J neighbouring j a block computes a tile of (M outputs k, N inputs l), summed over the batch
// (large_batch/simt/tiles.cuh). g and x pass through a pipeline of stages in shared memory; sums stay in
// registers.
//
// If there are fewer tiles than multiprocessors, the blocks of a cluster split the batch and add up their
// sums through distributed shared memory, in the order of their ranks: two runs give the same bits.
#pragma once

#include "cuda/large_batch/simt/store.cuh"

#if __CUDA_ARCH__ >= 900
#include <cooperative_groups.h>
#endif

namespace kronsparse::cuda::simt {

struct GradientSimtArgs {
  const void* g = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t batch = 0, b = 0, c = 0, d = 0;
  std::int64_t x_sample = 0, x_feature = 0, g_sample = 0, g_feature = 0;
  std::int64_t x_row = 0, g_row = 0;  ///< d features: from one l, or k, to the next
  /// Tiles in the order in which they run, the first fastest; then i.
  std::uint32_t splits = 1, l_tiles = 1, k_tiles = 1, groups = 1;
  std::uint64_t first_tile = 0;  ///< first tile of this launch
  int chunks = 1;                ///< chunks of samples in one split
  int flush_mask = -1;           ///< sums are added to the totals after chunks that have all of these bits;
                                 ///< -1: no totals
  int stages = 2;
  int totals_at = 0;  ///< offset in shared memory: after the pipeline and the staging, which share theirs
  bool g_vectors = false, x_vectors = false, y_vectors = false;  ///< whether 16-byte accesses are aligned
};

/// The blocks of a cluster; a block is alone before Hopper.
struct Cluster {
#if __CUDA_ARCH__ >= 900
  __device__ static int rank() { return static_cast<int>(cooperative_groups::this_cluster().block_rank()); }
  __device__ static void sync() { cooperative_groups::this_cluster().sync(); }
  template <class Sum>
  __device__ static const Sum* remote(const Sum* shared, int rank) {
    return cooperative_groups::this_cluster().map_shared_rank(shared, rank);
  }
#else
  __device__ static int rank() { return 0; }
  __device__ static void sync() {}
  template <class Sum>
  __device__ static const Sum* remote(const Sum* shared, int) {
    return shared;
  }
#endif
};

/// Every constant that follows from a tile, a depth and a layout.
template <class Tile_, int Depth_, bool BatchFirst_>
struct GradientSimt {
  using Tile = Tile_;
  using T = typename Tile::T;
  using Sum = typename Tile::Sum;
  static constexpr int Depth = Depth_;
  static constexpr bool BatchFirst = BatchFirst_;
  // The depth is the batch. In batch_last neighbours in memory are samples.
  using G = Operand<T, Tile::M, Depth, Tile::J, Tile::threads, !BatchFirst>;
  struct X : Operand<T, Tile::N, Depth, Tile::J, Tile::threads, !BatchFirst> {
    static constexpr bool conjugated = true;
    static constexpr bool read_ahead = true;
  };
  static_assert(BatchFirst || Tile::J == 1);
  static_assert(Tile::TN % 4 == 0, "a pair of columns would be permuted across vectors");

  static constexpr int stage_elements = G::elements + X::elements;
  static constexpr std::size_t stage_bytes = sizeof(Sum) * stage_elements;
  static constexpr std::size_t staging_bytes = Staging<Tile, false>::bytes;
  static_assert(stage_bytes % 16 == 0 && staging_bytes % 16 == 0);

  // Single-precision sums of a long batch are kept short: at intervals they are added to totals, which lie in
  // shared memory as [vector][thread].
  static constexpr bool has_totals = sizeof(typename RealOf<Sum>::type) == 4;
  static constexpr int run = 16 / static_cast<int>(sizeof(Sum));
  static constexpr int runs = Tile::TM * Tile::TN / run;
  static constexpr std::size_t totals_bytes = has_totals ? std::size_t{16} * runs * Tile::threads : 0;
  static constexpr int blocks = has_totals ? 2 : 1;

  /// Adds the totals to the sums and, unless it is the last time, stores them as the new totals.
  __device__ static void flush(Sum (&sums)[Tile::TM][Tile::TN], Run<Sum, run>* totals, bool last) {
#pragma unroll
    for (int r = 0; r < runs; ++r) {
      Run<Sum, run>& total = totals[r * Tile::threads + static_cast<int>(threadIdx.x)];
      Run<Sum, run> value = total;
#pragma unroll
      for (int v = 0; v < run; ++v) {
        Sum& sum = sums[(r * run + v) / Tile::TN][(r * run + v) % Tile::TN];
        value.value[v] = plus(value.value[v], sum);
        sum = last ? value.value[v] : Sum{};
      }
      if (!last) total = value;
      asm volatile("" ::: "memory");  // one after the other: there are no registers for more
    }
  }
};

template <class K>
__global__ void __launch_bounds__(K::Tile::threads, K::blocks)
    gradient_simt(const __grid_constant__ GradientSimtArgs args) {
  using Tile = typename K::Tile;
  using T = typename K::T;
  using Sum = typename K::Sum;
  using G = typename K::G;
  using X = typename K::X;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& waiting = *reinterpret_cast<Target<T>*>(shared_bytes);
  Sum* const shared =
      reinterpret_cast<Sum*>(shared_bytes + target_bytes);  // [stages][g then x], then staging

  // The block's tile, and its part of the batch.
  std::uint64_t tile = args.first_tile + blockIdx.x;
  const auto rank = static_cast<int>(take_digit(tile, args.splits));
  const std::int64_t l0 = static_cast<std::int64_t>(take_digit(tile, args.l_tiles)) * Tile::N;
  const std::int64_t k0 = static_cast<std::int64_t>(take_digit(tile, args.k_tiles)) * Tile::M;
  const std::int64_t j0 = static_cast<std::int64_t>(take_digit(tile, args.groups)) * Tile::J;
  const auto i = static_cast<std::int64_t>(tile);
  const int js = extent(args.d, j0, Tile::J);
  if (threadIdx.x == 0)
    waiting = {.start = static_cast<T*>(args.y) + ((i * args.b + k0) * args.c + l0) * args.d + j0,
               .bias = nullptr,
               .row_stride = args.c * args.d,
               .column_stride = args.d,
               .bias_stride = 0,
               .rows = extent(args.b, k0, Tile::M),
               .columns = extent(args.c, l0, Tile::N),
               .js = js,
               .activation = Activation::none,
               .vectors = args.y_vectors};
  const std::int64_t n0 = static_cast<std::int64_t>(rank) * args.chunks * K::Depth;
  // At most args.chunks chunks of the batch from n0 on; the last may be short.
  const std::int64_t samples = args.batch - n0;
  const int chunks = samples <= 0 ? 0 : extent((samples + K::Depth - 1) / K::Depth, 0, args.chunks);
  const int last_chunk = extent(samples, static_cast<std::int64_t>(chunks - 1) * K::Depth, K::Depth);

  const T* const g =
      static_cast<const T*>(args.g) + n0 * args.g_sample + ((i * args.b + k0) * args.d + j0) * args.g_feature;
  const T* const x =
      static_cast<const T*>(args.x) + n0 * args.x_sample + ((i * args.c + l0) * args.d + j0) * args.x_feature;
  OperandLoader<G> g_loader(g, args.g_row, args.g_sample, args.b - k0, js, args.g_vectors);
  OperandLoader<X> x_loader(x, args.x_row, args.x_sample, args.c - l0, js, args.x_vectors);

  const Place<Tile> place;
  const int left_at = place.j * G::plane + place.row();
  const int right_at = G::elements + place.j * X::plane + place.column();
  Sum sums[Tile::TM][Tile::TN] = {};  // (k, l)
  auto* const totals = reinterpret_cast<Run<Sum, K::run>*>(shared_bytes + args.totals_at);
  const bool flushes = K::has_totals && args.flush_mask != -1;
  if (flushes) {
    for (int r = 0; r < K::runs; ++r) totals[r * Tile::threads + static_cast<int>(threadIdx.x)] = {};
  }
  run_pipeline(
      chunks, args.stages,
      [&](int chunk, int stage) {
        const int left = chunk + 1 == chunks ? last_chunk : K::Depth;
        Sum* const buffer = shared + stage * K::stage_elements;
        g_loader.load(buffer, left);
        x_loader.load(buffer + G::elements, left);
      },
      [&](int chunk, int stage) {
        const Sum* const buffer = shared + stage * K::stage_elements;
        add_products<Tile, G, X>(sums, buffer + left_at, buffer + right_at, nullptr);
        if (flushes && (chunk & args.flush_mask) == args.flush_mask) K::flush(sums, totals, false);
      });
  if (flushes) K::flush(sums, totals, true);

  const Target<T> target = waiting;
  const auto splits = static_cast<int>(args.splits);
  if (splits == 1) {
    store_tile<Tile, false>(sums, shared, target);
    return;
  }
  // Every block publishes its sums to the others and finishes every splits-th row.
#pragma unroll 1
  for (int pass = 0; pass < Tile::passes; ++pass) {
    if (pass == 0) {
      Staging<Tile, false>::put(shared, sums, 0, place);
    } else {
      Staging<Tile, false>::put(shared, sums, Tile::passes - 1, place);
    }
    Cluster::sync();
    store_rows<Tile, 1, false>(target, pass, Cluster::rank(), splits, [&](int offset) {
      Sum sum = Cluster::remote(shared, 0)[offset];
      for (int other = 1; other < splits; ++other) sum = plus(sum, Cluster::remote(shared, other)[offset]);
      return sum;
    });
    Cluster::sync();  // nobody reads this block's shared memory any more
  }
}

}  // namespace kronsparse::cuda::simt
