// The CPU's entry in the table of backends.
#include <algorithm>

#include "core/implementation.hpp"
#include "cpu/amx/amx.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/fused/fused.hpp"
#include "cpu/memory.hpp"
#include "cpu/reference.hpp"
#include "cpu/simd/simd.hpp"
#include "cpu/unpacked/unpacked.hpp"

namespace kronsparse {
namespace {

std::vector<DeviceInfo> cpu_devices() {
  const CpuInfo info = cpu_info();
  return {{Device{Backend::cpu, 0}, to_string(info), std::max(info.l2_bytes, info.l3_bytes)}};
}

std::vector<Implementation> cpu_implementations() {
  std::vector<Implementation> all;
  for (const std::span<const Implementation> family :
       {amx_implementations(), simd_implementations(), unpacked_implementations()})
    all.insert(all.end(), family.begin(), family.end());
  all.push_back(fused_on_cpu());
  all.push_back(reference_implementation());
  return all;
}

void pack(Device /*device*/, std::span<const PackJob> jobs, Stream stream) {
  for (const PackJob& job : jobs)
    if (const auto* chain = dynamic_cast<const ChainExecutor*>(job.executor))
      chain->pack_chain(job.values, job.packed);
    else
      job.executor->pack(*job.values, job.packed, stream);
}

}  // namespace

const BackendEntry& cpu_backend() {
  static const std::vector<Implementation> implementations = cpu_implementations();
  static const BackendEntry entry{.backend = Backend::cpu,
                                  .devices = cpu_devices,
                                  .why_unusable = [](int) { return std::string(); },
                                  .implementations = implementations,
                                  .memory = cpu_memory(),
                                  .pack = pack};
  return entry;
}

}  // namespace kronsparse
