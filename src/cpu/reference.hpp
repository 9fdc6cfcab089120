// The oracle: plain loops in double precision, for every problem.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse {

[[nodiscard]] Implementation reference_implementation();

}  // namespace kronsparse
