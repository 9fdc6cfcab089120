// The core's view of a backend: the entries of one table.
//
// A new kernel is an Implementation in its backend's list. Everything else
// (choice, forcing, checks of operands, `kronsparse info`, the conformance
// tests) works from these fields alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

/// The order in which a kernel reads the values of a factor. Executors of one factor whose orders are equal
/// read the same bytes, so that one packed copy serves them all.
struct PackedOrder {
  /// The name of the implementation, a literal; empty where values are read as they are given, so that
  /// nothing has to be packed for a run (to keep them, pack() copies).
  std::string_view family = {};
  std::array<std::int64_t, 16> numbers = {};  ///< what tells the family's orders of one factor apart
  std::size_t bytes = 0;                      ///< of the packed values

  [[nodiscard]] bool is_as_given() const noexcept { return family.empty(); }
  friend bool operator==(const PackedOrder&, const PackedOrder&) = default;
};

/// The order of a gradient, which reads no values.
inline const PackedOrder no_order;

/// The values of one run, in the executor's order.
struct Weights {
  const void* data = nullptr;
  /// Whether the work right ahead in the stream may have written them: a kernel that begins before that has
  /// ended must not read them yet.
  bool just_packed = false;
};

/// A problem made ready to run by one implementation: one factor, or a whole chain. Holds no values and no
/// device memory.
class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  /// The order of the values that run() takes.
  [[nodiscard]] virtual const PackedOrder& order() const noexcept = 0;
  /// Writes order().bytes bytes at `packed`, which is aligned to 256 bytes and may hold anything, in the
  /// order of the stream. Not called for the gradient, nor for a chain, which only its backend packs. No
  /// allocation, no synchronisation.
  virtual void pack(const void* values, void* packed, Stream stream) const = 0;
  /// Operands were checked by Plan::run and batch > 0; of them only x, y, bias, g, stream and, aligned to 256
  /// bytes, workspace count. No allocation, no synchronisation, safe to call concurrently.
  virtual void run(const Operands& operands, const Weights& weights) const = 0;
};

/// One implementation's answer to a problem.
struct Proposal {
  std::string refusal = {};    ///< why it cannot run the problem; empty when it can
  double seconds = 0;          ///< predicted, of one run
  double packing_seconds = 0;  ///< predicted, of packing the values before it
  std::function<std::unique_ptr<Executor>()> make = {};
  bool is_measured = false;  ///< by tune(): the core puts measured seconds in the place of predicted ones
  /// Memory that a run of the executor needs besides its values: a part of the caller's workspace, which may
  /// hold anything before and after.
  std::size_t workspace_bytes = 0;
};

struct Implementation {
  std::string_view name;  ///< "family" or "family-variant"
  Backend backend;
  std::string_view summary;
  /// Answers a valid problem by one search for the best way. Where `packed_as` is not null, only ways that
  /// read values in that order count.
  Proposal (*propose)(const Problem& problem, Device device, const PackedOrder* packed_as);
  /// Whether it is asked for chains of two or more factors, in one pass, or else for one factor.
  bool takes_chains = false;
  /// Seconds that no way takes less than, known without a search, for a problem that may be refused. Who has
  /// a long search says so: it is spared where others are faster. Null: nothing is known.
  double (*at_least)(const Problem& problem, Device device) = nullptr;
};

/// Values to be packed for an executor.
struct PackJob {
  const Executor* executor;
  const void* const* values;  ///< an address for each factor of the executor's problem
  void* packed;
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
  /// Packs for executors of this backend, as Executor::pack does one after the other.
  void (*pack)(Device device, std::span<const PackJob> jobs, Stream stream);
};

/// The backends of this build, the CPU first, the fastest last.
[[nodiscard]] std::span<const BackendEntry> backends();

/// The entry of a device that is there; Error device otherwise.
[[nodiscard]] const BackendEntry& backend_of(Device device);

/// The CPU's entry (src/cpu/backend.cpp).
[[nodiscard]] const BackendEntry& cpu_backend();

/// The entry of OpenCL devices (src/opencl/backend.cpp), in a build with KRONSPARSE_WITH_OPENCL.
[[nodiscard]] const BackendEntry& opencl_backend();

/// The entry of NVIDIA GPUs (src/cuda/backend.cpp), in a build with KRONSPARSE_WITH_CUDA.
[[nodiscard]] const BackendEntry& cuda_backend();

}  // namespace kronsparse
