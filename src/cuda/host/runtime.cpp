#include "cuda/host/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/message.hpp"
#include "core/profile.hpp"
#include "cuda/host/architectures.hpp"
#include "cuda/host/speeds.hpp"
#include "cuda/profile/profile.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

constexpr double mebibyte = 1024.0 * 1024.0;

std::string version_text(int version) { return message("{}.{}", version / 1000, version % 1000 / 10); }

/// Errors that mean that this GPU or its driver takes none of the kernels.
bool is_about_kernel_images(cudaError_t status) {
  return status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidKernelImage ||
         status == cudaErrorInvalidPtx || status == cudaErrorUnsupportedPtxVersion ||
         status == cudaErrorJitCompilationDisabled || status == cudaErrorInvalidDeviceFunction;
}

/// The GPU and the build, to be added to CUDA's own words, which name neither.
std::string about_kernel_images() {
  int device = 0;
  int major = 0;
  int minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return {};
  return message("; cuda:{} is sm_{}, this build has kernels for {}", device, major * 10 + minor,
                 architectures_text(built_architectures()));
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value;
  static_cast<void>(cudaGetLastError());  // so that no later call reports it
  return 0;
}

GpuFacts facts_of(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), message("asking for the properties of cuda:{}", index));
  GpuFacts facts;
  facts.index = index;
  facts.name = properties.name;
  facts.compute_capability = properties.major * 10 + properties.minor;
  facts.code = code_for(built_architectures(), facts.compute_capability).value_or(Architecture{});
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = properties.totalGlobalMem;
  facts.shared_bytes = properties.sharedMemPerBlockOptin;
  facts.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  // Drivers of virtual machines may hide the clocks. Cost models can still compare with these numbers.
  facts.clock_hz = std::max(1e3 * attribute(cudaDevAttrClockRate, index), 1e9);
  // Memory moves data twice per clock; a copy reaches 87 % of that on an H200.
  facts.memory_rate = std::max(
      0.87 * 2.0 * 1e3 * attribute(cudaDevAttrMemoryClockRate, index) * properties.memoryBusWidth / 8.0,
      1e11);
  if (attribute(cudaDevAttrComputeMode, index) == cudaComputeModeProhibited)
    facts.unusable = "its compute mode forbids all programs (nvidia-smi -c DEFAULT allows them)";
  else
    facts.unusable = misfit(built_architectures(), facts.compute_capability);
  return facts;
}

struct Found {
  std::vector<GpuFacts> gpus;
  std::string reason;  ///< why there are none
};

std::string reason_of_none(cudaError_t status) {
  int driver = 0;
  int runtime = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) return "no NVIDIA driver was found";
  if (status == cudaErrorInsufficientDriver)
    return message("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}",
                   version_text(driver), version_text(runtime));
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string setting =
      visible == nullptr ? "" : message(" (CUDA_VISIBLE_DEVICES is '{}')", std::string(visible));
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return message("the NVIDIA driver found no GPU{}", setting);
  return message("the NVIDIA driver does not work: {} ({}){}", cudaGetErrorString(status),
                 cudaGetErrorName(status), setting);
}

/// Looking for GPUs must not fail: a machine without them still has its CPU.
Found find_gpus() {
  Found found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());  // so that no later call reports it
  if (status != cudaSuccess || count == 0) {
    found.reason = reason_of_none(status);
    return found;
  }
  for (int index = 0; index < count; ++index) {
    try {
      found.gpus.push_back(facts_of(index));
      GpuFacts& facts = found.gpus.back();
      use_rates(facts.name, read_rates(to_string(facts), {Backend::cuda, index}));
      facts.memory_rate = copy_rate(facts);
    } catch (const Error& error) {
      GpuFacts broken;
      broken.index = index;
      broken.name = "an NVIDIA GPU";
      broken.unusable = error.what();
      found.gpus.push_back(std::move(broken));
    }
  }
  return found;
}

Found& found() {
  static Found once = find_gpus();
  return once;
}

}  // namespace

void check(cudaError_t status, std::string_view action) {
  if (status == cudaSuccess) return;
  // Otherwise CUDA reports the same error to the next caller.
  static_cast<void>(cudaGetLastError());
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device;
  throw Error(code, message("cuda: {} failed: {} ({}){}", action, cudaGetErrorString(status),
                            cudaGetErrorName(status),
                            is_about_kernel_images(status) ? about_kernel_images() : std::string()));
}

DeviceGuard::DeviceGuard(int device) {
  int current = 0;
  check(cudaGetDevice(&current), "asking for the current device");
  if (current == device) return;
  check(cudaSetDevice(device), message("changing to cuda:{}", device));
  previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0 && cudaSetDevice(previous_) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

DeviceMemory::DeviceMemory(int device, std::size_t bytes) : device_(device) {
  if (bytes == 0) return;
  const DeviceGuard guard(device);
  const cudaError_t status = cudaMalloc(&data_, bytes);
  if (status != cudaSuccess) {
    data_ = nullptr;
    static_cast<void>(cudaGetLastError());
    std::size_t available = 0;
    std::size_t total = 0;
    const bool is_known = cudaMemGetInfo(&available, &total) == cudaSuccess;
    const std::string rest =
        is_known ? message(", {:.1f} of {:.1f} MiB free", static_cast<double>(available) / mebibyte,
                           static_cast<double>(total) / mebibyte)
                 : std::string();
    check(status, message("allocating {} bytes on cuda:{} ({:.1f} MiB{})", bytes, device,
                          static_cast<double>(bytes) / mebibyte, rest));
  }
  bytes_ = bytes;
}

// Errors are ignored here: the driver may be gone when a program ends, and the memory with it.
DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  int current = 0;
  if (cudaGetDevice(&current) != cudaSuccess) return;
  if (current != device_) static_cast<void>(cudaSetDevice(device_));
  if (cudaFree(data_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (current != device_) static_cast<void>(cudaSetDevice(current));
}

const std::vector<GpuFacts>& gpus() { return found().gpus; }

std::string why_unusable(int index) {
  const std::vector<GpuFacts>& all = gpus();
  if (all.empty()) return found().reason;
  const auto facts = std::ranges::find(all, index, &GpuFacts::index);
  if (facts == all.end())
    return all.size() == 1 ? std::string("the NVIDIA driver found one GPU")
                           : message("the NVIDIA driver found {} GPUs", all.size());
  return facts->unusable.empty() ? std::string() : message("{}: {}", facts->name, facts->unusable);
}

const GpuFacts& gpu(Device device) {
  const std::vector<GpuFacts>& all = gpus();
  const auto facts = std::ranges::find(all, device.index, &GpuFacts::index);
  if (device.backend != Backend::cuda || facts == all.end())
    throw Error(ErrorCode::device, message("device: {} is not a GPU of this machine", device.to_string()));
  return *facts;
}

std::string to_string(const GpuFacts& facts) {
  constexpr double gibibyte = 1024.0 * mebibyte;
  return message("{}, sm_{}, {} SMs, {:.0f} GiB, {:.0f} MiB L2", facts.name, facts.compute_capability,
                 facts.multiprocessors, static_cast<double>(facts.memory_bytes) / gibibyte,
                 static_cast<double>(facts.l2_bytes) / mebibyte);
}

PretendedGpus::PretendedGpus(std::vector<GpuFacts> gpus, std::string reason_of_none)
    : real_(std::exchange(found().gpus, std::move(gpus))),
      real_reason_(std::exchange(found().reason, std::move(reason_of_none))) {}

PretendedGpus::~PretendedGpus() { found() = {std::move(real_), std::move(real_reason_)}; }

}  // namespace kronsparse::cuda
