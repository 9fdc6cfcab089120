// What the core knows of a backend: the entries of one table.
//
// A new kernel is an Implementation in its backend's list. Everything else
// (choice, forcing, checks of operands, `kronsparse info`, the conformance
// tests) works from these fields alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory_ops.hpp"
#include "kronsparse/device.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// A problem made ready to run by one implementation.
class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// Packs values (never null; not called for the gradient) in the order of the stream. No
  /// allocation, no synchronisation.
  virtual void set_values(const void* values, Stream stream) = 0;
  /// Operands were checked by Plan::run and batch > 0. No allocation, no
  /// synchronisation, safe to call concurrently.
  virtual void run(const Operands& operands) const = 0;
  [[nodiscard]] virtual std::size_t packed_bytes() const noexcept = 0;
};

struct Implementation {
  std::string_view name;  ///< "family" or "family-variant"
  Backend backend;
  std::string_view summary;
  /// Why this (valid) problem cannot be run on this device; empty when it can.
  std::string (*refuse)(const Problem& problem, Device device);
  /// Predicted seconds of one run, for ranking; called only when not refused.
  double (*predict)(const Problem& problem, Device device);
  std::unique_ptr<Executor> (*make)(const Problem& problem, Device device);
};

/// A backend: its devices and its implementations, best guess first.
struct BackendEntry {
  Backend backend;
  std::vector<DeviceInfo> (*devices)();  ///< those that can be used, best last
  /// Why there is no device of this number, or why it cannot be used; empty when it can, or when there
  /// is no more to say.
  std::string (*why_unusable)(int index);
  std::span<const Implementation> implementations;
  MemoryOps memory;
};

/// The backends of this build, the CPU first.
[[nodiscard]] std::span<const BackendEntry> backends();

/// The entry of a device that is there; Error device otherwise.
[[nodiscard]] const BackendEntry& backend_of(Device device);

/// The CPU's entry (src/cpu/backend.cpp).
[[nodiscard]] const BackendEntry& cpu_backend();

/// The entry of NVIDIA GPUs (src/cuda/backend.cpp), in a build with KRONSPARSE_WITH_CUDA.
[[nodiscard]] const BackendEntry& cuda_backend();

}  // namespace kronsparse
