// Blocks that do nothing but keep multiprocessors.
//
// Small-batch kernels overlap: while one works on half of the multiprocessors, the next waits on the other
// half and requests its weights. Multiprocessors come in pairs that share a path to memory. The first kernels
// of a stream get one of each pair; each later kernel gets the multiprocessors that the kernel before the
// last has left, as long as nothing else is free. If two kernels leave a few multiprocessors free, blocks
// move there and the kernels drift, until one kernel has both of nearly all pairs. A run then takes up to a
// quarter longer (docs/notes/small-batches.md). So idle blocks keep the places that would be free. Host code
// only; kernel_arguments.cuh has the kernels' part.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

/// The number of blocks to launch, in whole clusters. As many such kernels as fit side by side, with one
/// block on each multiprocessor, then leave as few multiprocessors free as possible.
[[nodiscard]] inline unsigned with_idle_blocks(std::int64_t blocks, const GpuFacts& facts,
                                               int cluster_blocks = 1) {
  if (blocks < 1 || facts.multiprocessors < 2 * blocks) return static_cast<unsigned>(blocks);
  const std::int64_t kernels = facts.multiprocessors / blocks, part = facts.multiprocessors / kernels;
  return static_cast<unsigned>(std::max(blocks, part - part % cluster_blocks));
}

}  // namespace kronsparse::cuda
