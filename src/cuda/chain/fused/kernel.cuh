// The kernel `fused`: a chain of products in one pass over x and y, on tensor cores from sm_80 on (mma.sync).
//
// A tile of samples goes through all products in shared memory (tiles.cuh). Weights are the tensor core's
// left operand: they come in fragment order from L2 to registers, ahead of their use, and each is read once
// per tile. Lines of features are the right operand. The next tile's x is copied meanwhile. A chain that is
// too wide for one block is computed by a cluster: every block has its share of the (i, j) of each product,
// and stores results into the memory of the block that needs them next.
#pragma once

#include "cuda/chain/fused/loads.cuh"
#include "cuda/chain/fused/products.cuh"
#include "cuda/chain/fused/store.cuh"

namespace kronsparse::cuda {
namespace fused {

/// Fills the tables: the items of each step, and where each output of a step, and each feature of x, belongs.
template <class Traits>
__device__ inline void fill_tables(const Arguments& p, int rank, std::uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int s = 0; s < p.steps; ++s) {
    const Step& step = p.step[s];
    const bool in_parts = s + 1 == p.steps && p.parts > 1;
    const int outputs = step.m_groups * step.m_tiles * 16;
    const int of_part = step.groups_of_part * step.m_tiles * 16;
    const int j_count = static_cast<int>(step.j_count.value());
    const int i_first = rank / step.ranks_j * step.i_count, j_first = rank % step.ranks_j * j_count;
    for (int at = thread; at < step.blocks * outputs; at += threads) {
      const int block = at / outputs, k = at - block * outputs;
      const int i = i_first + block / j_count, j = j_first + block % j_count;
      Entry entry = no_entry;
      if (k < step.b) {
        // A step in parts numbers its features within a part.
        const int feature =
            in_parts ? (i * of_part + k % of_part) * step.d + j : (i * step.b + k) * step.d + j;
        entry = entry_of(Traits::line(), p.space[s + 1], feature);
      }
      ptx::store_shared_4(shared + step.table + at * 4, entry);
    }
    for (int at = thread; at < step.blocks * step.m_groups; at += threads) {
      const int in_part = step.blocks * step.groups_of_part;
      const int part = at / in_part, rest = at - part * in_part;
      const int block = rest / step.groups_of_part;
      const int tile = (part * step.groups_of_part + rest % step.groups_of_part) * step.m_tiles;
      const int i = i_first + block / j_count, j = j_first + block % j_count;
      const std::int64_t weights =
          step.weights / 16 +
          ((static_cast<std::int64_t>(i) * step.d + j) * step.tiles + tile) * step.k_steps * 32;
      ptx::store_shared_16(shared + step.items + at * static_cast<int>(sizeof(Item)),
                           static_cast<std::uint32_t>(weights),
                           static_cast<std::uint32_t>(block * step.terms),
                           static_cast<std::uint32_t>(step.table + (block * outputs + tile * 16) * 4) |
                               static_cast<std::uint32_t>(min(step.m_tiles * 16, step.b - tile * 16)) << 24,
                           static_cast<std::uint32_t>((i * step.b + tile * 16) * step.d + j));
    }
  }
  if (!p.samples_first || p.x_rows) return;
  const int first = rank * p.x_features;
  for (int at = thread; at < min(p.x_features, p.x_all - first); at += threads)
    ptx::store_shared_4(shared + p.x_table + at * 4, entry_of(Traits::line(), p.space[0], first + at));
}

/// Adds the exponents that were packed with the weights to the entries of the outputs. Each thread goes
/// through those that it has filled.
__device__ inline void fill_exponents(const Arguments& p, int rank, std::uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int s = 0; s < p.steps; ++s) {
    const Step& step = p.step[s];
    if (step.exponents < 0) continue;
    const int outputs = step.m_groups * step.m_tiles * 16;
    const int j_count = static_cast<int>(step.j_count.value());
    const int i_first = rank / step.ranks_j * step.i_count, j_first = rank % step.ranks_j * j_count;
    for (int at = thread; at < step.blocks * outputs; at += threads) {
      const int block = at / outputs, k = at - block * outputs;
      if (k >= step.b) continue;
      const int i = i_first + block / j_count, j = j_first + block % j_count;
      const auto exponent =
          static_cast<Entry>(p.weights[step.exponents + (std::int64_t{i} * step.b + k) * step.d + j]);
      const std::uint32_t entry = shared + step.table + at * 4;
      ptx::store_shared_4(entry, ptx::load_shared_4(entry) | exponent << 24);
    }
  }
}

}  // namespace fused

template <class Traits>
__global__ void __launch_bounds__(fused::most_threads, 1)
    multiply_fused(const __grid_constant__ fused::Arguments p) {
  using namespace fused;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const Lane at = this_lane();
  const int rank = static_cast<int>(blockIdx.x) % p.ranks;
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(p.ranks);
  fill_tables<Traits>(p, rank, shared);
#if KRONSPARSE_HAS_CLUSTERS
  ptx::let_later_kernels_start();
  ptx::wait_for_earlier_kernels();
#endif
  // No block stores into another before that has begun.
  meet(p);
  const bool ahead = p.x_buffers > 1;
  std::int64_t tile = static_cast<int>(blockIdx.x) / p.ranks;
  int parity = 0;
  copy_x<Traits>(p, tile, rank, parity, shared, at);
  fill_exponents(p, rank, shared);
  for (; tile < p.tiles; tile += clusters) {
    if (ahead) {
      copy_x<Traits>(p, tile + clusters, rank, parity ^ 1, shared, at);
      ptx::wait_copies<1>();
    } else {
      ptx::wait_copies<0>();
    }
    if (p.samples_first && !p.x_rows) {
      __syncthreads();
      rows_to_lines<Traits>(p, rank, parity, shared, at);
      __syncthreads();
      copy_x<Traits>(p, tile + clusters, rank, parity, shared, at);
    }
    for (int s = 0; s < p.steps; ++s) {
      const bool is_last = s + 1 == p.steps;
      const Place& to = p.space[s + 1].place;
      for (int part = 0; part < (is_last ? p.parts : 1); ++part) {
        if (s == 0 && p.x_rows)
          multiply_step<Traits, RowReader>(p, s, part, parity, shared, at);
        else
          multiply_step<Traits, LineReader>(p, s, part, parity, shared, at);
        if (!is_last) continue;
        meet(p);
        YStore<Traits>(p, tile, rank, part, shared + to.of_tile(parity)).store_all(at);
      }
      if (!is_last) clear_padding<Traits>(p.step[s + 1], p.terms[s + 1], shared + to.of_tile(parity));
    }
    if (p.waits_at_end) meet(p);
    if (!ahead && (!p.samples_first || p.x_rows)) {
      __syncthreads();
      copy_x<Traits>(p, tile + clusters, rank, parity, shared, at);
    } else {
      __syncthreads();
    }
    if (ahead) parity ^= 1;
  }
  ptx::wait_copies<0>();
  // No block ends while another may store into it.
  meet(p);
}

}  // namespace kronsparse::cuda
