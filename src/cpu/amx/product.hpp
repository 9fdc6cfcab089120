// The product of strips. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/kernel_set.hpp"
#include "cpu/amx/tiles.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// A strips of rows times B of columns. Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns.
template <int A, int B>
void product(const amx::ProductArgs& args) {
  clear_tile<0>();
  if constexpr (B == 2) clear_tile<1>();
  if constexpr (A == 2) clear_tile<2>();
  if constexpr (A == 2 && B == 2) clear_tile<3>();
  for (int64_t offset = 0; offset < args.tiles * amx::tile_bytes; offset += amx::tile_bytes) {
    load_tile<4>(args.a[0] + offset, 64);
    load_tile<6>(args.b[0] + offset, 64);
    multiply_tiles<0, 4, 6>();
    if constexpr (B == 2) {
      load_tile<7>(args.b[1] + offset, 64);
      multiply_tiles<1, 4, 7>();
    }
    if constexpr (A == 2) {
      load_tile<5>(args.a[1] + offset, 64);
      multiply_tiles<2, 5, 6>();
    }
    if constexpr (A == 2 && B == 2) multiply_tiles<3, 5, 7>();
    if (args.next_x != nullptr) args.next_x->advance();
  }
  const int64_t stride = args.c_stride * 4;
  store_tile<0>(args.c, stride);
  if constexpr (B == 2) store_tile<1>(args.c + args.c_b_step, stride);
  if constexpr (A == 2) store_tile<2>(args.c + args.c_a_step, stride);
  if constexpr (A == 2 && B == 2) store_tile<3>(args.c + args.c_a_step + args.c_b_step, stride);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
