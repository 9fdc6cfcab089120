// Memory of the devices under test. Backends whose memory is a kronsparse::Buffer
// are tested without more; others join by adding their TestDevice to
// make_test_device(). Nothing else here knows where memory lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kronsparse/device.hpp"

namespace conformance {

/// Which end of an allocation should touch memory that cannot be accessed,
/// where the device has such a thing: reading past it then ends the process.
enum class Edge { none, before, after };

/// Frees its memory when it goes.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
};

class TestDevice {
 public:
  TestDevice() = default;
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;
  virtual ~TestDevice() = default;

  [[nodiscard]] virtual kronsparse::Device device() const = 0;
  /// Aligned to 64 bytes unless edge is `after`, when the end is flush instead.
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate(std::size_t bytes, Edge edge) const = 0;
  /// Zeros that cost memory only where written; null where that cannot be had.
  [[nodiscard]] virtual std::unique_ptr<Memory> allocate_sparse(std::size_t bytes) const = 0;
  virtual void copy_in(std::byte* to_device, const std::byte* from_host, std::size_t bytes) const = 0;
  virtual void copy_out(std::byte* to_host, const std::byte* from_device, std::size_t bytes) const = 0;
  /// Whether the device has the same bytes as the host.
  [[nodiscard]] virtual bool same(const std::byte* on_device, const std::byte* on_host,
                                  std::size_t bytes) const = 0;
  /// Waits for the work of the default stream.
  virtual void synchronise() const = 0;
};

/// The adaptor of a device; null for a backend that has none yet (a test says so).
[[nodiscard]] std::unique_ptr<TestDevice> make_test_device(kronsparse::Device device);

/// How an operand lies in memory.
enum class Placement { aligned, misaligned, flush_end, flush_start };

/// A host image of device memory: guard bytes, the payload, guard bytes. Every
/// byte that is not an element is 0xff, which reads as NaN in every dtype:
/// whoever reads it gets NaN, and whoever writes it is found out.
class GuardedBuffer {
 public:
  GuardedBuffer(const TestDevice& device, std::size_t bytes, Placement placement, std::size_t misalignment);

  /// The payload: on the device, and in the image.
  [[nodiscard]] std::byte* device_data() const { return memory_->data() + front_; }
  [[nodiscard]] std::byte* image_data() { return image_.data() + front_; }
  [[nodiscard]] const std::byte* image_data() const { return image_.data() + front_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  /// Makes every byte of the image 0xff.
  void poison();
  void upload();
  void download();
  /// Whether the device's bytes are those of the image.
  [[nodiscard]] bool unchanged() const;
  /// Whether the guards of the image are still 0xff; describes the first that is not.
  [[nodiscard]] std::string damaged_guard() const;

 private:
  static constexpr std::size_t kGuardBytes = 256;

  const TestDevice& device_;
  std::size_t front_;
  std::size_t bytes_;
  std::vector<std::byte> image_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace conformance
