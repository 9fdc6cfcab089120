// The CPU's implementation `fused`: chains in one pass over x and y. A chunk of samples goes through all
// products while it stays in a thread's cache.
#pragma once

#include "core/implementation.hpp"

namespace kronsparse {

/// An executor of a chain, which is packed from the values of all its factors.
class ChainExecutor : public Executor {
 public:
  /// As Executor::pack, given an address for each factor.
  virtual void pack_chain(const void* const* values, void* packed) const = 0;
};

[[nodiscard]] Implementation fused_on_cpu();

}  // namespace kronsparse
