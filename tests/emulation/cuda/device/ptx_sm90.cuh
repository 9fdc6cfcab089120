// Stands in for src/cuda/device/ptx_sm90.cuh when kernels run on the CPU (see block.hpp).
#pragma once

#include <array>
#include <span>

#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda::ptx {

inline void barrier_init(std::uint32_t barrier, int arrivals) {
  Block::current().init_barrier(barrier, arrivals);
}
inline void barrier_init_fence() {}
inline void barrier_arrive(std::uint32_t barrier) { Block::current().arrive(barrier); }
inline void barrier_arrive_expecting(std::uint32_t barrier, int bytes) {
  Block::current().arrive(barrier, bytes);
}
inline void barrier_arrive_after_copies(std::uint32_t barrier) {
  Block::current().arrive_after_copies(barrier);
}
inline void barrier_wait(std::uint32_t barrier, int parity) {
  Block::current().wait_phase(barrier, static_cast<unsigned>(parity));
}

inline void copy_bulk(std::uint32_t to, const void* from, int bytes, std::uint32_t barrier) {
  Block::current().copy_bulk(to, from, bytes, barrier);
}
inline void store_bulk(void* to, std::uint32_t from, int bytes) {
  Block::current().store_bulk(to, from, bytes);
}
inline void commit_bulk_stores() { Block::current().commit_stores(); }
template <int Pending = 0>
inline void wait_bulk_stores() {
  Block::current().wait_stores(Pending);
}

/// The tensor that the emulation's own tensor_map() has put there.
inline const emulation::Tensor& tensor_of(const void* map) {
  return *static_cast<const emulation::Tensor*>(map);
}
inline void prefetch_bulk(const void* from, int bytes) { Block::current().prefetch_bulk(from, bytes); }
inline void prefetch_map(const void*) {}
inline void copy_box(std::uint32_t to, const void* map, int at0, int at1, int at2, int at3,
                     std::uint32_t barrier) {
  Block::current().copy_box(to, tensor_of(map), {at0, at1, at2, at3}, barrier);
}
inline void store_box(const void* map, int at0, int at1, int at2, int at3, std::uint32_t from) {
  Block::current().store_box(tensor_of(map), {at0, at1, at2, at3}, from);
}
inline void fence_for_bulk() {}

inline void wait_for_earlier_kernels() {}
inline void let_later_kernels_start() {}

inline void cluster_arrive() { Block::current().arrive_at_cluster(); }
inline void cluster_arrive_relaxed() { cluster_arrive(); }
inline void cluster_wait() { Block::current().wait_for_cluster(); }
inline void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}

/// The rank of a block is in bits that no address in shared memory uses.
inline constexpr int kRankShift = 24;
inline std::uint32_t cluster_address(std::uint32_t address, std::uint32_t rank) {
  return address | rank << kRankShift;
}
inline std::byte* shared_of_cluster(std::uint32_t address, int bytes) {
  const auto& blocks = Block::current().cluster().blocks;
  return blocks.at(address >> kRankShift)->shared(address & ((1u << kRankShift) - 1), bytes, bytes);
}
inline void copy_bulk_to_cluster(std::uint32_t to, std::uint32_t from, int bytes, std::uint32_t barrier) {
  if (to >> kRankShift != barrier >> kRankShift)
    throw emulation::EmulationError("a copy to one block, with the barrier of another");
  const std::byte* source = Block::current().shared(from, bytes, 16);
  Block::current()
      .cluster()
      .blocks.at(to >> kRankShift)
      ->receive_bulk(to & ((1u << kRankShift) - 1), source, bytes, barrier & ((1u << kRankShift) - 1));
}
inline uint4 load_cluster_16(std::uint32_t address) {
  uint4 value;
  std::memcpy(&value, shared_of_cluster(address, 16), 16);
  return value;
}
inline void store_cluster_floats(std::uint32_t address, float v0, float v1) {
  const std::array<float, 2> values{v0, v1};
  std::memcpy(shared_of_cluster(address, 8), values.data(), 8);
}
inline void store_cluster_16(std::uint32_t address, std::uint32_t v0, std::uint32_t v1, std::uint32_t v2,
                             std::uint32_t v3) {
  const std::array values{v0, v1, v2, v3};
  std::memcpy(shared_of_cluster(address, 16), values.data(), 16);
}
inline void store_cluster_4(std::uint32_t address, std::uint32_t value) {
  std::memcpy(shared_of_cluster(address, 4), &value, 4);
}
/// The values are taken now, whenever they arrive.
template <std::size_t count>
inline void store_async(std::uint32_t to, const std::array<float, count>& values, std::uint32_t barrier) {
  if (to >> kRankShift != barrier >> kRankShift)
    throw emulation::EmulationError("a store to one block, with the barrier of another");
  Block::current()
      .cluster()
      .blocks.at(to >> kRankShift)
      ->receive_stored(to & ((1u << kRankShift) - 1), std::as_bytes(std::span(values)),
                       barrier & ((1u << kRankShift) - 1));
}
inline void store_async_floats(std::uint32_t address, float v0, float v1, std::uint32_t barrier) {
  store_async<2>(address, {v0, v1}, barrier);
}
inline void store_async_floats(std::uint32_t address, float v0, float v1, float v2, float v3,
                               std::uint32_t barrier) {
  store_async<4>(address, {v0, v1, v2, v3}, barrier);
}

inline void barrier_of(int number, int threads) {
  Block::current().meet(Block::current().numbered_meeting(number), threads);
}

inline void barrier_signal(int number, int threads) {
  Block::signal(Block::current().numbered_meeting(number), threads);
}

/// Lane 4g + t holds elements 2t and 2t + 1 of row g (transposed: of column g) of each of four matrices.
template <bool Transposed>
inline void store_matrices_of_warp(std::uint32_t address, std::uint32_t r0, std::uint32_t r1,
                                   std::uint32_t r2, std::uint32_t r3) {
  Block& block = Block::current();
  const int first = block.thread().index / 32 * 32;
  block.thread().lane_address = address;
  block.thread().lane_registers = {r0, r1, r2, r3};
  block.meet(block.warp_meeting(), 32, [&block, first] {
    for (int lane = 0; lane < 32; ++lane)
      for (int m = 0; m < 4; ++m)
        for (int odd = 0; odd < 2; ++odd) {
          const auto element = static_cast<std::uint16_t>(
              block.thread(first + lane).lane_registers[static_cast<std::size_t>(m)] >> (16 * odd));
          const int pair = lane % 4 * 2 + odd;
          const int row = Transposed ? pair : lane / 4;
          const int column = Transposed ? lane / 4 : pair;
          std::memcpy(block.shared(block.thread(first + 8 * m + row).lane_address, 16, 16) + column * 2,
                      &element, 2);
        }
  });
}
/// The inverse of load_matrices_transposed.
inline void store_matrices_transposed(std::uint32_t address, std::uint32_t r0, std::uint32_t r1,
                                      std::uint32_t r2, std::uint32_t r3) {
  store_matrices_of_warp<true>(address, r0, r1, r2, r3);
}
inline void store_matrices(std::uint32_t address, std::uint32_t r0, std::uint32_t r1, std::uint32_t r2,
                           std::uint32_t r3) {
  store_matrices_of_warp<false>(address, r0, r1, r2, r3);
}

inline void store_shared_2(std::uint32_t address, std::uint16_t value) {
  std::memcpy(Block::current().shared(address, 2, 2), &value, 2);
}
inline void store_shared_float(std::uint32_t address, float value) {
  std::memcpy(Block::current().shared(address, 4, 4), &value, 4);
}
inline void store_shared_floats(std::uint32_t address, float v0, float v1) {
  store_shared(address, float2{v0, v1});
}
inline void store_shared_floats(std::uint32_t address, float v0, float v1, float v2, float v3) {
  store_shared(address, float4{v0, v1, v2, v3});
}
inline std::uint16_t load_shared_2(std::uint32_t address) {
  std::uint16_t value = 0;
  std::memcpy(&value, Block::current().shared(address, 2, 2), 2);
  return value;
}
inline void store_shared_8(std::uint32_t address, std::uint32_t v0, std::uint32_t v1) {
  store_shared(address, uint2{v0, v1});
}
inline void store_shared_16(std::uint32_t address, std::uint32_t v0, std::uint32_t v1, std::uint32_t v2,
                            std::uint32_t v3) {
  store_shared(address, uint4{v0, v1, v2, v3});
}

template <int Registers>
inline void give_registers() {}
template <int Registers>
inline void take_registers() {}

}  // namespace kronsparse::cuda::ptx
