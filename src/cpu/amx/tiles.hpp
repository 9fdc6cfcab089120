// Tile registers: those of the CPU, or eight arrays that do the same. Included by isa_*.cpp only.
#pragma once

#include "cpu/simd/vector.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

#if defined(KRONSPARSE_EMULATES_TILES)

struct Tile {
  alignas(64) unsigned char row[16][64];
};
inline thread_local Tile tiles[8];

template <int tile>
void load_tile(const void* source, int64_t stride) {
  for (int r = 0; r < 16; ++r)
    __builtin_memcpy(tiles[tile].row[r], static_cast<const unsigned char*>(source) + r * stride, 64);
}
template <int tile>
void store_tile(void* target, int64_t stride) {
  for (int r = 0; r < 16; ++r)
    __builtin_memcpy(static_cast<unsigned char*>(target) + r * stride, tiles[tile].row[r], 64);
}
template <int tile>
void clear_tile() {
  __builtin_memset(&tiles[tile], 0, sizeof(Tile));
}
/// sums += a·b as the instruction adds up: even terms and odd ones apart, then both to the sums.
template <int sums, int a, int b>
void multiply_tiles() {
  for (int m = 0; m < 16; ++m) {
    Vf even = {}, odd = {};
    for (int t = 0; t < 16; ++t) {
      const Vu columns = load(reinterpret_cast<const uint32_t*>(tiles[b].row[t]));
      uint32_t pair = 0;
      __builtin_memcpy(&pair, tiles[a].row[m] + static_cast<ptrdiff_t>(4) * t, sizeof pair);
      even += bits_as<float>(pair << 16) * bits_as<Vf>(columns << 16);
      odd += bits_as<float>(pair & 0xffff0000u) * bits_as<Vf>(columns & 0xffff0000u);
    }
    auto* row = reinterpret_cast<float*>(tiles[sums].row[m]);
    store(row, load(row) + (even + odd));
  }
}
inline void begin_tiles() {}
inline void end_tiles() {}

#else

template <int tile>
KRONSPARSE_INLINE void load_tile(const void* source, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(source), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
KRONSPARSE_INLINE void store_tile(void* target, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(target), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
KRONSPARSE_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int sums, int a, int b>
KRONSPARSE_INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}

/// All eight tiles 16 rows of 64 bytes.
inline void begin_tiles() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const config;
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
inline void end_tiles() { asm volatile("tilerelease" ::: "memory"); }

#endif

}  // namespace kronsparse::simd::KRONSPARSE_ISA
