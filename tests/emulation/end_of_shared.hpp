// For kernels that reach shared memory by pointers.
#pragma once

#include <sanitizer/asan_interface.h>

#include <cstddef>

#include "block.hpp"
#include "builtins.hpp"

namespace kronsparse::emulation {

/// AddressSanitizer knows where the block's shared memory ends.
class EndOfShared {
 public:
  explicit EndOfShared(std::size_t bytes)
      : first_(Block::reached_by_pointers() + bytes), bytes_(cuda::kEmulatedSharedBytes - bytes) {
    ASAN_POISON_MEMORY_REGION(first_, bytes_);
  }
  EndOfShared(const EndOfShared&) = delete;
  EndOfShared& operator=(const EndOfShared&) = delete;
  ~EndOfShared() { ASAN_UNPOISON_MEMORY_REGION(first_, bytes_); }

 private:
  std::byte* first_;
  std::size_t bytes_;
};

}  // namespace kronsparse::emulation
