// The entry of OpenCL devices in the table of backends.
#include "opencl/backend.hpp"

#include <algorithm>
#include <array>

#include "core/message.hpp"
#include "opencl/memory.hpp"

namespace kronsparse {
namespace opencl {

std::string dtype_refusal(const Problem& problem, const DeviceFacts& facts) {
  const bool needs_f64 = problem.dtype == DType::f64 || problem.dtype == DType::complex128;
  if (!needs_f64 || facts.has_f64) return {};
  return message("needs a device with f64 (cl_khr_fp64) for {}; {} has none", name(problem.dtype),
                 facts.name);
}

double packing_seconds(const Problem& problem, const DeviceFacts& facts) {
  const double rate = facts.is_cpu ? 1e9 : 1e11;
  return 10e-6 + 2.0 * static_cast<double>(problem.pattern().nnz()) *
                     static_cast<double>(size_of(problem.dtype)) / rate;
}

namespace {

/// CPUs first: they are what the CPU backend is better at. Drivers list their best device first.
std::vector<DeviceInfo> usable_devices() {
  std::vector<DeviceFacts> all = all_devices();
  std::erase_if(all, [](const DeviceFacts& facts) { return !facts.unusable.empty(); });
  std::ranges::reverse(all);
  std::stable_partition(all.begin(), all.end(), [](const DeviceFacts& facts) { return facts.is_cpu; });
  std::vector<DeviceInfo> usable;
  usable.reserve(all.size());
  for (const DeviceFacts& facts : all)
    usable.push_back(
        {Device{Backend::opencl, facts.index}, to_string(facts), facts.cache_bytes, facts.is_cpu});
  return usable;
}

void pack_all(Device, std::span<const PackJob> jobs, Stream stream) {
  for (const PackJob& job : jobs) job.executor->pack(*job.values, job.packed, stream);
}

}  // namespace
}  // namespace opencl

const BackendEntry& opencl_backend() {
  static const std::array implementations = {opencl::local_implementation(),
                                             opencl::private_implementation()};
  static const BackendEntry entry{.backend = Backend::opencl,
                                  .devices = opencl::usable_devices,
                                  .why_unusable = opencl::why_unusable,
                                  .implementations = implementations,
                                  .memory = opencl::memory_ops(),
                                  .pack = opencl::pack_all};
  return entry;
}

}  // namespace kronsparse
