// The OpenCL devices of this machine: their facts, contexts and queues.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kronsparse/device.hpp"
#include "opencl/api.hpp"

namespace kronsparse::opencl {

/// Facts of a device for the cost models and launchers; read once.
struct DeviceFacts {
  int index = 0;
  std::string name;
  std::string platform;  ///< its name
  std::string version;   ///< of the platform and the driver: part of the key of cached programs
  bool is_cpu = false;
  int compute_units = 1;
  double clock_hz = 1e9;
  std::size_t memory_bytes = 0;
  std::size_t buffer_bytes = 0;  ///< the most that one buffer may have
  std::size_t cache_bytes = 0;
  std::size_t local_bytes = 0;                         ///< of local memory that a work-group may have
  int work_group = 1;                                  ///< the most work-items of a work-group
  int kernel_group = std::numeric_limits<int>::max();  ///< of any kernel's; for tests: drivers say it of each
  int vector_bytes = 16;                               ///< of its vector registers, as far as it says
  bool has_f64 = false;
  std::string unusable;  ///< why no kernel runs on it; empty when they do
};

/// A device with the context and the queue that it is used through.
class DeviceState {
 public:
  DeviceState(DeviceFacts facts, cl_device_id id) : facts_(std::move(facts)), id_(id) {}
  /// In a context of the caller's.
  DeviceState(DeviceFacts facts, cl_device_id id, cl_context context);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] cl_device_id id() const noexcept { return id_; }
  [[nodiscard]] bool is_given() const noexcept { return is_given_; }
  /// Made when first asked for, and kept as long as the process lives: drivers may be gone before our
  /// destructors run.
  [[nodiscard]] cl_context context();
  /// The caller's queue, checked to be in order and of this device and context; or ours for null, which is in
  /// order and measures time.
  [[nodiscard]] cl_command_queue queue(Stream stream);

 private:
  friend class PretendedDevices;
  void open();

  DeviceFacts facts_;
  cl_device_id id_;
  bool is_given_ = false;
  std::once_flag opened_ = {};
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

/// Facts of all devices, those in contexts of callers last.
[[nodiscard]] std::vector<DeviceFacts> all_devices();
/// One that all_devices() lists; Error device otherwise. Never moves.
[[nodiscard]] DeviceState& state_of(Device device);
/// Cost models and refusals ask nothing but this, so that they can be tested with made-up devices.
[[nodiscard]] DeviceFacts facts_of(Device device);
/// Why opencl:index cannot be used; empty when it can.
[[nodiscard]] std::string why_unusable(int index);
/// "NVIDIA H200 (NVIDIA CUDA), 132 compute units, 140 GiB, 48 KiB local memory". Without the memory of CPUs:
/// drivers count what is free at the moment, and what was tuned and profiled is kept under this text.
[[nodiscard]] std::string to_string(const DeviceFacts& facts);

/// The device of a context of the caller's; the same one every time.
[[nodiscard]] Device device_of_context(cl_context context, cl_device_id id);

/// For tests: while it lives, the devices' facts are changed by `change` (less local memory, say), and there
/// are none where a reason is given. Choosing and running then work within such limits.
class PretendedDevices {
 public:
  explicit PretendedDevices(void (*change)(DeviceFacts&));
  explicit PretendedDevices(std::string reason_of_none);
  ~PretendedDevices();
  PretendedDevices(const PretendedDevices&) = delete;
  PretendedDevices& operator=(const PretendedDevices&) = delete;

 private:
  std::vector<DeviceFacts> real_;
};

}  // namespace kronsparse::opencl
