// Whether a thread is inside of a run, or has time.
#pragma once

namespace kronsparse {

/// While one lives, its thread chooses for a run that is about to begin. A backend that compiles kernels then
/// proposes those that are there, and builds none.
class RunScope {
 public:
  RunScope() noexcept { ++depth; }
  ~RunScope() { --depth; }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

  [[nodiscard]] static bool is_active() noexcept { return depth > 0; }

 private:
  inline static thread_local int depth = 0;
};

}  // namespace kronsparse
