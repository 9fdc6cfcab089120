// The product of strips. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/kernel_set.hpp"
#include "cpu/amx/tiles.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// A strips of rows times B of columns. Registers 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns.
/// Weights in two pieces are two tiles for one of X, which stays where it is for the second.
template <int A, int B>
void product(const amx::ProductArgs& args) {
  clear_tile<0>();
  if constexpr (B == 2) clear_tile<1>();
  if constexpr (A == 2) clear_tile<2>();
  if constexpr (A == 2 && B == 2) clear_tile<3>();
  for (int64_t tile = 0; tile < args.tiles; ++tile) {
    const int64_t a_offset = tile * args.a_pieces * amx::tile_bytes;
    const int64_t b_offset = tile * args.b_pieces * amx::tile_bytes;
    const bool in_place = tile < args.in_place_tiles;
    const int64_t a_stride = in_place ? args.in_place_stride : 64;
    load_tile<4>(in_place ? args.in_place[0] + tile * 64 : args.a[0] + a_offset, a_stride);
    load_tile<6>(args.b[0] + b_offset, 64);
    multiply_tiles<0, 4, 6>();
    if constexpr (B == 2) {
      load_tile<7>(args.b[1] + b_offset, 64);
      multiply_tiles<1, 4, 7>();
    }
    if constexpr (A == 2) {
      load_tile<5>(in_place ? args.in_place[1] + tile * 64 : args.a[1] + a_offset, a_stride);
      multiply_tiles<2, 5, 6>();
    }
    if constexpr (A == 2 && B == 2) multiply_tiles<3, 5, 7>();
    if (args.a_pieces == 2) {
      load_tile<4>(args.a[0] + a_offset + amx::tile_bytes, 64);
      multiply_tiles<0, 4, 6>();
      if constexpr (B == 2) multiply_tiles<1, 4, 7>();
      if constexpr (A == 2) {
        load_tile<5>(args.a[1] + a_offset + amx::tile_bytes, 64);
        multiply_tiles<2, 5, 6>();
      }
      if constexpr (A == 2 && B == 2) multiply_tiles<3, 5, 7>();
    }
    if (args.b_pieces == 2) {
      load_tile<6>(args.b[0] + b_offset + amx::tile_bytes, 64);
      multiply_tiles<0, 4, 6>();
      if constexpr (A == 2) multiply_tiles<2, 5, 6>();
      if constexpr (B == 2) {
        load_tile<7>(args.b[1] + b_offset + amx::tile_bytes, 64);
        multiply_tiles<1, 4, 7>();
      }
      if constexpr (A == 2 && B == 2) multiply_tiles<3, 5, 7>();
    }
    if (args.next_x != nullptr) args.next_x->advance();
  }
  const int64_t stride = args.c_stride * 4;
  store_tile<0>(args.c, stride);
  if constexpr (B == 2) store_tile<1>(args.c + args.c_b_step, stride);
  if constexpr (A == 2) store_tile<2>(args.c + args.c_a_step, stride);
  if constexpr (A == 2 && B == 2) store_tile<3>(args.c + args.c_a_step + args.c_b_step, stride);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
