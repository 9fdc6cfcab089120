// Memory of a thread: aligned, uninitialised, and kept from one run to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define KRONSPARSE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KRONSPARSE_ASAN 1
#endif
#endif
#if defined(KRONSPARSE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace kronsparse {

inline constexpr std::size_t cache_line = 64;

struct AlignedDelete {
  void operator()(void* memory) const noexcept { ::operator delete (memory, std::align_val_t{cache_line}); }
};

/// Uninitialised, cache-line aligned memory of a trivial type.
template <class T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;
template <class T>
[[nodiscard]] AlignedArray<T> make_aligned(std::size_t count) {
  // Beyond this, the bytes or what operator new rounds them up to would wrap to a small number.
  if (count > (PTRDIFF_MAX - cache_line) / sizeof(T)) throw std::bad_alloc();
  return AlignedArray<T>(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{cache_line})));
}

/// Memory that only ever grows, so that repeated runs do not allocate. It belongs to a thread, not to a
/// plan: concurrent runs never share it.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::size_t bytes) : memory_(make_aligned<std::byte>(bytes)), capacity_(bytes) {}

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// At least `bytes`, aligned to a cache line.
  [[nodiscard]] std::byte* at_least(std::size_t bytes) {
    if (bytes > capacity_) {
      *this = {};  // before the larger one is asked for
      *this = Scratch(bytes);
    }
#if defined(KRONSPARSE_ASAN)
    // An earlier plan may have left more: beyond what this one asked for is out of bounds all the same.
    ASAN_UNPOISON_MEMORY_REGION(memory_.get(), capacity_);
    ASAN_POISON_MEMORY_REGION(memory_.get() + bytes, capacity_ - bytes);
#endif
    return memory_.get();  // NOLINT(clang-analyzer-cplusplus.NewDelete): it misreads the assignment
  }

  /// Takes the other's memory where that is more.
  void grow_by(Scratch&& other) noexcept {
    if (other.capacity_ > capacity_) *this = std::move(other);
  }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch(Scratch&& other) noexcept
      : memory_(std::move(other.memory_)), capacity_(std::exchange(other.capacity_, 0)) {}
  Scratch& operator=(Scratch&& other) noexcept {
    memory_ = std::move(other.memory_);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }
  ~Scratch() = default;

 private:
  AlignedArray<std::byte> memory_;
  std::size_t capacity_ = 0;
};

/// The calling thread's.
[[nodiscard]] inline Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace kronsparse
