// The product for small batches: the kernel. skinny_tiles.cuh says how it works.
#pragma once

#include "cuda/skinny_tiles.cuh"

namespace kronsparse::cuda::skinny {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// Where a block stands: its panel, its rows, its part of l, its samples.
struct BlockPlace {
  std::int64_t i, j;  ///< j the first of the panel
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

/// The `vector` l of one j, out of the 16-byte vectors that hold those of `j_count` neighbouring j.
template <class T, int j_count>
__device__ inline uint4 transposed(const uint4 (&in)[j_count], int j) {
  const auto word = [&in](int w) {
    const uint4& v = in[w / 4];
    return w % 4 == 0 ? v.x : w % 4 == 1 ? v.y : w % 4 == 2 ? v.z : v.w;
  };
  std::uint32_t result[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      result[w] = word(w * j_count + j);
    } else {
      const int low = 2 * w * j_count + j, high = low + j_count;  // flat places of l = 2w and 2w + 1
      const std::uint32_t selector = (low % 2 ? 0x0032u : 0x0010u) | (high % 2 ? 0x7600u : 0x5400u);
      result[w] = __byte_perm(word(low / 2), word(high / 2), selector);
    }
  }
  return {result[0], result[1], result[2], result[3]};
}

__device__ inline void store_shared(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

/// Stages one segment of x as [j][sample][position]; l beyond c become zeros.
///
/// x is read from L2, not as constant or through L1: with programmatic launches
/// the kernel that writes it may still run when this one begins.
template <class T, int n_tiles>
class Stager {
 public:
  __device__ Stager(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                    std::uint32_t shared)
      : args_(args), place_(place), layout_(layout), shared_(shared) {}

  __device__ void stage(int segment) const {
    const Cut& cut = args_.cut;
    const std::int64_t first_l = (std::int64_t{place_.rank} * cut.segments + segment) * cut.positions<T>();
    const T* x = static_cast<const T*>(args_.x) + place_.first_sample * args_.x_sample +
                 ((place_.i * args_.c + first_l) * args_.d + place_.j) * args_.x_feature;
    // How many l and j there are to read; beyond are zeros.
    const int l_end = static_cast<int>(min(args_.c - first_l, std::int64_t{cut.positions<T>()}));
    const int j_end = static_cast<int>(min(args_.d - place_.j, std::int64_t{cut.j_group}));
    if (!cut.vector)
      stage_elements(x, l_end, j_end);
    else if (cut.run == vector)
      stage_copies(x, l_end);
    else if (cut.run * 2 == vector)
      stage_vectors<2>(x, l_end, j_end);
    else if (cut.run * 4 == vector)
      stage_vectors<4>(x, l_end, j_end);
    else if constexpr (vector == 8)
      stage_vectors<8>(x, l_end, j_end);
  }

 private:
  static constexpr int vector = Tile<T>::vector;

  __device__ int columns() const { return args_.cut.positions<T>() / vector; }  // of 16 bytes

  __device__ std::uint32_t at(int j, int sample, int column) const {
    return shared_ + j * layout_.x_plane + sample * layout_.x_row + column * 16;
  }

  /// Spreads `count` pieces of every sample over the threads, neighbouring pieces to
  /// neighbouring threads. The body takes `at_once` samples, `step` apart.
  template <int at_once, class Body>
  __device__ void for_samples_and_pieces(int count, Body&& body) const {
    const int threads = static_cast<int>(blockDim.x);  // a power of two
    const int width = min(threads, count <= 4 ? 4 : 1 << (32 - __clz(count - 1)));
    const int step = threads / width, thread = static_cast<int>(threadIdx.x);
    for (int sample = thread / width; sample < place_.samples; sample += at_once * step)
      for (int piece = thread % width; piece < count; piece += width) body(sample, step, piece);
  }

  // d = 1: the order of memory is that of shared memory.
  __device__ void stage_copies(const T* x, int l_end) const {
    for_samples_and_pieces<1>(columns(), [&](int sample, int, int column) {
      const bool inside = column * vector < l_end;
      copy_async(at(0, sample, column), x + (inside ? sample * args_.x_sample + column * vector : 0), inside);
    });
    wait_async_copies();
  }

  // Whole vectors of neighbouring j, transposed in registers.
  template <int j_count>
  __device__ void stage_vectors(const T* x, int l_end, int j_end) const {
    constexpr int at_once = loads_in_flight(n_tiles) / j_count;
    const int second_j = args_.cut.j_group / j_count - 1;  // 1 where a panel has two vectors of j, else 0
    const int l_step = columns() * (vector / j_count);
    for_samples_and_pieces<at_once>(columns() << second_j, [&](int first_sample, int step, int piece) {
      const int j = (piece & second_j) * j_count, column = piece >> second_j;
      uint4 in[at_once][j_count];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int sample = first_sample + u * step;
        int l = column * (vector / j_count);
        const T* from = x + sample * args_.x_sample + l * args_.d + j;
#pragma unroll
        for (int v = 0; v < j_count; ++v, l += l_step, from += l_step * args_.d) {
          in[u][v] = {0, 0, 0, 0};
          if (l < l_end && j < j_end && sample < place_.samples)
            in[u][v] = __ldcg(reinterpret_cast<const uint4*>(from));
        }
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int sample = first_sample + u * step;
        if (sample < place_.samples)
#pragma unroll
          for (int jj = 0; jj < j_count; ++jj)
            store_shared(at(j + jj, sample, column), transposed<T>(in[u], jj));
      }
    });
  }

  // Any stride and alignment, one element at a time; lanes go along what is contiguous.
  __device__ void stage_elements(const T* x, int l_end, int j_end) const {
    const int j_group = args_.cut.j_group;
    if (args_.x_feature == 1) {
      for_samples_and_pieces<1>(columns() * j_group, [&](int sample, int, int piece) {
        gather(x, l_end, j_end, sample, piece % j_group, piece / j_group);
      });
    } else {
      const int width = place_.samples > 16 ? 32 : place_.samples > 8 ? 16 : place_.samples > 4 ? 8 : 4;
      for (int piece = threadIdx.x / width; piece < columns() * j_group; piece += blockDim.x / width)
        for (int sample = threadIdx.x % width; sample < place_.samples; sample += width)
          gather(x, l_end, j_end, sample, piece % j_group, piece / j_group);
    }
  }

  __device__ void gather(const T* x, int l_end, int j_end, int sample, int j, int column) const {
    using Bits = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned>;
    const T* from = x + sample * args_.x_sample + j * args_.x_feature;
    const int run = args_.cut.run, run_log2 = __ffs(run) - 1;
    union {
      Bits element[vector];
      uint4 bits;
    } out;
#pragma unroll
    for (int e = 0; e < vector; ++e) {
      const int l = (((e >> run_log2) * columns() + column) << run_log2) + (e & (run - 1));  // Cut::l_at
      out.element[e] = 0;
      if (l < l_end && j < j_end)
        out.element[e] = __ldcg(reinterpret_cast<const Bits*>(from + l * args_.d * args_.x_feature));
    }
    store_shared(at(j, sample, column), out.bits);
  }

  const Arguments& args_;
  const BlockPlace& place_;
  const SharedLayout& layout_;
  std::uint32_t shared_;
};

/// Adds up what the warps of a group, here and in the rest of the cluster, have
/// left in this block's shared memory, and stores this block's share of y.
template <class T, int n_tiles>
class Finisher {
 public:
  __device__ Finisher(const Arguments& args, const BlockPlace& place, const SharedLayout& layout)
      : args_(args), place_(place), layout_(layout) {}

  /// `partial` is this group's buffer in shared memory. Threads go along what is contiguous in y.
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
    T* y;  ///< of the share's first sample
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

  // The samples n, n + step, ... of the share; several at a time where there are many.
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

  // The same for four features: of neighbouring j, whose sums lie in four rows, or else of neighbouring k.
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

/// One block to an SM: with the 128 registers that two allow it spills, and is slower throughout.
/// With `prefetch` a block asks for all of its weights at once, into L2.
template <class T, int n_tiles, bool prefetch = false>
__global__ void __launch_bounds__(max_warps * 32, 1) multiply_skinny(const __grid_constant__ Arguments args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) unsigned char shared[];
  const Cut& cut = args.cut;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;

  // The first weights, before anything else.
  const int row_tiles = cut.segments * cut.tiles_per_warp;
  const uint4* next =
      args.weights + (std::int64_t{blockIdx.x} * cut.groups * warps + warp) * row_tiles * 32 + lane;
  constexpr int depth = tiles_in_flight<T>(n_tiles);
  uint4 weights[depth];  // of the lane, in the next `depth` tiles
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
  const std::uint32_t x = shared_address(shared);
  const Stager<T, n_tiles> stager(args, place, layout, x);
  const Finisher<T, n_tiles> finisher(args, place, layout);
  for (int at = threadIdx.x * 16; at < layout.x_row; at += blockDim.x * 16)
    store_shared(x + layout.zeros + at, {0, 0, 0, 0});

  for (int group = 0; group < cut.groups; ++group) {
    const int row = (place.k_block * cut.groups + group) * cut.rows_per_group + warp / cut.warps_per_row;
    Sums<T, n_tiles> sums(x + row % cut.j_group * layout.x_plane, x + layout.zeros, layout.x_row,
                          place.samples, lane);
    for (int segment = 0; segment < cut.segments; ++segment) {
      if (group + segment == 0 || cut.segments > 1) {
        if (group + segment > 0) __syncthreads();  // the segment before has been read by all
        stager.stage(segment);
        __syncthreads();
      }
      const int first_tile = warp % cut.warps_per_row * cut.tiles_per_warp;
      for (int tile = 0; tile < cut.tiles_per_warp; tile += depth) {
        // Where this warp goes on: in this segment, the next one, or the next group's row.
        int left = cut.tiles_per_warp - tile - depth;  // in the segment
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
    // Two buffers in turn: one barrier keeps a group's sums apart from the group before the last.
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

}  // namespace kronsparse::cuda::skinny
