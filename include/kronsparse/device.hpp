// Where a plan runs.
//
// How many threads the CPU uses: the one that calls, and others of the library's own, for whatever takes
// longer than some ten microseconds. In all as many as a parallel region of OpenMP would have, where its
// runtime is loaded (omp_set_num_threads, torch.set_num_threads, one inside a region), else OMP_NUM_THREADS,
// else the CPUs of the process. They are started when they are first needed and shared by all who call.
// One that cannot be created, or has to wait for its CPU, is done without: the caller does its part. A
// forked child starts its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/export.h"

namespace kronsparse {

enum class Backend : std::uint8_t { cpu, cuda, opencl };

/// A device by backend and number: "cpu", "cuda:0", "opencl:1". OpenCL's are numbered over all drivers of the
/// machine, in the loader's order.
struct KRONSPARSE_API Device {
  Backend backend = Backend::cpu;
  int index = 0;

  [[nodiscard]] std::string to_string() const;
  /// Reads "cpu", "cuda", "cuda:1", ...; a missing number is 0. Instead of a number there may be a part of
  /// the description of exactly one device that is there, from a letter on, as in "opencl:h200"; case does
  /// not matter.
  [[nodiscard]] static Device parse(std::string_view text);
  friend bool operator==(const Device&, const Device&) = default;
};

/// A device that is present, with a line for people.
struct DeviceInfo {
  Device device;
  std::string description;      ///< "2 threads, avx512, 48 KiB L1, 2 MiB L2"
  std::size_t cache_bytes = 0;  ///< of its largest cache: what fits may be found there by the next run
  bool is_cpu_again = false;    ///< this machine's CPU through OpenCL: slower than Backend::cpu
};

/// Devices usable now, best last; the CPU is always there, first.
///
///     assert(kronsparse::devices().front().device == kronsparse::Device{});
[[nodiscard]] KRONSPARSE_API std::vector<DeviceInfo> devices();

/// Why a device cannot be used: this build has no such backend, no driver or one too old was found, no
/// such GPU, no kernels for it. Empty when it can.
///
///     assert(kronsparse::why_unusable({}).empty());
///     assert(!kronsparse::why_unusable({kronsparse::Backend::cuda, 999}).empty());
[[nodiscard]] KRONSPARSE_API std::string why_unusable(Device device);

[[nodiscard]] KRONSPARSE_API std::string_view name(Backend backend);

/// A cudaStream_t or cl_command_queue, passed through unchanged; null is the
/// default stream. The CPU ignores it and returns when the work is done.
using Stream = void*;

}  // namespace kronsparse
