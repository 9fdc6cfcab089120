// The small-batch kernel `sums-stay`. tiles.cuh says how it works.
//
// The path of the data: two producer warps bring x and weights to two rings of stages in shared memory.
// Warpgroups take turns at the stages and multiply: x is the left operand (from shared memory for d = 1, else
// sorted by j into registers), the weights are the right one. Partial sums stay in registers until the end.
// Then warpgroups and the blocks of a cluster add them up, and they leave to y (exchange.cuh).
#pragma once

#include "cuda/device/kernel_arguments.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/small_batch/sums_stay/exchange.cuh"
#include "cuda/small_batch/sums_stay/loads.cuh"

namespace kronsparse::cuda {
namespace sums_stay {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// One warpgroup. It takes every `warpgroups`-th filling of the stages.
template <class T, int block_j, int outputs>
class Consumer {
 public:
  using Sums = float[block_j][outputs / 2];  // (j, sums of a lane)

  __device__ Consumer(const Arguments& args, const BlockPlace& place, const Stages& stages, int warpgroup)
      : args_(args), place_(place), stages_(stages), warpgroup_(warpgroup) {}

  __device__ void multiply(Sums& sums) {
#pragma unroll
    for (auto& of_j : sums) ptx::wgmma_settle(of_j);
    if constexpr (block_j == 1)
      multiply_boxes(sums[0]);
    else
      multiply_sorted(sums);
    ptx::wgmma_wait<0>();
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  using Instruction = ptx::Wgmma<outputs>;

  /// Calls body(x, weights, whether it is the first of a stage) for every slab.
  template <class Body>
  __device__ void for_slabs(Body&& body) {
    const Cut& cut = args_.cut;
    const int fillings = cut.fillings();
    RingPlace at_x, at_weights;
    at_x.skip(cut.x_stages, warpgroup_);
    at_weights.skip(cut.weight_stages, warpgroup_);
#pragma unroll 1
    for (int filling = warpgroup_; filling < fillings; filling += cut.warpgroups) {
      ptx::barrier_wait(stages_.weights.full(at_weights.at), at_weights.parity);
      ptx::barrier_wait(stages_.x.full(at_x.at), at_x.parity);
      const int slabs = min(cut.stage_slabs, cut.slabs - filling * cut.stage_slabs);
#pragma unroll 1
      for (int slab = 0; slab < slabs; ++slab)
        body(stages_.x.data(at_x.at) + slab * cut.box_bytes(),
             stages_.weights.data(at_weights.at) + slab * shape.slab_weight_bytes(), slab == 0);
      // Nobody waits for the last fillings to be used up.
      used_x_ = filling + cut.x_stages < fillings ? at_x.at : -1;
      used_weights_ = filling + cut.weight_stages < fillings ? at_weights.at : -1;
      at_x.skip(cut.x_stages, cut.warpgroups);
      at_weights.skip(cut.weight_stages, cut.warpgroups);
    }
  }

  /// Tells the producers that the previous stages are used up.
  __device__ void release_used() const {
    if (used_x_ < 0 && used_weights_ < 0) return;
    if (!speaks_for_warp()) return;
    if (used_x_ >= 0) ptx::barrier_arrive(stages_.x.empty(used_x_));
    if (used_weights_ >= 0) ptx::barrier_arrive(stages_.weights.empty(used_weights_));
  }

  __device__ static std::uint64_t right(std::uint32_t weights) {
    return ptx::wgmma_operand(weights, outputs * 16, 128);
  }

  __device__ void multiply_boxes(float (&sums)[outputs / 2]) {
    for_slabs([&](std::uint32_t x, std::uint32_t weights, bool is_first) {
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < shape.slab_steps(); ++step) {
        const std::uint64_t left = ptx::wgmma_swizzled_operand(x + step * (step_terms * 2));
        if constexpr (std::is_same_v<T, __nv_bfloat16>)
          Instruction::bf16_shared(sums, left, right(weights + step * shape.step_bytes()), 1);
        else
          Instruction::f16_shared(sums, left, right(weights + step * shape.step_bytes()), 1);
      }
      ptx::wgmma_commit();
      if (is_first) {
        ptx::wgmma_wait<1>();
        release_used();
      }
    });
  }

  /// The loads of a slab overlap the products of the slab before.
  __device__ void multiply_sorted(Sums& sums) {
    using X = SortedX<block_j>;
    X x(args_, first_half<block_j>(place_, warpgroup_));
    std::uint32_t left[X::steps * block_j][4];  // (steps and j, words of an operand)
    for_slabs([&](std::uint32_t slab, std::uint32_t weights, bool is_first) {
      x.load(slab);
      ptx::wgmma_wait<0>();
      if (is_first) release_used();
      x.sort(left);
#pragma unroll
      for (auto& operand : left) ptx::wgmma_settle(operand);
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < X::steps; ++step)
#pragma unroll
        for (int j = 0; j < block_j; ++j) {
          const int product = step * block_j + j;
          const std::uint64_t w = right(weights + product * shape.step_bytes());
          if constexpr (std::is_same_v<T, __nv_bfloat16>)
            Instruction::bf16(sums[j], left[product], w, 1);
          else
            Instruction::f16(sums[j], left[product], w, 1);
        }
      ptx::wgmma_commit();
    });
  }

  const Arguments& args_;
  const BlockPlace& place_;
  const Stages& stages_;
  int warpgroup_;
  int used_x_ = -1, used_weights_ = -1;  ///< stages to be released
};

#endif

}  // namespace sums_stay

template <class T, int block_j, int outputs>
__global__ void __launch_bounds__(sums_stay::Shape{block_j, outputs}.register_threads(), 1)
    multiply_sums_stay(const __grid_constant__ sums_stay::Arguments args) {
  using namespace sums_stay;
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) std::byte shared_memory[];
  Cut cut = args.cut;
  cut.shape = {block_j, outputs};  // so that the compiler knows everything that follows from the shape
  const SharedLayout layout = shared_layout(cut);
  const std::uint32_t base = ptx::shared_address(shared_memory);
  const Stages stages(cut, layout, base);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0), warpgroup = warp / 4;
  const int threads = cut.threads();
  const bool brings_weights = warp == cut.warpgroups * 4;
  ptx::let_later_kernels_start();
  if (args.just_packed) ptx::wait_for_earlier_kernels();
  const BlockPlace place(args);
  if (was_idle(args)) return;
  if (brings_weights) {
    stages.init(cut, args.boxes);
    ptx::barrier_signal(barriers_are_there, threads + producer_threads);
  } else {
    read_arguments<sizeof(args.x_map)>(args, base + layout.unused);
    ptx::barrier_of(barriers_are_there, threads + producer_threads);
  }
  // If l is split, nothing may be sent to a block that has not begun. All threads of a cluster meet here.
  if (cut.splits > 1) ptx::cluster_arrive_relaxed();
  if (warpgroup == cut.warpgroups) {
    if (brings_weights) {
      WeightProducer<block_j, outputs>(args, place, stages.weights).run();
    } else {
      const XProducer<block_j, outputs> producer(args, place, stages.x);
      ptx::wait_for_earlier_kernels();
      producer.run();
    }
    __syncwarp();
    if (cut.splits > 1) ptx::cluster_wait();
    return;
  }

  const SumExchange<T, block_j, outputs> exchange(args, place, layout, stages, base, warp);
  YPlace<T> to = exchange.y_place(place);
  ptx::settle(to.y);
  if (cut.splits > 1) ptx::cluster_wait();
  ptx::wait_for_earlier_kernels();

  float sums[block_j][outputs / 2];
#pragma unroll
  for (int j = 0; j < block_j; ++j)
#pragma unroll
    for (int at = 0; at < outputs / 2; ++at) sums[j][at] = 0.0f;
  Consumer<T, block_j, outputs>(args, place, stages, warpgroup).multiply(sums);
  exchange.run(sums, to);
#endif
}

}  // namespace kronsparse::cuda
