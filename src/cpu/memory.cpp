#include "cpu/memory.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <new>

#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

using Clock = std::chrono::steady_clock;

// The same as cudaMalloc's: enough for any vector and any cache line.
constexpr std::align_val_t alignment{256};

void* allocate(Device device, std::size_t bytes) {
  // operator new rounds up to the alignment, which wraps to a small number beyond this.
  constexpr std::size_t most = PTRDIFF_MAX - static_cast<std::size_t>(alignment);
  try {
    if (bytes > most) throw std::bad_alloc();
    return ::operator new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory,
                message("buffer: {} bytes are more than {} has left", bytes, device.to_string()));
  }
}

void release(Device, void* data) noexcept { ::operator delete(data, alignment); }

void copy(Device, void* to, const void* from, std::size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void clear(Device, void* data, std::size_t bytes, Stream) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

void synchronise(Device, Stream) {}

void* make_mark(Device, Stream) { return new Clock::time_point(Clock::now()); }

double seconds_between(Device, void* first, void* second) {
  const auto begin = *static_cast<const Clock::time_point*>(first);
  const auto end = *static_cast<const Clock::time_point*>(second);
  return std::chrono::duration<double>(end - begin).count();
}

void drop_mark(Device, void* mark) noexcept { delete static_cast<Clock::time_point*>(mark); }

}  // namespace

MemoryOps cpu_memory() {
  return {.allocate = allocate,
          .release = release,
          .upload = copy,
          .download = copy,
          .copy = copy,
          .clear = clear,
          .synchronise = synchronise,
          .make_mark = make_mark,
          .seconds_between = seconds_between,
          .drop_mark = drop_mark};
}

}  // namespace kronsparse
