// The kernel `gradient-wgmma`: the gradient of the values on Hopper's tensor cores.
//
// The last warpgroup has the copy engine bring g and x to stages in shared memory, and sorts them by j if it
// must (tiles.cuh). One or two warpgroups multiply, both operands from shared memory, and keep the sums in
// registers until the batch has passed. The blocks of a cluster split the batch and add up in the order of
// their ranks, so results do not vary.
#pragma once

#include "cuda/gradient/wgmma/tiles.cuh"

namespace kronsparse::cuda {

template <Arithmetic A, GradientWgmmaShape S>
struct GradientWgmmaTraits {
  static constexpr Arithmetic arithmetic = A;
  static constexpr GradientWgmmaShape shape = S;
  static_assert(A == Arithmetic::f16 || A == Arithmetic::bf16);
  static_assert(S.products == S.block_j || 2 * S.products == S.block_j);
  static_assert(S.n * S.block_j % kGradientBox == 0);
};

namespace gradient {

template <class Traits>
using WgmmaSums = float[Traits::shape.products][Traits::shape.n / 2];  // (j, sums of a lane)

/// Requests stages as they become empty, or sorts them. Called by the last warpgroup.
template <class Traits>
__device__ inline void bring(const GradientWgmmaArguments& p, const SharedStages<Traits>& shared,
                             const Tile& tile, int steps) {
  const int thread = static_cast<int>(threadIdx.x) % kGradientSortingThreads;
  RingPlace place;
  if constexpr (!Traits::shape.is_sorted()) {
    if (thread != 0) return;
    for (int step = 0; step < steps; ++step, place.advance(p.stages)) {
      if (step >= p.stages) ptx::barrier_wait(shared.empty(place.at), place.parity ^ 1);
      request_stage<Traits>(p, tile, step, shared.g(place.at), shared.x(place.at), shared.full(place.at));
    }
  } else {
    const auto request = [&](int step, int raw) {
      constexpr int warps = kGradientSortingThreads / 32;
      if (thread % 32 == 0)
        request_stage<Traits>(p, tile, step, shared.raw_g(raw), shared.raw_x(raw), shared.raw_full(raw),
                              thread / 32, warps);
    };
    for (int step = 0; step < min(steps, p.raw_stages); ++step) request(step, step);
    RingPlace raw;
    for (int step = 0; step < steps; ++step, place.advance(p.stages), raw.advance(p.raw_stages)) {
      if (step >= p.stages) ptx::barrier_wait(shared.empty(place.at), place.parity ^ 1);
      ptx::barrier_wait(shared.raw_full(raw.at), raw.parity);
      sort_operand<Traits>(shared.raw_g(raw.at), shared.g(place.at), p.out.tile_k);
      sort_operand<Traits>(shared.raw_x(raw.at), shared.x(place.at), Traits::shape.n);
      ptx::fence_for_bulk();  // wgmma reads through the same proxy as the copy engine
      ptx::barrier_of(1, kGradientSortingThreads);
      if (thread == 0) ptx::barrier_arrive(shared.full(place.at));
      if (step + p.raw_stages < steps) request(step + p.raw_stages, raw.at);
      __syncwarp();  // ldmatrix needs all lanes
    }
  }
}

template <class Traits>
__device__ inline void multiply_step(float (&sums)[Traits::shape.n / 2], std::uint64_t g, std::uint64_t x,
                                     int add) {
  using Instruction = ptx::Wgmma<Traits::shape.n>;
  constexpr bool columns = Traits::shape.source == GradientSource::columns;
  if constexpr (Traits::arithmetic == Arithmetic::bf16) {
    if constexpr (columns)
      Instruction::bf16_shared(sums, g, x, add);
    else
      Instruction::bf16_both_columns(sums, g, x, add);
  } else {
    if constexpr (columns)
      Instruction::f16_shared(sums, g, x, add);
    else
      Instruction::f16_both_columns(sums, g, x, add);
  }
}

/// Computes all products of a stage. If `add` is 0, the first starts the sums at zero.
template <class Traits>
__device__ inline void multiply_stage(int warpgroup, int tile_k, std::uint32_t g, std::uint32_t x, int add,
                                      WgmmaSums<Traits>& sums) {
  constexpr GradientWgmmaShape shape = Traits::shape;
  if constexpr (shape.is_sorted()) {
    const int first_j = shape.splits_j() ? warpgroup * shape.products : 0;
    const int g_plane = shape.plane_bytes(tile_k);
    g += first_j * g_plane + (shape.splits_j() ? 0 : warpgroup * 8 * shape.unit_bytes());
    x += first_j * shape.plane_bytes(shape.n);
#pragma unroll
    for (int product = 0; product < shape.products; ++product)
      multiply_step<Traits>(
          sums[product], ptx::wgmma_operand(g + product * g_plane, 128, shape.unit_bytes()),
          ptx::wgmma_operand(x + product * shape.plane_bytes(shape.n), 128, shape.unit_bytes()), add);
  } else {
    constexpr int box_bytes = kGradientBox * 128;
    constexpr int step_bytes = shape.source == GradientSource::columns ? 32 : 16 * 128;
    constexpr int next_box = shape.source == GradientSource::columns ? 1024 : box_bytes;
    g += warpgroup * box_bytes;
#pragma unroll
    for (int step = 0; step < shape.stage_samples() / 16; ++step)
      multiply_step<Traits>(sums[0], ptx::wgmma_swizzled_operand(g + step * step_bytes),
                            ptx::wgmma_swizzled_operand(x + step * step_bytes, next_box),
                            step == 0 ? add : 1);
  }
}

template <class Traits>
__device__ inline void multiply_all(const GradientWgmmaArguments& p, const SharedStages<Traits>& shared,
                                    int warpgroup, int steps, WgmmaSums<Traits>& sums) {
  RingPlace place;
  int previous = -1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    ptx::barrier_wait(shared.full(place.at), place.parity);
    ptx::wgmma_fence();
    multiply_stage<Traits>(warpgroup, p.out.tile_k, shared.g(place.at), shared.x(place.at), step != 0, sums);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous stage has been read
    if (previous >= 0 && threadIdx.x % 32 == 0) ptx::barrier_arrive(shared.empty(previous));
    previous = place.at;
    place.advance(p.stages);
  }
  ptx::wgmma_wait<0>();
}

/// Puts the sums into shared memory in the order of y: rows k of (l, j), j fastest.
template <class Traits>
__device__ inline void put_sums(const GradientWgmmaArguments& p, int warpgroup, std::uint32_t shared,
                                const WgmmaSums<Traits>& sums) {
  constexpr GradientWgmmaShape shape = Traits::shape;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int first_j = shape.splits_j() ? warpgroup * shape.products : 0;
  const int first_k = (shape.splits_j() ? 0 : warpgroup * 64) + warp * 16 + lane / 4;
#pragma unroll
  for (int e = 0; e < shape.n / 2; ++e) {
    const int k = shape.row_at(first_k + e / 2 % 2 * 8);
    const int l = shape.row_at(e / 4 * 8 + lane % 4 * 2 + e % 2);
    const std::uint32_t to = shared + k * p.out.pitch + (l * shape.block_j + first_j) * 4;
#pragma unroll
    for (int product = 0; product < shape.products; ++product)
      ptx::store_shared_float(to + product * 4, sums[product][e]);
  }
}

/// The end of the threads that have sums.
template <class Traits>
__device__ inline void finish(const GradientWgmmaArguments& p, const Tile& tile, int warpgroup,
                              std::uint32_t shared, const WgmmaSums<Traits>& sums) {
  const auto meet = [&] { ptx::barrier_of(2, p.warpgroups * 128); };
  meet();  // nobody multiplies any more
  put_sums<Traits>(p, warpgroup, shared, sums);
  if (p.out.splits == 1)
    meet();
  else
    ptx::cluster_barrier();
  store_sums<Traits>(p.out, tile, shared, p.warpgroups * 4);
  if (p.out.splits != 1) ptx::cluster_barrier();  // nobody reads this block's shared memory any more
}

}  // namespace gradient

template <class Traits>
__global__ void __launch_bounds__(2 * 128 + kGradientSortingThreads, Traits::shape.is_light() ? 2 : 1)
    gradient_wgmma(const __grid_constant__ GradientWgmmaArguments p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t base = ptx::shared_address(shared_memory);
  const gradient::SharedStages<Traits> shared(p, base);
  const gradient::Tile tile = gradient::block_tile(p.tiles, p.out);
  // A split without samples takes a step, too: elements outside the tensor are read as zeros.
  const int steps =
      max(1, (tile.samples + Traits::shape.stage_samples() - 1) / Traits::shape.stage_samples());
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) shared.init(p);
  __syncthreads();
  if (p.overlaps) {
    ptx::let_later_kernels_start();
    ptx::wait_for_earlier_kernels();
  }
  if (warpgroup == p.warpgroups) {
    if constexpr (!Traits::shape.is_light()) ptx::give_registers<56>();
    gradient::bring<Traits>(p, shared, tile, steps);
    if (p.out.splits == 1) return;
    __syncwarp();
    ptx::cluster_barrier();  // all threads of a cluster meet here
    ptx::cluster_barrier();
  } else {
    if constexpr (!Traits::shape.is_light()) ptx::take_registers<224>();
    gradient::WgmmaSums<Traits> sums;
    gradient::multiply_all<Traits>(p, shared, warpgroup, steps, sums);
    gradient::finish<Traits>(p, tile, warpgroup, base, sums);
  }
#endif
}

}  // namespace kronsparse::cuda
