// Stands in for src/cuda/device/wgmma.cuh when kernels run on the CPU (see block.hpp).
#pragma once

#include "builtins.hpp"

namespace kronsparse::cuda::ptx {

template <int N>
struct Wgmma {
  using Sums = float[N / 2];
  using Left = std::uint32_t[4];
  using Kind = emulation::WgmmaIssue::Kind;
  using Form = emulation::WgmmaIssue::Left;

  static void f16(Sums& d, const Left& a, std::uint64_t b, int add) { issue(Kind::f16, d, a, b, add); }
  static void bf16(Sums& d, const Left& a, std::uint64_t b, int add) { issue(Kind::bf16, d, a, b, add); }
  static void tf32(Sums& d, const Left& a, std::uint64_t b, int add) { issue(Kind::tf32, d, a, b, add); }

  static void f16_shared(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::f16, Form::rows, d, a, b, add);
  }
  static void bf16_shared(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::bf16, Form::rows, d, a, b, add);
  }
  static void f16_columns(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::f16, Form::columns, d, a, b, add);
  }
  static void bf16_columns(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::bf16, Form::columns, d, a, b, add);
  }
  static void f16_both_columns(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::f16, Form::columns, d, a, b, add, true);
  }
  static void bf16_both_columns(Sums& d, std::uint64_t a, std::uint64_t b, int add) {
    issue(Kind::bf16, Form::columns, d, a, b, add, true);
  }

 private:
  static void issue(Kind kind, Sums& d, const Left& a, std::uint64_t b, int add) {
    emulation::Block::current().issue({kind, Form::registers, N, d, a, 0, b, add != 0, false});
  }
  static void issue(Kind kind, Form form, Sums& d, std::uint64_t a, std::uint64_t b, int add,
                    bool right_columns = false) {
    emulation::Block::current().issue({kind, form, N, d, nullptr, a, b, add != 0, right_columns});
  }
};

inline void wgmma_settle(std::uint32_t (&/*a*/)[4]) {}
template <int count>
inline void wgmma_settle(float (&/*sums*/)[count]) {}
inline void wgmma_fence() {}
inline void wgmma_commit() { emulation::Block::current().commit_products(); }
template <int Pending>
inline void wgmma_wait() {
  emulation::Block::current().wait_products(Pending);
}

/// In the hardware's form: addresses and distances in units of 16 bytes, of 14 bits each.
inline std::uint64_t wgmma_operand(std::uint32_t address, int next_terms, int next_columns) {
  return static_cast<std::uint64_t>((address & 0x3ffff) >> 4) |
         static_cast<std::uint64_t>(next_terms >> 4) << 16 |
         static_cast<std::uint64_t>(next_columns >> 4) << 32;
}

/// The same for rows of 128 bytes, swizzled.
inline std::uint64_t wgmma_swizzled_operand(std::uint32_t address, int next_columns = 1024) {
  return wgmma_operand(address, next_columns, 1024) | emulation::kSwizzled;
}

}  // namespace kronsparse::cuda::ptx
