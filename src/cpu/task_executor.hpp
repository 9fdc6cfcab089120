// An executor whose work is tasks: one thread can do all of them, with memory that it is lent.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/implementation.hpp"
#include "cpu/run_operands.hpp"

namespace kronsparse {

/// One factor's product in pieces, for those who compute several products one after the other.
class TaskExecutor : public Executor {
 public:
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  [[nodiscard]] virtual std::int64_t tasks() const = 0;
  virtual void run_tasks(const RunOperands& operands, std::int64_t first, std::int64_t last,
                         std::byte* scratch) const = 0;
};

}  // namespace kronsparse
