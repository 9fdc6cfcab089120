// CUDA's built-in variables and functions, which a C++ compiler lacks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>  // NOLINT: unqualified fmaf, erf, isfinite, as device code has them

#include <bit>
#include <cstdint>

#include "block.hpp"

// For the running thread; the scheduler sets them.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

// NOLINTBEGIN: the names are CUDA's

// CUDA's headers define the other qualifiers as nothing. (A GNU attribute may be empty, too.)
#define __launch_bounds__(...)
#define __noinline__

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline int __ffs(int value) { return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1; }
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, const T& value) {
  *address = value;
}
/// Only for values that are equal in all lanes.
template <class T>
T __shfl_sync(unsigned /*lanes*/, T value, int /*from*/) {
  return value;
}
/// The value of the lane that `source` names for each lane.
template <class Source>
std::uint32_t value_of_lane(std::uint32_t value, const Source& source) {
  auto& block = kronsparse::emulation::Block::current();
  const int first = block.thread().index / 32 * 32;
  block.thread().lane_registers[0] = value;
  block.meet(block.warp_meeting(), 32, [&block, first, source] {
    for (int lane = 0; lane < 32; ++lane)
      block.thread(first + lane).lane_registers[1] = block.thread(first + source(lane)).lane_registers[0];
  });
  return block.thread().lane_registers[1];
}
/// The value of the lane whose number differs in the bits of `by`.
inline std::uint32_t __shfl_xor_sync(unsigned /*lanes*/, std::uint32_t value, int by) {
  return value_of_lane(value, [by](int lane) { return lane ^ by; });
}
/// The value of the lane `by` before, or after; the own one at the end of the warp.
inline std::uint32_t __shfl_up_sync(unsigned /*lanes*/, std::uint32_t value, int by) {
  return value_of_lane(value, [by](int lane) { return lane >= by ? lane - by : lane; });
}
inline std::uint32_t __shfl_down_sync(unsigned /*lanes*/, std::uint32_t value, int by) {
  return value_of_lane(value, [by](int lane) { return lane + by < 32 ? lane + by : lane; });
}
inline int __clz(int value) { return std::countl_zero(static_cast<unsigned>(value)); }

/// Four bytes of the eight of (low, high), each chosen by a digit of the selector.
inline std::uint32_t __byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (unsigned byte = 0; byte < 4; ++byte)
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * byte) & 7)) & 0xff) << (8 * byte);
  return result;
}

/// 32 of the 64 bits of (low, high), from bit `by` of the low ones on.
inline std::uint32_t __funnelshift_r(std::uint32_t low, std::uint32_t high, std::uint32_t by) {
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> (by & 31));
}

inline void __syncthreads() {
  auto& block = kronsparse::emulation::Block::current();
  block.meet(block.numbered_meeting(0), block.size());
}
inline void __syncwarp() {
  auto& block = kronsparse::emulation::Block::current();
  block.meet(block.warp_meeting(), 32);
}
// NOLINTEND

namespace kronsparse::cuda {

/// The most that an H200 lets a block have.
inline constexpr int kEmulatedSharedBytes = 227 * 1024;
/// The name in every kernel's `extern __shared__`. Each block has its own memory, which only addresses reach.
extern std::byte shared_memory[];
/// The name in those of the FMA units, which use pointers: the memory of a block that is alone in its
/// cluster.
namespace simt {
extern unsigned char shared_bytes[];
}

}  // namespace kronsparse::cuda
