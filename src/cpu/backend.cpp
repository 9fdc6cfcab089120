// The CPU's entry in the table of backends.
#include "core/implementation.hpp"
#include "cpu/cpu_info.hpp"
#include "cpu/reference.hpp"
#include "cpu/simd/simd.hpp"

namespace kronsparse {
namespace {

std::vector<DeviceInfo> cpu_devices() { return {{Device{Backend::cpu, 0}, to_string(cpu_info())}}; }

std::vector<Implementation> cpu_implementations() {
  const std::span<const Implementation> simd = simd_implementations();
  std::vector<Implementation> all(simd.begin(), simd.end());
  all.push_back(reference_implementation());
  return all;
}

}  // namespace

const BackendEntry& cpu_backend() {
  static const std::vector<Implementation> implementations = cpu_implementations();
  static const BackendEntry entry{Backend::cpu, cpu_devices, implementations};
  return entry;
}

}  // namespace kronsparse
