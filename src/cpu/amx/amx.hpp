// Implementations on matrix tiles.
#pragma once

#include <span>

#include "core/implementation.hpp"

namespace kronsparse {

/// AMX where the architecture has it; in builds for tests also its emulation.
[[nodiscard]] std::span<const Implementation> amx_implementations();

}  // namespace kronsparse
