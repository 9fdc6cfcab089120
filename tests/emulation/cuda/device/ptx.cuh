// Stands in for src/cuda/device/ptx.cuh when kernels run on the CPU (see block.hpp).
#pragma once

#include <cstring>

#include "builtins.hpp"

namespace kronsparse::cuda::ptx {

using emulation::Block;

/// Not 0, so that an offset mistaken for an address is noticed.
inline constexpr std::uint32_t kSharedBase = 1024;

inline std::uint32_t shared_address(const void* pointer) {
  const auto* byte = static_cast<const std::byte*>(pointer);
  const std::byte* base = emulation::Block::reached_by_pointers();
  const bool is_there = byte >= base && byte < base + kEmulatedSharedBytes;
  return kSharedBase + static_cast<std::uint32_t>(byte - (is_there ? base : shared_memory));
}

inline std::uint32_t block_number() { return Block::current().number(); }

inline void copy_async_4(std::uint32_t to, const void* from, bool valid) {
  Block::current().copy_async(to, from, valid ? 4 : 0, 4);
}
inline void copy_async_16(std::uint32_t to, const void* from, int bytes) {
  Block::current().copy_async(to, from, bytes, 16);
}
template <int size>
inline void copy_async(std::uint32_t to, const void* from, int bytes) {
  Block::current().copy_async(to, from, bytes, size);
}
template <int size>
inline void copy_async_of_line(std::uint32_t to, const void* from, int bytes) {
  Block::current().copy_async(to, from, bytes, size);
}
inline void commit_copies() { Block::current().commit_copies(); }
template <int Pending>
inline void wait_copies() {
  Block::current().wait_copies(Pending);
}

template <class Vector>
inline Vector load_shared(std::uint32_t address) {
  Vector value;
  std::memcpy(&value, Block::current().shared(address, sizeof value, sizeof value), sizeof value);
  return value;
}
template <class Vector>
inline void store_shared(std::uint32_t address, const Vector& value) {
  std::memcpy(Block::current().shared(address, sizeof value, sizeof value), &value, sizeof value);
}
template <class T>
inline void settle(T*&) {}
inline void settle(std::uint32_t&) {}
template <std::size_t count>
inline void store_words(void* to, const std::uint32_t (&words)[count]) {
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof words != 0)
    throw emulation::EmulationError("words are stored to an address that is not aligned");
  std::memcpy(to, words, sizeof words);
}
template <std::size_t count>
inline void store_words_if(bool is_there, void* to, const std::uint32_t (&words)[count]) {
  if (is_there) store_words(to, words);
}
inline uint4 load_shared_16(std::uint32_t address) { return load_shared<uint4>(address); }
inline uint2 load_shared_8(std::uint32_t address) { return load_shared<uint2>(address); }
inline std::uint32_t load_shared_4(std::uint32_t address) { return load_shared<std::uint32_t>(address); }
inline void store_shared_4(std::uint32_t address, std::uint32_t value) { store_shared(address, value); }

/// Register m of lane 4g + t holds elements 2t and 2t + 1 of row g of matrix m (transposed: element g of rows
/// 2t and 2t + 1). Row r of matrix m begins at the address that lane 8m + r gives.
template <bool Transposed>
inline uint4 load_matrices_of_warp(std::uint32_t address) {
  Block& block = Block::current();
  const int first = block.thread().index / 32 * 32;
  block.thread().lane_address = address;
  block.meet(block.warp_meeting(), 32, [&block, first] {
    for (int lane = 0; lane < 32; ++lane)
      for (int m = 0; m < 4; ++m) {
        std::uint32_t pair = 0;
        for (int odd = 0; odd < 2; ++odd) {
          std::uint16_t element = 0;
          const int place = lane % 4 * 2 + odd;
          const int row = Transposed ? place : lane / 4;
          const int column = Transposed ? lane / 4 : place;
          std::memcpy(&element,
                      block.shared(block.thread(first + 8 * m + row).lane_address, 16, 16) + column * 2, 2);
          pair |= std::uint32_t{element} << (16 * odd);
        }
        block.thread(first + lane).lane_registers[static_cast<std::size_t>(m)] = pair;
      }
  });
  const auto& registers = block.thread().lane_registers;
  return {registers[0], registers[1], registers[2], registers[3]};
}

inline uint4 load_matrices(std::uint32_t address) { return load_matrices_of_warp<false>(address); }
inline uint4 load_matrices_transposed(std::uint32_t address) { return load_matrices_of_warp<true>(address); }

inline void mma_f16(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  Block::current().multiply_in_warp({emulation::WgmmaIssue::Kind::f16, d, {a.x, a.y, a.z, a.w}, {b0, b1}});
}
inline void mma_bf16(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  Block::current().multiply_in_warp({emulation::WgmmaIssue::Kind::bf16, d, {a.x, a.y, a.z, a.w}, {b0, b1}});
}

inline void mma_tf32(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  Block::current().multiply_in_warp({emulation::WgmmaIssue::Kind::tf32, d, {a.x, a.y, a.z, a.w}, {b0, b1}});
}

/// Rounds to nearest, ties away from zero.
inline std::uint32_t round_to_tf32(std::uint32_t bits) {
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

}  // namespace kronsparse::cuda::ptx
