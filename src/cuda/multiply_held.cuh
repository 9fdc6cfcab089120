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
  if (args.just_packed) ptx::wait_for_earlier_kernels();
  ask_for_first_tile(args, base);
  const int warp = static_cast<int>(__shfl_sync(0xffffffff, threadIdx.x / 32, 0) % warps);
  ptx::let_later_kernels_start();
  const BlockPlace place(args);
  Weights weights(args, place, base, warp);
  X<shape, ordinary> x(args, place, base, warp);
  weights.init();
  x.init();
  ptx::barrier_init_fence();
  ask_for_all(args, place);
  const int tiles = args.cut.tiles;
  __syncthreads();  // barriers are there
  ptx::wait_for_earlier_kernels();
  x.ask();
  x.settle();
  weights.settle();
  const SumStore<T, shape, ordinary> store(args, place, base, warp);

  uint4 left[shape.steps()][block_j];
  int slot = 0, before = 0;  // of this tile's weights and then its sums, of those of the tile before
  int parity = 0;            // of the slot's barrier: it turns when slots 1, 2 and 0 have been used
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    float sums[block_j][4] = {};
    if (tile == 0) {
      // A step's weights are loaded before its x is waited for.
      uint4 right[block_j / 2];
      weights.wait_for_first_tile();
      weights.load(right, 0, 0);
#pragma unroll
      for (int box = 0; box < shape.boxes(); ++box) {
        // Weights of a later tile may come to where the box was when all that share x have read it.
        const auto hand_over = [&] {
          x.meet();
          const int slot_there = x.slot_of(box);
          if (x.asked_for(box) && slot_there < tiles) weights.ask(slot_there, slot_there);
        };
        const int first = box * shape.box_steps(), end = first + shape.box_steps();
        x.wait(box);
#pragma unroll
        for (int step = first; step < end; ++step) x.load(left[step], box, step - first);
        if constexpr (shape.j_warps() == 1) hand_over();
#pragma unroll
        for (int step = first; step < end; ++step) {
          multiply<T>(sums, left[step], right);
          if (step + 1 < shape.steps()) weights.load(right, 0, step + 1);
        }
        if constexpr (shape.j_warps() > 1) hand_over();  // products are under way while others are waited for
      }
    } else {
      weights.wait(slot, parity);
#pragma unroll
      for (int step = 0; step < shape.steps(); ++step) {
        uint4 right[block_j / 2];
        weights.load(right, slot, step);
        multiply<T>(sums, left[step], right);
      }
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
