// The arguments of a launch, as its threads read them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/ptx.cuh"
#include "cuda/device/ptx_sm90.cuh"

namespace kronsparse::cuda {

/// Reads all arguments but the first `skipped` bytes now. The first read of each line of arguments goes to
/// memory, and nobody has to wait for it later. `unused` are 4 bytes of shared memory that nobody reads.
template <std::size_t skipped, class Arguments>
__device__ inline void read_arguments(const Arguments& args, std::uint32_t unused) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(&args);
  std::uint32_t all = 0;
#pragma unroll
  for (std::size_t word = skipped / 4; word < sizeof(args) / 4; word += 8) all ^= words[word];
  if (threadIdx.x % 32 == 0) ptx::store_shared_4(unused, all);
}

/// Whether the block only keeps a multiprocessor busy (idle_blocks.hpp). If so, it has waited for the earlier
/// kernels and must end. Ask this after the block has let later kernels start.
template <class Arguments>
[[nodiscard]] __device__ inline bool was_idle(const Arguments& args) {
  if (ptx::block_number() < args.blocks) return false;
  ptx::wait_for_earlier_kernels();
  return true;
}

}  // namespace kronsparse::cuda
