// The small-batch kernel `weights-stay`: weights stay in registers. tiles.cuh says how it works.
//
// The path of the data: each warp loads its packed weights into registers, before the earlier kernel has
// ended. The copy engine then brings x in passes of 8 samples to one of two buffers in shared memory. Lanes
// load x from there, pair the terms of one j, and multiply. The partial sums of the warps that split l meet
// in shared memory, and threads store contiguous runs of y.
#pragma once

#include "cuda/device/kernel_arguments.cuh"
#include "cuda/small_batch/weights_stay/loads.cuh"
#include "cuda/small_batch/weights_stay/store.cuh"

namespace kronsparse::cuda {

/// The kernel of one shape, given by its number: a kernel's template argument cannot be a class.
template <class T, std::size_t shape_number>
__global__ void __launch_bounds__(weights_stay::threads, weights_stay::shapes[shape_number].blocks_at_once())
    multiply_weights_stay(const __grid_constant__ weights_stay::Arguments args) {
  using namespace weights_stay;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte shared_memory[];
  constexpr Shape shape = shapes[shape_number];
  constexpr int block_j = shape.block_j();
  const int buffers = args.cut.buffers();
  const SharedLayout layout = shared_layout(shape, buffers);
  const std::uint32_t base = ptx::shared_address(shared_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  ptx::let_later_kernels_start();
  if (args.just_packed) ptx::wait_for_earlier_kernels();
  const BlockPlace place(args);

  uint4 weights[shape.fragments];  // (operands of the warp)
  const uint4* from =
      args.weights + (std::int64_t{place.tile} * warps + warp) * (shape.fragments * 32) + lane;
#pragma unroll
  for (int fragment = 0; fragment < shape.fragments; ++fragment)
    weights[fragment] = __ldcs(from + fragment * 32);

  const X<shape> x(args, place, base, base + layout.barriers, warp);
  x.init();
  read_arguments<sizeof(args.x_map)>(args, base + layout.unused);
  const SumStore<T, shape> store(args, place, base + layout.sums);
  const int passes =
      min(args.cut.passes, (args.batch - place.first_sample + tile_samples - 1) / tile_samples);
  __syncthreads();  // barriers are initialised
  ptx::wait_for_earlier_kernels();
  for (int pass = 0; pass < min(buffers, passes); ++pass) x.ask(pass, pass);

  RingPlace at;
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    float sums[block_j][4] = {};  // (j, 4 sums)
    x.wait(at);
#pragma unroll
    for (int step = 0; step < shape.steps(); ++step) {
      std::uint32_t words[X<shape>::words_of_a_step];
      x.load(words, at.at, step);
#pragma unroll
      for (int j = 0; j < block_j; ++j)
        multiply_tile<T>(sums[j], weights[step * block_j + j], pair_of_terms<block_j>(words, j, 0),
                         pair_of_terms<block_j>(words, j, 1));
    }
    if (pass + buffers < passes) {
      x.meet();
      x.ask(pass + buffers, at.at);
    }
    if (pass > 0) __syncthreads();  // the sums of the previous pass have been read
    store.put(sums, warp);
    __syncthreads();
    store.finish(pass);
    at.advance(buffers);
  }
#endif
}

}  // namespace kronsparse::cuda
