// The kernel that multiplies factors together, on the CPU.
#include "chain/chain_run.hpp"
#include "cuda/packing/merging.cuh"

namespace kronsparse::emulation {

void run_merging(const cuda::MergeTask& task, Timing timing) {
  constexpr int blocks = 3;
  launch(blocks, 1, cuda::merging::threads, 0, timing, {}, [task] {
    switch (task.dtype) {
      case DType::f16:
        return cuda::merging::merge_in_grid<__half>(task);
      case DType::bf16:
        return cuda::merging::merge_in_grid<__nv_bfloat16>(task);
      default:
        return cuda::merging::merge_in_grid<float>(task);
    }
  });
}

}  // namespace kronsparse::emulation
