// The operands of a run, together with the packed weights.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse {

struct RunOperands : Operands {
  RunOperands(const Operands& operands, const Weights& of_run) : Operands(operands), weights(of_run.data) {}

  const void* weights;  ///< in the order of the executor
};

}  // namespace kronsparse
