// The core asks these of a device besides products: memory, copies, time.
#pragma once

#include <cstddef>

#include "kronsparse/device.hpp"

namespace kronsparse {

/// Functions of a backend. All but `release` and `drop_mark` throw Error; those
/// that take a stream enqueue there, and on the CPU are done when they return.
struct MemoryOps {
  /// `bytes` > 0, at an address that every vector load likes.
  void* (*allocate)(Device device, std::size_t bytes);
  void (*release)(Device device, void* data) noexcept;
  /// Copies from and to host memory; done when they return, after what the stream held before.
  void (*upload)(Device device, void* to, const void* from, std::size_t bytes, Stream stream);
  void (*download)(Device device, void* to, const void* from, std::size_t bytes, Stream stream);
  /// Within the device.
  void (*copy)(Device device, void* to, const void* from, std::size_t bytes, Stream stream);
  /// Sets every byte to zero, which is zero in every dtype.
  void (*clear)(Device device, void* data, std::size_t bytes, Stream stream);
  /// Waits for the stream's work.
  void (*synchronise)(Device device, Stream stream);

  /// A point in the stream's time, owned by the caller until drop_mark.
  void* (*make_mark)(Device device, Stream stream);
  /// Waits for both.
  double (*seconds_between)(Device device, void* first, void* second);
  void (*drop_mark)(Device device, void* mark) noexcept;
  /// Whether the stream's work is being recorded for later instead of done. Null: it never is.
  bool (*is_capturing)(Device device, Stream stream) = nullptr;
  /// Whether memory may be taken and the default stream be used: not while a stream that it waits for is
  /// recorded. Null: always.
  bool (*may_measure)(Device device) = nullptr;
};

}  // namespace kronsparse
