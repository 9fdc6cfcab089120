// The small-batch kernel `x-stays-wgmma` for Hopper. tiles.cuh says how it works.
//
// The path of the data: one producer thread has the copy engine bring chunks of packed weights to the stages
// of each warpgroup, before the earlier kernel has ended. x comes to shared memory once, by tensor copies or
// by threads. Each warpgroup multiplies its rows, weights from its stages by x. The blocks of a cluster add
// up their parts of l in shared memory. Results leave from there in whole rows, or directly from registers if
// they are few.
#pragma once

#include "cuda/device/kernel_arguments.cuh"
#include "cuda/small_batch/x_stays/wgmma/store.cuh"

namespace kronsparse::cuda {
namespace x_stays_wgmma {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class T, int samples>
__device__ inline void multiply_step(float (&sums)[samples / 2], std::uint64_t weights, std::uint64_t x,
                                     int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ptx::Wgmma<samples>::bf16_shared(sums, weights, x, add);
  else
    ptx::Wgmma<samples>::f16_shared(sums, weights, x, add);
}

/// Requests the weights of all warpgroups, in turn. Called by one thread.
__device__ inline void produce(const Arguments& args, const SharedLayout& layout, const BlockPlace& place,
                               std::uint32_t base) {
  WeightStream streams[max_warpgroups] = {{args, layout, place, base, 0},
                                          {args, layout, place, base, 1},
                                          {args, layout, place, base, 2},
                                          {args, layout, place, base, 3}};
  for (int chunk = 0; chunk < streams[0].chunks(); ++chunk)
#pragma unroll
    for (int w = 0; w < max_warpgroups; ++w)
      if (w < args.cut.warpgroups) streams[w].request(chunk);
}
#endif

}  // namespace x_stays_wgmma

template <class T, int samples>
__global__ void __launch_bounds__(x_stays_wgmma::max_warpgroups * 128 + x_stays_wgmma::producer_threads, 1)
    multiply_x_stays_wgmma(const __grid_constant__ x_stays_wgmma::Arguments args) {
  using namespace x_stays_wgmma;
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const Cut& cut = args.cut;
  const SharedLayout layout = shared_layout(cut);
  const std::uint32_t base = ptx::shared_address(shared_memory);
  const std::uint32_t x_barriers = base + layout.barriers + cut.warpgroups * cut.stages * barrier_bytes;
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  const bool is_producer = static_cast<int>(threadIdx.x) >= cut.threads;
  ptx::let_later_kernels_start();
  if (args.just_packed) ptx::wait_for_earlier_kernels();
  if (cut.cluster > 1) ptx::cluster_arrive();  // this block has begun: others may write to its shared memory
  const BlockPlace place(args);
  const RowStore<T, samples> store(args, place, layout, base);
  if (is_producer) {
    if (threadIdx.x == cut.threads) {
      for (int w = 0; w < cut.warpgroups; ++w) WeightStream(args, layout, place, base, w).init();
      for (int chunk = 0; chunk < cut.chunks; ++chunk) ptx::barrier_init(x_barriers + chunk * 8, 1);
      ptx::barrier_init_fence();
    }
    __syncwarp();
    ptx::barrier_signal(barriers_are_there, cut.threads + producer_threads);
    if (threadIdx.x == cut.threads) produce(args, layout, place, base);
    __syncwarp();
  } else {
    const TermOrder<T> order{.positions = cut.positions(), .run = cut.run};
    const std::int64_t first_l = std::int64_t{place.rank} * order.positions;
    const XStager<T, 8> stager(args.place, order,
                               static_cast<const T*>(args.x) + place.first_sample * args.place.sample +
                                   ((place.i * args.c + first_l) * args.d + place.j) * args.place.feature,
                               base, cut.threads, place.samples,
                               static_cast<int>(min(args.c - first_l, std::int64_t{order.positions})),
                               static_cast<int>(min(args.d - place.j, std::int64_t{cut.j_group})));
    if (cut.boxes && threadIdx.x == 0) ptx::prefetch_map(&args.x_map);
    read_arguments<sizeof(args.x_map)>(args, base + layout.unused);
    ptx::barrier_of(barriers_are_there, cut.threads + producer_threads);
    ptx::wait_for_earlier_kernels();
    if (!cut.boxes) {
      stager.stage();
      ptx::fence_for_bulk();  // wgmma reads through the same proxy as the copy engine
      ptx::barrier_of(x_is_there, cut.threads);
    } else if (threadIdx.x == 0) {
      for (int chunk = 0; chunk < cut.chunks; ++chunk) {
        ptx::barrier_arrive_expecting(x_barriers + chunk * 8, samples * 128);
        ptx::copy_box(base + chunk * samples * 128, &args.x_map,
                      static_cast<int>(first_l) + chunk * chunk_steps * step_l, place.i, place.first_sample,
                      0, x_barriers + chunk * 8);
      }
    }
  }

  if (cut.cluster > 1) ptx::cluster_wait();
  WeightStream weights(args, layout, place, base, warpgroup);
  const int first_row = place.k_block * cut.block_rows();
  const int end_row = !is_producer && warpgroup < cut.warpgroups ? cut.block_rows() : 0;
#pragma unroll 1
  for (int row = warpgroup; row < end_row; row += cut.warpgroups) {
    const auto panel_row = static_cast<unsigned>(first_row + row);
    const auto j = static_cast<int>(panel_row - args.j_group.quotient(panel_row) * args.j_group.value());
    // Steps of x in shared memory, by the chunk and by the step within it.
    const std::uint32_t x = base + j * layout.plane;
    const int x_chunk = cut.boxes ? samples * 128 : chunk_steps * 2 * layout.vector;
    const int x_step = cut.boxes ? 32 : 2 * layout.vector;
    const std::uint64_t x_form =
        cut.boxes ? ptx::wgmma_swizzled_operand(0) : ptx::wgmma_operand(0, layout.vector, 128);
    float sums[samples / 2];
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < cut.chunks; ++chunk) {
      if (cut.boxes) ptx::barrier_wait(x_barriers + chunk * 8, 0);
      const std::uint32_t left = weights.next();
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < chunk_steps; ++step)
        multiply_step<T, samples>(sums, ptx::wgmma_operand(left + step * step_bytes, 1024, 128),
                                  x_form | ptx::wgmma_operand(x + chunk * x_chunk + step * x_step, 0, 0), 1);
      ptx::wgmma_commit();
      weights.advance();
    }
    ptx::wgmma_wait<0>();
    if (cut.cluster == 1)
      store.store(sums, row);
    else
      store.share_out(sums, row);
  }
  if (cut.cluster > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
    if (!is_producer) store.add_up();
  }
  if (args.y_vector == 0) return;
  __syncthreads();
  store.copy_out();
#endif
}

}  // namespace kronsparse::cuda
