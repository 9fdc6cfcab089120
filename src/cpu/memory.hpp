// The host's memory and clock.
#pragma once

#include "core/memory_ops.hpp"

namespace kronsparse {

[[nodiscard]] MemoryOps cpu_memory();

}  // namespace kronsparse
