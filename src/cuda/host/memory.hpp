// Memory, copies and events of a GPU for the core.
#pragma once

#include "core/memory_ops.hpp"

namespace kronsparse::cuda {

[[nodiscard]] MemoryOps memory_ops();

}  // namespace kronsparse::cuda
