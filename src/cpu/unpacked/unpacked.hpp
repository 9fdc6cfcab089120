// The CPU implementations for small batches and values that may change.
#pragma once

#include <span>

#include "core/implementation.hpp"

namespace kronsparse {

/// "unpacked-avx512", "unpacked-avx2", "unpacked-neon" or "unpacked-baseline", widest first: they read values
/// as they are given.
[[nodiscard]] std::span<const Implementation> unpacked_implementations();

}  // namespace kronsparse
