// Memory of any device, waiting for it, and time on it: what a program needs
// besides plans, without the header of any GPU's own library.
#pragma once

#include <cstddef>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"

namespace kronsparse {

/// A block of a device's memory, freed when it goes; on the CPU it is host
/// memory. Aligned to 256 bytes, not initialised. Movable, not copyable.
/// Error out_of_memory when the device has not enough left.
///
///     using namespace kronsparse;
///     const Device device = devices().back().device;  // a GPU where there is one
///     std::vector<float> values(2 * 3 * 4 * 5, 1.0f), x(7 * 40, 1.0f), y(7 * 30);
///     const auto bytes = [](const std::vector<float>& host) { return host.size() * sizeof(float); };
///     Buffer values_there(bytes(values), device), x_there(bytes(x), device), y_there(bytes(y), device);
///     values_there.copy_from_host(values.data(), bytes(values));
///     x_there.copy_from_host(x.data(), bytes(x));
///     Plan plan(Problem::parse("f32 batch_first B=7 2x3x4x5"), values_there.data(), device);
///     plan.run({.x = x_there.data(), .y = y_there.data()});
///     y_there.copy_to_host(y.data(), bytes(y));
///     assert(y[0] == 4.0f);
class KRONSPARSE_API Buffer {
 public:
  Buffer() noexcept = default;  ///< holds nothing
  explicit Buffer(std::size_t bytes, Device device = {});
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// An address of the device; null when there are no bytes.
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  /// Copies from or to host memory, `offset` bytes into the buffer, after the
  /// work that the stream holds; done when it returns.
  void copy_from_host(const void* from, std::size_t bytes, std::size_t offset = 0, Stream stream = nullptr);
  void copy_to_host(void* to, std::size_t bytes, std::size_t offset = 0, Stream stream = nullptr) const;
  /// Copies all of a buffer of the same device and size; a GPU does it in the stream's order.
  void copy_from(const Buffer& other, Stream stream = nullptr);
  /// Makes every byte zero; a GPU does it in the stream's order.
  void clear(Stream stream = nullptr);

 private:
  Device device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The same copies for memory that did not come from a Buffer.
KRONSPARSE_API void copy_from_host(void* to, const void* from, std::size_t bytes, Device device,
                                   Stream stream = nullptr);
KRONSPARSE_API void copy_to_host(void* to, const void* from, std::size_t bytes, Device device,
                                 Stream stream = nullptr);

/// Waits until the work enqueued on a stream is done. The CPU never has any.
KRONSPARSE_API void synchronise(Device device, Stream stream = nullptr);

/// Whether the stream's work is being recorded (into a CUDA graph, say) rather than done.
///
///     assert(!kronsparse::is_capturing({}, nullptr));
[[nodiscard]] KRONSPARSE_API bool is_capturing(Device device, Stream stream);

/// Measures work in a stream's own time: marks are enqueued between pieces of
/// work and read when all is done, so that a GPU is not kept waiting. On the
/// CPU it is a clock.
///
///     kronsparse::Timer timer;  // or timer(device, stream)
///     timer.mark();
///     volatile double sum = 0;
///     for (int i = 0; i < 1000; ++i) sum = sum + i;
///     timer.mark();
///     assert(timer.seconds().size() == 1 && timer.seconds()[0] >= 0);
class KRONSPARSE_API Timer {
 public:
  explicit Timer(Device device = {}, Stream stream = nullptr);
  Timer(Timer&& other) noexcept;
  Timer& operator=(Timer&& other) noexcept;
  ~Timer();

  /// Marks this point of the stream.
  void mark();
  /// Waits for the marks; the seconds between each and the next.
  [[nodiscard]] std::vector<double> seconds() const;

 private:
  Device device_;
  Stream stream_;
  std::vector<void*> marks_;
};

}  // namespace kronsparse
