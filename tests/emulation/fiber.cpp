#include "fiber.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

/// Turns the search for leaks off: it takes a tenth of the time, and kernels cannot leak. The sanitizer's
/// library calls this.
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

// void kronsparse_switch_stack(void** left, void* entered): pushes the registers that a function must
// preserve, stores the stack pointer in *left, takes the same from the stack `entered`, and returns there.
// swapcontext would do, but it sets the signal mask by a system call each time, and AddressSanitizer clears
// its notes on the whole stack: together half of the time that kernels take here. CUDA has toolkits for these
// two architectures.
#if defined(__aarch64__)
asm(R"(
.text
.p2align 2
.globl kronsparse_switch_stack
.hidden kronsparse_switch_stack
.type kronsparse_switch_stack, %function
kronsparse_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kronsparse_switch_stack, .-kronsparse_switch_stack
)");
#elif defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl kronsparse_switch_stack
.hidden kronsparse_switch_stack
.type kronsparse_switch_stack, @function
kronsparse_switch_stack:
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
.size kronsparse_switch_stack, .-kronsparse_switch_stack
)");
#else
#error "kronsparse_switch_stack is for aarch64 and x86-64"
#endif
extern "C" void kronsparse_switch_stack(void** left, void* entered);

namespace kronsparse::emulation {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

/// The words of 8 bytes that kronsparse_switch_stack finds on a new stack: zeros (a zero frame pointer ends
/// every backtrace) and the return address.
#if defined(__aarch64__)
constexpr std::size_t kSavedWords = 20, kReturnWord = 11;
#else
constexpr std::size_t kSavedWords = 8, kReturnWord = 6;  // one more word: functions begin 8 bytes off a
                                                         // multiple of 16
#endif

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

Fiber* Fiber::resumed_ = nullptr;

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  std::uintptr_t words[kSavedWords] = {};
  words[kReturnWord] = reinterpret_cast<std::uintptr_t>(&Fiber::start);
  const auto end = (reinterpret_cast<std::uintptr_t>(stack_.get()) + kStackBytes) / 16 * 16;
  own_ = stack_.get() + (end - reinterpret_cast<std::uintptr_t>(stack_.get()) - sizeof(words));
  std::memcpy(own_, words, sizeof(words));
}

void Fiber::start() {
  Fiber* self = resumed_;
  end_switch(nullptr, &self->scheduler_stack_, &self->scheduler_stack_bytes_);
  self->body_();
  self->done_ = true;
  begin_switch(nullptr, self->scheduler_stack_, self->scheduler_stack_bytes_);
  kronsparse_switch_stack(&self->own_, self->scheduler_);
  __builtin_unreachable();  // nobody resumes a fiber that is done
}

void Fiber::resume() {
  void* saved = nullptr;
  resumed_ = this;
  begin_switch(&saved, stack_.get(), kStackBytes);
  kronsparse_switch_stack(&scheduler_, own_);
  end_switch(saved, nullptr, nullptr);
}

void Fiber::suspend() {
  void* saved = nullptr;
  begin_switch(&saved, scheduler_stack_, scheduler_stack_bytes_);
  kronsparse_switch_stack(&own_, scheduler_);
  end_switch(saved, &scheduler_stack_, &scheduler_stack_bytes_);
}

}  // namespace kronsparse::emulation
