// Where a plan runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/export.h"

namespace kronsparse {

enum class Backend : std::uint8_t { cpu, cuda, opencl };

/// A device by backend and number: "cpu", "cuda:0", "opencl:1".
struct KRONSPARSE_API Device {
  Backend backend = Backend::cpu;
  int index = 0;

  [[nodiscard]] std::string to_string() const;
  /// Reads "cpu", "cuda", "cuda:1", ...; a missing number is 0.
  [[nodiscard]] static Device parse(std::string_view text);
  friend bool operator==(const Device&, const Device&) = default;
};

/// A device that is present, with a line for people.
struct DeviceInfo {
  Device device;
  std::string description;  ///< "2 threads, avx512, 48 KiB L1, 2 MiB L2"
};

/// Devices usable now, best last; the CPU is always there, first.
///
///     assert(kronsparse::devices().front().device == kronsparse::Device{});
[[nodiscard]] KRONSPARSE_API std::vector<DeviceInfo> devices();

[[nodiscard]] KRONSPARSE_API std::string_view name(Backend backend);

/// A cudaStream_t or cl_command_queue, passed through unchanged; null is the
/// default stream. The CPU ignores it and returns when the work is done.
using Stream = void*;

}  // namespace kronsparse
