// A stack of its own, to and from which the scheduler can switch.
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

  /// From the scheduler: goes on where the fiber stopped, until it suspends itself or ends.
  void resume();
  /// From the fiber itself.
  void suspend();
  [[nodiscard]] bool done() const { return done_; }

 private:
  [[noreturn]] static void start();

  static Fiber* resumed_;  ///< for start(), which nobody gives an argument

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  void *own_ = nullptr, *scheduler_ = nullptr;  ///< where their stacks end while the other runs
  bool done_ = false;
  // For AddressSanitizer, which must know on which stack it is.
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace kronsparse::emulation
