// The functions of one kind of tile registers. Included by isa_*.cpp only.
#pragma once

#include "cpu/amx/finish.hpp"
#include "cpu/amx/pack.hpp"
#include "cpu/amx/product.hpp"

namespace kronsparse::simd::KRONSPARSE_ISA {

template <Storage storage>
constexpr amx::HalfKernels make_half_kernels() {
  return {pack_columns<storage>,
          {pack_rows<storage, 1>, pack_rows<storage, 2>, pack_rows<storage, 4>, pack_rows<storage, 8>,
           pack_rows<storage, 16>},
          {finish_tiles<storage, 2>, finish_tiles<storage, 4>, finish_tiles<storage, 8>,
           finish_tiles<storage, 16>},
          finish_pair<storage>};
}

constexpr amx::KernelSet make_kernels(const char* implementation, const char* missing, bool (*usable)()) {
  return {implementation,
          missing,
          usable,
          begin_tiles,
          end_tiles,
          {{product<1, 1>, product<1, 2>}, {product<2, 1>, product<2, 2>}},
          make_half_kernels<Storage::bf16>(),
          make_half_kernels<Storage::f16>()};
}

}  // namespace kronsparse::simd::KRONSPARSE_ISA
