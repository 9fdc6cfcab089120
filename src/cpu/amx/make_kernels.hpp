// The functions of one kind of tile registers. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/finish.hpp"
#include "cpu/amx/pack.hpp"
#include "cpu/amx/product.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

constexpr amx::KernelSet make_kernels(const char* missing, bool (*usable)()) {
  return {missing,
          usable,
          begin_tiles,
          end_tiles,
          {{product<1, 1>, product<1, 2>}, {product<2, 1>, product<2, 2>}},
          pack_columns,
          {pack_rows<1>, pack_rows<2>, pack_rows<4>, pack_rows<8>, pack_rows<16>},
          {finish_tiles<2>, finish_tiles<4>, finish_tiles<8>, finish_tiles<16>},
          finish_pair};
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
