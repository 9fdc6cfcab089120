// The entries of a Tuning one by one, and their constants as plain numbers: for programs that fit them, and
// for tests.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <type_traits>

#include "cuda/tuning/tuning.hpp"

namespace kronsparse::cuda::tuning {

/// Calls visit(name, entry) for the entry of each kernel, in the table's names, and for "packing".
template <class AnyTuning, class Visitor>
void for_each_entry(AnyTuning& all, Visitor&& visit) {
  visit("gemm", all.gemm);
  visit("wgmma", all.wgmma);
  visit("staged", all.staged);
  visit("mma", all.mma);
  visit("simt", all.simt);
  visit("direct", all.direct);
  visit("unpacked", all.unpacked);
  visit("resident", all.resident);
  visit("narrow", all.narrow);
  visit("stream", all.stream);
  visit("skinny", all.skinny);
  visit("gradient-wgmma", all.gradient_wgmma);
  visit("gradient-mma", all.gradient_mma);
  visit("gradient-simt", all.gradient_simt);
  visit("fused", all.fused);
  visit("fused_wgmma", all.fused_wgmma);
  visit("packing", all.packing);
}

/// The constants in the order of their declaration.
template <class Constants>
[[nodiscard]] constexpr auto numbers_of(const Constants& constants) {
  static_assert(std::is_trivially_copyable_v<Constants> && sizeof(Constants) % sizeof(double) == 0);
  return std::bit_cast<std::array<double, sizeof(Constants) / sizeof(double)>>(constants);
}
template <class Constants>
[[nodiscard]] constexpr Constants constants_of(
    const std::array<double, sizeof(Constants) / sizeof(double)>& numbers) {
  return std::bit_cast<Constants>(numbers);
}

}  // namespace kronsparse::cuda::tuning
