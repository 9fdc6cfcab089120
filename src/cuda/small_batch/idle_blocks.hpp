// Kernels for small batches overlap: while one works on half of the multiprocessors, the next waits on the
// other half with its weights on their way. Multiprocessors come in pairs that share a way to memory, and the
// first kernels of a stream get one of each pair. Later ones get what those before the last have left, which
// is the same again as long as it is all there is. Where two kernels leave a few multiprocessors free, blocks
// move there and the kernels drift, until one has both of nearly all pairs: a run then takes up to a quarter
// longer (docs/notes/small-batches.md). So blocks that do nothing keep the places that would be free. Host code only;
// kernel_arguments.cuh has the kernels' part.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

/// Blocks to launch, whole clusters of them, so that as many kernels as fit beside each other, with a block
/// on each multiprocessor, leave as little as possible.
[[nodiscard]] inline unsigned with_idle_blocks(std::int64_t blocks, const GpuFacts& facts,
                                               int cluster_blocks = 1) {
  if (blocks < 1 || facts.multiprocessors < 2 * blocks) return static_cast<unsigned>(blocks);
  const std::int64_t kernels = facts.multiprocessors / blocks, part = facts.multiprocessors / kernels;
  return static_cast<unsigned>(std::max(blocks, part - part % cluster_blocks));
}

}  // namespace kronsparse::cuda
