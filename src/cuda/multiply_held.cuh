// The product for small batches with x that stays in registers: the kernel. held_tiles.cuh says how it works.
#pragma once

#include "cuda/held_store.cuh"

namespace kronsparse::cuda {

/// Of one of the shapes, by its d: nvcc knows no kernels that are told a class. `ordinary` ones are for
/// arguments of which is_ordinary says so.
template <class T, int d, bool ordinary>
__global__ void __launch_bounds__(held::threads, 1)
    multiply_held(const __grid_constant__ held::Arguments args) {
  using namespace held;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte shared_memory[];
  constexpr Shape shape{d};
  constexpr int block_j = shape.block_j();
  const std::uint32_t base = ptx::shared_address(shared_memory);
  ask_for_first_tile(args, base);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  ptx::let_later_kernels_start();
  const BlockPlace place(args);
  const Weights weights(args, place, base, warp);
  const X<shape, ordinary> x(args, place, base, warp);
  weights.init();
  x.init();
  ptx::barrier_init_fence();
  ask_for_all(args, place);
  const int tiles = args.cut.tiles;
  __syncthreads();  // barriers are there
  ptx::wait_for_earlier_kernels();
  x.ask();
  const SumStore<T, shape, ordinary> store(args, place, base, warp);

  uint4 left[shape.steps()][block_j];
  int slot = 0, before = 0;  // of this tile's weights and then its sums, of those of the tile before
  int parity = 0;            // of the slot's barrier: it turns when slots 1, 2 and 0 have been used
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    float sums[block_j][4] = {};
    if (tile == 0) {
      weights.wait_for_first_tile();
#pragma unroll
      for (int box = 0; box < shape.boxes(); ++box) {
        x.wait(box);
#pragma unroll
        for (int box_step = 0; box_step < shape.box_steps(); ++box_step) {
          const int step = box * shape.box_steps() + box_step;
          x.load(left[step], box, box_step);
          weights.multiply<T>(sums, left[step], 0, step);
        }
        if ((box + 1) % shape.j_warps() == 0) {
          const int free_slot = (box + 1) / shape.j_warps();
          x.meet();
          if (free_slot < tiles) weights.ask(free_slot, free_slot);
        }
      }
    } else {
      weights.wait(slot, parity);
#pragma unroll
      for (int step = 0; step < shape.steps(); ++step) weights.multiply<T>(sums, left[step], slot, step);
    }
    store.put(sums, slot);
    if (tile + slots < tiles) ptx::fence_for_bulk();  // weights will come to the same place
    __syncthreads();
    // All have read the sums of the tile before.
    if (tile > 0 && tile - 1 + slots < tiles) weights.ask(tile - 1 + slots, before);
    store.finish(tile, slot);
    before = slot;
    if (slot == 0 && tile > 0) parity ^= 1;
    slot = slot + 1 == slots ? 0 : slot + 1;
  }
#endif
}

}  // namespace kronsparse::cuda
