// Pieces of the kernel `fused` that its loads, products and stores share.
#pragma once

#include "cuda/chain/fused/tiles.cuh"
#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/tensor_core.cuh"

// Clusters exist from sm_90 on; the host asks for none before.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KRONSPARSE_HAS_CLUSTERS 1
#else
#define KRONSPARSE_HAS_CLUSTERS 0
#endif

namespace kronsparse::cuda::fused {

template <Arithmetic kind, Shape shape>
struct Traits {
  static constexpr Arithmetic arithmetic = kind;
  static constexpr bool half = kind == Arithmetic::f16 || kind == Arithmetic::bf16;
  static constexpr int element = half ? 2 : 4;
  static constexpr int samples = shape.samples;
  static constexpr int m_tiles = shape.m_tiles;
  static constexpr int n_tiles = samples < 64 ? samples / 8 : 8;  ///< tiles of 8 samples that a warp computes
  static constexpr int n_groups = samples / (n_tiles * 8);
  /// Steps of weights that are under way. Sums and weights share 128 registers.
  static constexpr int ahead = m_tiles * n_tiles >= 16 ? 1 : 2;
  static constexpr int units = Line{samples, element}.units();
  [[nodiscard]] __device__ static constexpr Line line() { return {samples, element}; }
  static constexpr int unit_elements = 16 / element;
  static constexpr int k_step = 2 * unit_elements;  ///< terms of one product of a tensor core
};

struct Lane {
  int warp, warps, lane, g, t;  ///< lane = 4g + t, as in the description of fragments
};

__device__ inline Lane this_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {static_cast<int>(threadIdx.x) / 32, static_cast<int>(blockDim.x) / 32, lane, lane / 4, lane % 4};
}

/// Lets all threads of the tile meet; what they wrote before is then visible to all of them.
__device__ inline void meet(const Arguments& p) {
#if KRONSPARSE_HAS_CLUSTERS
  if (p.ranks > 1) {
    ptx::cluster_barrier();
    return;
  }
#endif
  __syncthreads();
}

/// Stores a word into a line of any rank. `at` is where it would be in this block.
__device__ inline void store_word(bool is_cluster, std::uint32_t at, int rank, std::uint32_t word) {
#if KRONSPARSE_HAS_CLUSTERS
  if (is_cluster) {
    ptx::store_cluster_4(ptx::cluster_address(at, static_cast<std::uint32_t>(rank)), word);
    return;
  }
#endif
  ptx::store_shared_4(at, word);
}

/// Bytes from the beginning of rows to a unit of a row. Units are swizzled, so that those of eight rows lie
/// in different banks.
__device__ inline int row_unit_at(int row, int pitch, int unit) {
  return row * pitch + (unit ^ (row & 7)) * 16;
}

/// The samples of a tile that exist, from `first` on.
template <class Traits>
__device__ inline int samples_there(const Arguments& p, std::int64_t first) {
  const std::int64_t rest = p.batch - first;
  return rest < Traits::samples ? static_cast<int>(rest) : Traits::samples;
}

}  // namespace kronsparse::cuda::fused
