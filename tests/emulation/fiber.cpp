#include "fiber.hpp"

#include <cstdint>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

/// Looking for leaks (kernels cannot have any) takes a tenth of the time.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace kronsparse::emulation {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

void begin_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(save, stack, bytes);
#endif
}

void end_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** stack,
                [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, stack, bytes);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  // makecontext passes ints: the pointer in two halves.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&own_, reinterpret_cast<void (*)()>(start), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::start(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
  end_switch(nullptr, &self->scheduler_stack_, &self->scheduler_stack_bytes_);
  self->body_();
  self->done_ = true;
  begin_switch(nullptr, self->scheduler_stack_, self->scheduler_stack_bytes_);
  swapcontext(&self->own_, &self->scheduler_);
}

void Fiber::resume() {
  void* saved = nullptr;
  begin_switch(&saved, stack_.get(), kStackBytes);
  swapcontext(&scheduler_, &own_);
  end_switch(saved, nullptr, nullptr);
}

void Fiber::suspend() {
  void* saved = nullptr;
  begin_switch(&saved, scheduler_stack_, scheduler_stack_bytes_);
  swapcontext(&own_, &scheduler_);
  end_switch(saved, &scheduler_stack_, &scheduler_stack_bytes_);
}

}  // namespace kronsparse::emulation
