// The product of strips. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/kernel_set.hpp"
#include "cpu/amx/tiles.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

/// One tile of each of one or two strips.
struct Tiles {
  const std::byte* const* strips;
  int64_t offset;
  int64_t stride;

  [[nodiscard]] KRONSPARSE_INLINE const std::byte* of(int strip) const { return strips[strip] + offset; }
};

/// A tiles of rows times B of columns; those that are not loaded are still there. Registers 0 to 3 hold sums,
/// 4 and 5 rows, 6 and 7 columns.
template <int A, int B, bool loads_rows, bool loads_columns>
KRONSPARSE_INLINE void multiply_pairs(const Tiles& rows, const Tiles& columns) {
  if constexpr (loads_rows) load_tile<4>(rows.of(0), rows.stride);
  if constexpr (loads_columns) load_tile<6>(columns.of(0), columns.stride);
  multiply_tiles<0, 4, 6>();
  if constexpr (B == 2) {
    if constexpr (loads_columns) load_tile<7>(columns.of(1), columns.stride);
    multiply_tiles<1, 4, 7>();
  }
  if constexpr (A == 2) {
    if constexpr (loads_rows) load_tile<5>(rows.of(1), rows.stride);
    multiply_tiles<2, 5, 6>();
  }
  if constexpr (A == 2 && B == 2) multiply_tiles<3, 5, 7>();
}

/// A strips of rows times B of columns. Weights in two pieces are two tiles for one of X, which stays where
/// it is for the second.
template <int A, int B>
void product(const amx::ProductArgs& args) {
  clear_tile<0>();
  if constexpr (B == 2) clear_tile<1>();
  if constexpr (A == 2) clear_tile<2>();
  if constexpr (A == 2 && B == 2) clear_tile<3>();
  const auto packed = [](const std::byte* const* strips, int64_t tile) {
    return Tiles{strips, tile * amx::tile_bytes, 64};
  };
  for (int64_t tile = 0; tile < args.tiles; ++tile) {
    const int64_t row_tile = tile * args.a_pieces, column_tile = tile * args.b_pieces;
    const Tiles rows = tile < args.in_place_tiles ? Tiles{args.in_place, tile * 64, args.in_place_stride}
                                                  : packed(args.a, row_tile);
    multiply_pairs<A, B, true, true>(rows, packed(args.b, column_tile));
    if (args.a_pieces == 2) multiply_pairs<A, B, true, false>(packed(args.a, row_tile + 1), {});
    if (args.b_pieces == 2) multiply_pairs<A, B, false, true>({}, packed(args.b, column_tile + 1));
    if (args.next_x != nullptr) args.next_x->advance();
  }
  const int64_t stride = args.c_stride * 4;
  store_tile<0>(args.c, stride);
  if constexpr (B == 2) store_tile<1>(args.c + args.c_b_step, stride);
  if constexpr (A == 2) store_tile<2>(args.c + args.c_a_step, stride);
  if constexpr (A == 2 && B == 2) store_tile<3>(args.c + args.c_a_step + args.c_b_step, stride);
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
