// The kernel `simt`: multiplication on the FMA units, for every dtype.
//
// A block computes J neighbouring j, M samples and N outputs (tiles.cuh). Chunks of l pass through a pipeline
// of stages in shared memory, x scattered to (j, depth, row) and weights in the order in which they are
// packed: (l, j, output). Each thread keeps a tile of sums in registers. Sums leave through shared memory, so
// that stores are contiguous (store.cuh).
#pragma once

#include "cuda/large_batch/simt/store.cuh"

namespace kronsparse::cuda::simt {

struct MultiplySimtArgs {
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;
  const void* weights = nullptr;  ///< packed
  std::int64_t batch = 0, b = 0, c = 0, d = 0;
  std::int64_t x_sample = 0, x_feature = 0, y_sample = 0, y_feature = 0;
  std::int64_t x_step = 0;  ///< d features: from one l to the next
  /// Tiles in the order in which they run, the first fastest: tiles of outputs (they read the same samples),
  /// some groups of j (they share cache lines), tiles of samples, the other groups, i.
  std::uint32_t output_tiles = 1, inner_groups = 1, sample_tiles = 1, outer_groups = 1;
  std::uint64_t first_tile = 0;  ///< first tile of this launch
  int chunks = 1;                ///< chunks of l
  int last_chunk = 1;            ///< its depth
  int stages = 2;                ///< buffers of the pipeline, 2 to 4
  Activation activation = Activation::none;
  bool x_vectors = false, y_vectors = false;  ///< whether 16-byte accesses are aligned
};

/// Every constant that follows from a tile, a depth and a layout.
template <class Tile_, int Depth_, bool BatchFirst_>
struct MultiplySimt {
  using Tile = Tile_;
  using T = typename Tile::T;
  using Sum = typename Tile::Sum;
  static constexpr int Depth = Depth_;
  static constexpr bool BatchFirst = BatchFirst_;
  // Neighbours in memory are (l, j) of a sample in batch_first, and samples in batch_last.
  using X = Operand<T, Tile::M, Depth, Tile::J, Tile::threads, BatchFirst>;
  static_assert(BatchFirst || Tile::J == 1);

  /// Packed weights of one block, (l, j, output). A chunk is contiguous.
  struct Weights {
    static constexpr int pitch = Tile::J * Tile::N;
    static constexpr int elements = Depth * pitch;
    static constexpr bool conjugated = false;  // packing has done it
    static constexpr bool read_ahead = true;
    __device__ static constexpr int permuted(int column, int) { return column; }
  };
  static_assert(Weights::pitch * sizeof(Sum) % 16 == 0 && X::elements * sizeof(Sum) % 16 == 0);

  static constexpr int stage_elements = X::elements + Weights::elements;
  static constexpr std::size_t stage_bytes = sizeof(Sum) * stage_elements;
  static constexpr std::size_t staging_bytes = Staging<Tile, !BatchFirst>::bytes;
  /// Blocks on a multiprocessor, so that one stores while the other computes: 128 registers for each thread.
  /// The sums of f64 and complex128 need more.
  static constexpr int blocks = sizeof(typename RealOf<Sum>::type) == 8 ? 1 : 2;

  __device__ static void load_weights(Sum* buffer, const Sum*& source, int left) {
    constexpr int per_depth = Weights::pitch * static_cast<int>(sizeof(Sum)) / 16;
    constexpr int vectors = Depth * per_depth;
    constexpr int steps = (vectors + Tile::threads - 1) / Tile::threads;
    const char* from = reinterpret_cast<const char*>(source);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int vector = static_cast<int>(threadIdx.x) + step * Tile::threads;
      if (vectors % Tile::threads == 0 || vector < vectors)
        copy_async<16>(reinterpret_cast<char*>(buffer) + vector * 16, from + vector * 16,
                       vector < left * per_depth ? 16 : 0);
    }
    source += Weights::elements;
  }
};

template <class K>
__global__ void __launch_bounds__(K::Tile::threads, K::blocks)
    multiply_simt(const __grid_constant__ MultiplySimtArgs args) {
  using Tile = typename K::Tile;
  using T = typename K::T;
  using Sum = typename K::Sum;
  using X = typename K::X;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& waiting = *reinterpret_cast<Target<T>*>(shared_bytes);
  Sum* const shared = reinterpret_cast<Sum*>(shared_bytes + target_bytes);  // [stages][x then weights]

  // The block's tile.
  std::uint64_t tile = args.first_tile + blockIdx.x;
  const std::int64_t k_tile = take_digit(tile, args.output_tiles);
  const std::int64_t inner_group = take_digit(tile, args.inner_groups);
  const std::int64_t n0 = static_cast<std::int64_t>(take_digit(tile, args.sample_tiles)) * Tile::M;
  const std::int64_t group = take_digit(tile, args.outer_groups) * args.inner_groups + inner_group;
  const auto i = static_cast<std::int64_t>(tile);
  const std::int64_t k0 = k_tile * Tile::N, j0 = group * Tile::J;
  const int js = extent(args.d, j0, Tile::J);
  if (threadIdx.x == 0) {
    const std::int64_t out = (i * args.b + k0) * args.d + j0;
    waiting = {.start = static_cast<T*>(args.y) + n0 * args.y_sample + out * args.y_feature,
               .bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + out,
               .row_stride = args.y_sample,
               .column_stride = args.d * args.y_feature,
               .bias_stride = args.d,
               .rows = extent(args.batch, n0, Tile::M),
               .columns = extent(args.b, k0, Tile::N),
               .js = js,
               .activation = args.activation,
               .vectors = args.y_vectors};
  }

  // The places that it reads.
  const std::int64_t groups = static_cast<std::int64_t>(args.inner_groups) * args.outer_groups;
  const Sum* weights = static_cast<const Sum*>(args.weights) +
                       ((i * groups + group) * args.output_tiles + k_tile) * args.c * K::Weights::pitch;
  const T* const x =
      static_cast<const T*>(args.x) + n0 * args.x_sample + (i * args.c * args.d + j0) * args.x_feature;
  OperandLoader<X> loader(x, args.x_sample, args.x_step, args.batch - n0, js, args.x_vectors);

  const Place<Tile> place;
  const int left_at = place.j * X::plane + place.row();
  const int right_at = X::elements + place.j * Tile::N + place.column();
  const int pair_at = X::elements + place.j * Tile::N + place.pair_column();
  Sum sums[Tile::TM][Tile::TN] = {};  // (samples, outputs)
  run_pipeline(
      args.chunks, args.stages,
      [&](int chunk, int stage) {
        const int left = chunk + 1 == args.chunks ? args.last_chunk : K::Depth;
        Sum* const buffer = shared + stage * K::stage_elements;
        loader.load(buffer, left);
        K::load_weights(buffer + X::elements, weights, left);
      },
      [&](int, int stage) {
        const Sum* const buffer = shared + stage * K::stage_elements;
        add_products<Tile, X, typename K::Weights>(sums, buffer + left_at, buffer + right_at,
                                                   buffer + pair_at);
      });

  const Target<T> target = waiting;
  store_tile<Tile, !K::BatchFirst>(sums, shared, target);
}

}  // namespace kronsparse::cuda::simt
