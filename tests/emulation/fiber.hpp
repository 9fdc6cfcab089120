// A fiber: a stack of its own, which the scheduler can switch to and from.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace kronsparse::emulation {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Called by the scheduler: continues where the fiber stopped, until it suspends itself or ends.
  void resume();
  /// Called by the fiber itself.
  void suspend();
  [[nodiscard]] bool done() const { return done_; }

 private:
  [[noreturn]] static void start();

  static Fiber* resumed_;  ///< for start(), which gets no argument

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  void *own_ = nullptr, *scheduler_ = nullptr;  ///< stack pointers while the other one runs
  bool done_ = false;
  // For AddressSanitizer, which must know the current stack.
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace kronsparse::emulation
