// Kernels: built from the sources in kernels/ for one device, once.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "kronsparse/device.hpp"
#include "opencl/api.hpp"

namespace kronsparse::opencl {

/// The sources in kernels/, each after element.cl and pack.cl.
enum class Source { private_memory, local_memory };

/// A kernel that is ready to run. Shared by all plans of a device, and by threads.
class Kernel {
 public:
  Kernel(cl_kernel kernel, int group) : kernel_(kernel), group_(group) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Enqueues `groups` work-groups with these arguments, cl_mem or numbers or structures of them.
  template <class... Arguments>
  void enqueue(cl_command_queue queue, std::size_t groups, const Arguments&... arguments) const {
    const std::lock_guard one_at_a_time(mutex_);  // arguments belong to the kernel until it is enqueued
    cl_uint index = 0;
    (set(index++, &arguments, sizeof(Arguments)), ...);
    launch(queue, groups);
  }

  /// Work-items of a work-group.
  [[nodiscard]] int group() const noexcept { return group_; }

 private:
  void set(cl_uint index, const void* argument, std::size_t bytes) const;
  void launch(cl_command_queue queue, std::size_t groups) const;

  mutable std::mutex mutex_;
  cl_kernel kernel_;
  int group_;
};

/// The kernels of one program: most of the time that one takes to compile is spent before its first line.
struct Kernels {
  Kernels(cl_kernel contract_kernel, cl_kernel pack_kernel, int group, int largest)
      : contract(contract_kernel, group), pack(pack_kernel, group), largest_group(largest) {}
  Kernel contract, pack;
  int largest_group;  ///< that the driver runs them with: their registers may leave room for fewer work-items

  [[nodiscard]] bool fit() const noexcept { return contract.group() <= largest_group; }
};

/// A source compiled with these options for work-groups of `group`. Built at the first call, or read from the
/// cache on disk. Error device where that fails, with the compiler's log and `purpose`.
[[nodiscard]] std::shared_ptr<const Kernels> kernels_of(Device device, Source source,
                                                        const std::string& options, int group,
                                                        std::string_view purpose);

/// Whether kernels_of() would find them built, and they fit.
[[nodiscard]] bool are_built(Device device, Source source, const std::string& options);

/// The refusal of an implementation that a run would have to build kernels for.
inline constexpr const char* not_built =
    "no kernel for it is built, and a run builds none: call Plan::prepare or Plan::workspace_bytes with this "
    "batch first";

/// For tests: how many programs this process compiled, and how many it read from disk.
struct ProgramCounts {
  int compiled = 0;
  int read = 0;
};
[[nodiscard]] ProgramCounts program_counts();
/// For tests: what is built from now on is built again.
void forget_programs();

}  // namespace kronsparse::opencl
