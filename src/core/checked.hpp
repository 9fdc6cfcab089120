// Products of sizes that may not fit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace kronsparse {

/// The product of non-negative numbers, or nothing when it exceeds 63 bits.
[[nodiscard]] inline std::optional<std::int64_t> checked_product(
    std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (std::int64_t factor : factors)
    if (factor == 0) return 0;
  for (std::int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  return product;
}

}  // namespace kronsparse
