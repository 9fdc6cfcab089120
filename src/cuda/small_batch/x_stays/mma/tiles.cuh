// The small-batch kernel `x-stays-mma`: device side.
//
// It is for small batches on any GPU from sm_80 on, where most of the traffic is weights. Weights go once
// from DRAM to registers, by 16-byte loads in exactly the order in which they are packed. x is staged in
// shared memory. A warp owns a row of tiles: `tile_k` outputs of one (i, j), over a range of l. Partial sums
// of l (from the warps of a block, and the blocks of a cluster) are added up in shared memory in a fixed
// order, so results do not vary from run to run.
//
// Half types use the tensor cores from batch 1 on: the weights are the A operand, (16 outputs, 16 terms) to a
// tile, and the batch is n. f32 uses FMA.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/device/epilogue.cuh"
#include "cuda/small_batch/x_stays/mma/cut.cuh"
#include "cuda/small_batch/x_stays/x_in_shared.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::x_stays_mma {

/// Tiles that a warp has in flight, and 16-byte loads of x that a thread has. Large batches fill the shared
/// memory of an SM with one block, which may then use all registers.
template <class T>
__host__ __device__ constexpr int tiles_in_flight(int n_tiles) {
  return Tile<T>::tensor_core && n_tiles >= 4 ? 16 : 8;
}
__host__ __device__ constexpr int loads_in_flight(int n_tiles) { return n_tiles >= 4 ? 16 : 8; }

/// Offsets in a block's shared memory, in bytes.
struct SharedLayout {
  int x_row;           ///< from one sample to the next; an odd multiple of 16, so that 8 samples lie in 8
                       ///< different banks
  int x_plane;         ///< from one j to the next
  int zeros;           ///< a row of zeros, for the samples beyond the batch
  int partial;         ///< sums of the block's share of samples: [buffer][row][part][sample][output]
  int partial_part;    ///< from one part's sums to the next
  int partial_buffer;  ///< from one group's sums to the next; two where a block has several groups
  int total;
};

template <class T>
__host__ __device__ inline SharedLayout shared_layout(const Cut& cut, int samples, int j_fastest) {
  SharedLayout s{};
  s.x_row = cut.positions<T>() * static_cast<int>(sizeof(T)) + 16;
  s.x_plane = s.x_row * samples;
  s.zeros = s.x_plane * cut.j_group;
  s.partial = s.zeros + s.x_row;
  // The sums of neighbouring j are read together: their rows should lie 4 to 16 banks apart. If there is one
  // j, quads of k are read and must lie on 16 bytes.
  const int pad = (32 / j_fastest < 16 ? 32 / j_fastest : 16) / cut.parts();
  const int least_pad = j_fastest == 1 ? 4 : 1;
  s.partial_part = (cut.share() * Tile<T>::sample_stride + (pad > least_pad ? pad : least_pad)) * 4;
  s.partial_buffer = s.partial_part * cut.warps() * cut.cluster;
  s.total = s.partial + s.partial_buffer * (cut.groups > 1 ? 2 : 1);
  return s;
}

/// The arguments of a launch.
struct Arguments {
  const uint4* weights;
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  bool just_packed = false;  ///< the earlier kernel may write the weights: wait for it first
  int batch;
  int j_fastest_log2;  ///< rows of a group that are neighbouring j, in the order of stores
  Activation activation;
  std::int64_t b, c, d;
  std::int64_t x_sample, x_feature, y_sample, y_feature;
  bool quads;      ///< whether y can be written four features at a time
  int quad_bytes;  ///< of four features
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Volatile, as are the waits below: the first loads must be issued before the wait for the earlier kernel.
// Not "nc": the earlier kernel may be the one that packs the weights, and such loads may find stale data.
__device__ inline uint4 load_weights(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

/// Makes L2 fetch `bytes` of weights, a multiple of 16.
__device__ inline void prefetch_weights([[maybe_unused]] const uint4* address,
                                        [[maybe_unused]] unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes) : "memory");
#endif
}

/// Lets the next kernel of the stream begin with its own weights, then waits for the kernel before this one:
/// x is its result. Both do nothing for plain launches.
__device__ inline void meet_neighbouring_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Only waits for the earlier kernels.
__device__ inline void wait_for_packing() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
#endif
}

__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/// The place where a warp leaves its sums: in the block of the cluster that adds them up, which owns
/// 2^share_log2 neighbouring samples.
struct PartialPlace {
  std::uint32_t address;  ///< as it would be in this block
  int share_log2;
  bool is_shared_out;  ///< whether other blocks add up, too

  template <class T>
  __device__ void put(int sample, int k, float value) const {
    const std::uint32_t at = address + ((sample & ((1 << share_log2) - 1)) * Tile<T>::sample_stride + k) * 4;
    if (!is_shared_out) {
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
      return;
    }
#if __CUDA_ARCH__ >= 900
    std::uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(at), "r"(sample >> share_log2));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
#endif
  }
};

template <class T>
__device__ inline void mma(float (&c)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/// The sums of one row of tiles over n_tiles·8 samples, on the tensor cores.
template <class T, int n_tiles, bool tensor_core = Tile<T>::tensor_core>
struct Sums {
  float c[n_tiles][4] = {};                // (8 samples, 4 sums)
  std::uint32_t x_row[(n_tiles + 1) / 2];  ///< (pairs of n tiles): address of the lane's row in each ldmatrix

  __device__ Sums(std::uint32_t x, std::uint32_t zeros, int row_bytes, int samples, int lane) {
    for (int pair = 0; pair < (n_tiles + 1) / 2; ++pair) {
      const int sample = pair * 16 + lane / 16 * 8 + lane % 8;
      x_row[pair] = (sample < samples ? x + sample * row_bytes : zeros) + lane / 8 % 2 * 16;
    }
  }

  __device__ void add_tile(const uint4& weights, int tile) {
    for (int pair = 0; pair < (n_tiles + 1) / 2; ++pair) {
      std::uint32_t x[4];  // two tiles of (8 samples, 16 terms), by 8 terms
      const std::uint32_t address = x_row[pair] + tile * (Tile<T>::tile_l * 2);
      if constexpr (n_tiles == 1) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(x[0]), "=r"(x[1])
                     : "r"(address));
        mma<T>(c[0], weights, x[0], x[1]);
      } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address));
        mma<T>(c[2 * pair], weights, x[0], x[1]);
        mma<T>(c[2 * pair + 1], weights, x[2], x[3]);
      }
    }
  }

  __device__ void store(const PartialPlace& partial, int lane) const {
    for (int n = 0; n < n_tiles; ++n)
      for (int e = 0; e < 4; ++e) partial.put<T>(n * 8 + lane % 4 * 2 + e % 2, lane / 4 + e / 2 * 8, c[n][e]);
  }
};

/// The same with FMA: a lane is an output, and all lanes read the same x.
template <class T, int n_tiles>
struct Sums<T, n_tiles, false> {
  float c[n_tiles * 8] = {};  // (samples)
  std::uint32_t x_first;
  int row_bytes, samples;

  __device__ Sums(std::uint32_t x, std::uint32_t, int bytes_of_row, int sample_count, int)
      : x_first(x), row_bytes(bytes_of_row), samples(sample_count) {}

  __device__ void add_tile(const uint4& weights, int tile) {
#pragma unroll
    for (int n = 0; n < n_tiles * 8; ++n) {
      if (n >= samples) break;
      float4 x;
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                   : "r"(x_first + n * row_bytes + tile * 16));
      c[n] = fmaf(__uint_as_float(weights.x), x.x, c[n]);
      c[n] = fmaf(__uint_as_float(weights.y), x.y, c[n]);
      c[n] = fmaf(__uint_as_float(weights.z), x.z, c[n]);
      c[n] = fmaf(__uint_as_float(weights.w), x.w, c[n]);
    }
  }

  __device__ void store(const PartialPlace& partial, int lane) const {
    for (int n = 0; n < n_tiles * 8; ++n) partial.put<T>(n, lane, c[n]);
  }
};

#endif

}  // namespace kronsparse::cuda::x_stays_mma
