// The small-batch kernel `x-stays-mma`, which runs on every GPU from sm_80 on. tiles.cuh says how it works.
//
// The path of the data: a warp loads its first tiles of packed weights into registers, before the earlier
// kernel has ended. The block then stages x in shared memory, once or in segments. Each warp multiplies tile
// by tile, with the next tiles in flight. Partial sums go to shared memory, of this block or of another block
// of the cluster, and are added up and stored from there.
#pragma once

#include "cuda/small_batch/x_stays/mma/tiles.cuh"

namespace kronsparse::cuda::x_stays_mma {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// The position of a block: its panel, its rows, its part of l, its samples.
struct BlockPlace {
  std::int64_t i, j;  ///< j is the panel's first
  int k_block;
  int rank;  ///< in the cluster
  int first_sample;
  int samples;

  __device__ explicit BlockPlace(const Arguments& args) {
    const Cut& cut = args.cut;
    unsigned rest = blockIdx.x / cut.cluster;
    rank = static_cast<int>(blockIdx.x % cut.cluster);
    k_block = static_cast<int>(rest % cut.k_blocks);
    rest /= cut.k_blocks;
    j = std::int64_t{rest % cut.j_groups} * cut.j_group;
    i = rest / cut.j_groups;
    first_sample = static_cast<int>(blockIdx.y) * cut.n_tiles * 8;
    samples = min(args.batch - first_sample, cut.n_tiles * 8);
  }
};

/// Stages one segment of x as [j][sample][position].
template <class T, int n_tiles>
__device__ inline void stage_x(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                               std::uint32_t shared, int segment) {
  const Cut& cut = args.cut;
  const TermOrder<T> order = cut.order<T>();
  const std::int64_t first_l = (std::int64_t{place.rank} * cut.segments + segment) * order.positions;
  const T* x = static_cast<const T*>(args.x) + place.first_sample * args.x_sample +
               ((place.i * args.c + first_l) * args.d + place.j) * args.x_feature;
  const XPlace x_place{.sample = args.x_sample,
                       .feature = args.x_feature,
                       .d = args.d,
                       .j_group = cut.j_group,
                       .shared_j = layout.x_plane,
                       .shared_sample = layout.x_row,
                       .shared_vector = 16,
                       .bytes = cut.vector ? 16 : 0};
  XStager<T, loads_in_flight(n_tiles)>(x_place, order, x, shared, static_cast<int>(blockDim.x), place.samples,
                                       static_cast<int>(min(args.c - first_l, std::int64_t{order.positions})),
                                       static_cast<int>(min(args.d - place.j, std::int64_t{cut.j_group})))
      .stage();
}

/// Adds up the partial sums of a group that the warps of this block and of the cluster have left in this
/// block's shared memory, and stores this block's share of y.
template <class T, int n_tiles>
class Finisher {
 public:
  __device__ Finisher(const Arguments& args, const BlockPlace& place, const SharedLayout& layout)
      : args_(args), place_(place), layout_(layout) {}

  /// `partial` is this group's buffer in shared memory. Threads go along the direction that is contiguous in
  /// y.
  __device__ void finish(const float* partial, int group) const {
    const int features = args_.cut.rows_per_group * Tile<T>::tile_k;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int share = args_.cut.share();
    const int first_sample = place_.rank * share;
    const int samples = min(place_.samples - first_sample, share);
    if (has_quads && args_.quads) {
      const int width = min(features / 4, threads);
#pragma unroll 1
      for (int f = thread % width; f < features / 4; f += width)
        store_quads(partial, output_of(group, 4 * f, first_sample), thread / width, threads / width, samples);
    } else if (args_.y_feature == 1) {
      const int width = min(features, threads);
      for (int f = thread % width; f < features; f += width)
        store(partial, output_of(group, f, first_sample), thread / width, threads / width, samples);
    } else {
      const int width = min(share, 32);
      for (int f = thread / width; f < features; f += threads / width)
        store(partial, output_of(group, f, first_sample), thread % width, width, samples);
    }
  }

 private:
  static constexpr bool has_quads = n_tiles >= 4;  // small batches have few outputs

  struct Output {
    bool exists;
    int partial;  ///< offset of its first sum, in floats
    float bias;
    std::int64_t feature;
    T* y;  ///< for the share's first sample
  };

  __device__ Output output_of(int group, int f, int first_sample) const {
    const Cut& cut = args_.cut;
    const int j_fastest = 1 << args_.j_fastest_log2;
    const int k_in_tile = (f >> args_.j_fastest_log2) % Tile<T>::tile_k;
    const int row_in_group = f / (Tile<T>::tile_k * j_fastest) * j_fastest + f % j_fastest;
    const int row = (place_.k_block * cut.groups + group) * cut.rows_per_group + row_in_group;
    const std::int64_t j = place_.j + row % cut.j_group;
    const std::int64_t k = std::int64_t{row / cut.j_group} * Tile<T>::tile_k + k_in_tile;
    Output output{};
    output.exists = k < args_.b && j < args_.d;
    if (!output.exists) return output;
    const std::int64_t feature = (place_.i * args_.b + k) * args_.d + j;
    output.feature = feature;
    output.partial = row_in_group * cut.parts() * (layout_.partial_part / 4) + k_in_tile;
    output.bias = args_.bias ? static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature)) : 0.0f;
    output.y = static_cast<T*>(args_.y) + (place_.first_sample + first_sample) * args_.y_sample +
               feature * args_.y_feature;
    return output;
  }

  // Stores the samples n, n + step, ... of the share; several at a time if there are many.
  __device__ void store(const float* partial, const Output& output, int n, int step, int samples) const {
    constexpr int at_once = n_tiles < 4 ? 1 : 4;
    if (!output.exists) return;
    const int part_stride = layout_.partial_part / 4, parts = args_.cut.parts();
    for (; n < samples; n += at_once * step) {
      const float* from = partial + output.partial + n * Tile<T>::sample_stride;
      float sum[at_once] = {};
#pragma unroll 4
      for (int part = 0; part < parts; ++part, from += part_stride)
#pragma unroll
        for (int u = 0; u < at_once; ++u)
          if (n + u * step < samples) sum[u] += from[u * step * Tile<T>::sample_stride];
            // Not unrolled: one copy of the activations is enough code.
#pragma unroll 1
      for (int u = 0; u < at_once && n + u * step < samples; ++u) {
        float value = sum[0];
#pragma unroll
        for (int v = 1; v < at_once; ++v) value = u == v ? sum[v] : value;
        if (args_.bias) value += output.bias;
        output.y[(n + u * step) * args_.y_sample] = static_cast<T>(activate(value, args_.activation));
      }
    }
  }

  // The same for four features: neighbouring j, whose sums lie in four rows, or neighbouring k.
  __device__ void store_quads(const float* partial, const Output& output, int n, int step,
                              int samples) const {
    struct alignas(4 * sizeof(T)) Quad {
      T e[4];
    };
    if (!output.exists) return;
    const int part_stride = layout_.partial_part / 4, parts = args_.cut.parts();
    const int row_stride = part_stride * parts;
    float bias[4] = {output.bias, 0, 0, 0};
#pragma unroll
    for (int e = 1; e < 4; ++e)
      if (args_.bias)
        bias[e] = static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + output.feature + e));
#pragma unroll 1
    for (; n < samples; n += step) {
      const float* from = partial + output.partial + n * Tile<T>::sample_stride;
      float sum[4] = {bias[0], bias[1], bias[2], bias[3]};
#pragma unroll 4
      for (int part = 0; part < parts; ++part, from += part_stride) {
        if (args_.j_fastest_log2 == 0) {
          const float4 v = *reinterpret_cast<const float4*>(from);
          sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[e] += from[e * row_stride];
        }
      }
      if (args_.activation != Activation::none)
      // Not unrolled: one copy of the activations is enough code.
#pragma unroll 1
        for (int turn = 0; turn < 4; ++turn) {
          const float activated = activate(sum[0], args_.activation);
          sum[0] = sum[1], sum[1] = sum[2], sum[2] = sum[3], sum[3] = activated;
        }
      Quad quad;
#pragma unroll
      for (int e = 0; e < 4; ++e) quad.e[e] = static_cast<T>(sum[e]);
      *reinterpret_cast<Quad*>(output.y + n * args_.y_sample) = quad;
    }
  }

  const Arguments& args_;
  const BlockPlace& place_;
  const SharedLayout& layout_;
};

#endif

/// One block per SM: with the 128 registers that two allow it spills, and is slower throughout. With
/// `prefetch` a block requests all of its weights at once, into L2.
template <class T, int n_tiles, bool prefetch = false>
__global__ void __launch_bounds__(max_warps * 32, 1)
    multiply_x_stays_mma(const __grid_constant__ Arguments args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) unsigned char shared[];
  const Cut& cut = args.cut;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;

  // The first weights come before everything else.
  if (args.just_packed) wait_for_packing();
  const int row_tiles = cut.segments * cut.tiles_per_warp;
  const uint4* next =
      args.weights + (std::int64_t{blockIdx.x} * cut.groups * warps + warp) * row_tiles * 32 + lane;
  constexpr int depth = tiles_in_flight<T>(n_tiles);
  uint4 weights[depth];  // (depth): the lane's weights in the next `depth` tiles
#pragma unroll
  for (int u = 0; u < depth; ++u)
    if (u < cut.tiles_per_warp) weights[u] = load_weights(next + u * 32);
  if (prefetch && threadIdx.x == 0)
    prefetch_weights(args.weights + std::int64_t{blockIdx.x} * cut.groups * warps * row_tiles * 32,
                     static_cast<unsigned>(cut.groups * warps * row_tiles * tile_bytes));
  if (cut.cluster > 1) cluster_arrive();  // this block has begun: others may write to its shared memory
  meet_neighbouring_kernels();

  const BlockPlace place(args);
  const SharedLayout layout = shared_layout<T>(cut, min(args.batch, n_tiles * 8), 1 << args.j_fastest_log2);
  const std::uint32_t x = ptx::shared_address(shared);

  const Finisher<T, n_tiles> finisher(args, place, layout);
  for (int at = threadIdx.x * 16; at < layout.x_row; at += blockDim.x * 16)
    ptx::store_shared_16(x + layout.zeros + at, 0, 0, 0, 0);

  for (int group = 0; group < cut.groups; ++group) {
    const int row = (place.k_block * cut.groups + group) * cut.rows_per_group + warp / cut.warps_per_row;
    Sums<T, n_tiles> sums(x + row % cut.j_group * layout.x_plane, x + layout.zeros, layout.x_row,
                          place.samples, lane);
    for (int segment = 0; segment < cut.segments; ++segment) {
      if (group + segment == 0 || cut.segments > 1) {
        if (group + segment > 0) __syncthreads();  // everybody has read the previous segment
        stage_x<T, n_tiles>(args, place, layout, x, segment);
        __syncthreads();
      }
      const int first_tile = warp % cut.warps_per_row * cut.tiles_per_warp;
      for (int tile = 0; tile < cut.tiles_per_warp; tile += depth) {
        // The place where this warp continues: in this segment, the next one, or the next group's row.
        int left = cut.tiles_per_warp - tile - depth;  // tiles left in the segment
        next += min(depth, left + depth) * 32;
        if (left <= 0) {
          const bool last_segment = segment + 1 == cut.segments;
          if (last_segment) next += std::int64_t{warps - 1} * row_tiles * 32;
          left = last_segment && group + 1 == cut.groups ? 0 : cut.tiles_per_warp;
        }
#pragma unroll
        for (int u = 0; u < depth; ++u) {
          if (tile + u < cut.tiles_per_warp) sums.add_tile(weights[u], first_tile + tile + u);
          if (u < left) weights[u] = load_weights(next + u * 32);
        }
      }
    }
    // Two buffers alternate: one barrier keeps a group's sums apart from those of the group before the last.
    const int buffer = layout.partial + group % 2 * layout.partial_buffer;
    const PartialPlace partial{
        .address = x + buffer + (warp * cut.cluster + place.rank) * layout.partial_part,
        .share_log2 = 31 - __clz(cut.share()),
        .is_shared_out = cut.cluster > 1};
    if (cut.cluster > 1 && group == 0) cluster_wait();
    sums.store(partial, lane);
    if (cut.cluster == 1) {
      __syncthreads();
    } else {
      cluster_arrive();
      cluster_wait();
    }
    finisher.finish(reinterpret_cast<const float*>(shared + buffer), group);
  }
#endif
}

}  // namespace kronsparse::cuda::x_stays_mma
