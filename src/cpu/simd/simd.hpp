// The fast CPU implementations: one family, one entry per instruction set.
#pragma once

#include <span>

#include "core/implementation.hpp"

namespace kronsparse {

/// "simd-avx512", "simd-avx2", "simd-neon" or "simd-baseline", widest first.
/// Entries the running CPU cannot execute refuse every problem with the reason.
[[nodiscard]] std::span<const Implementation> simd_implementations();

}  // namespace kronsparse
