// The CUDA runtime as this backend uses it: every call checked, every resource owned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/host/architectures.hpp"
#include "kronsparse/device.hpp"

namespace kronsparse::cuda {

/// Throws Error out_of_memory or device. The message says what was attempted and how CUDA describes the
/// error.
void check(cudaError_t status, std::string_view action);

/// Makes `device` the calling thread's current device, and restores the previous one when it is destroyed.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;  ///< -1 when nothing has to be put back
};

/// Memory of a device, freed on destruction. Empty when made with 0 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(int device, std::size_t bytes);
  /// Takes over memory that release() gave away.
  [[nodiscard]] static DeviceMemory adopt(int device, void* data) noexcept {
    DeviceMemory memory;
    memory.device_ = device;
    memory.data_ = data;
    return memory;
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Gives the memory away.
  [[nodiscard]] void* release() noexcept { return std::exchange(data_, nullptr); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  int device_ = 0;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The facts about a GPU that cost models and launchers need; read once.
struct GpuFacts {
  int index = 0;
  std::string name;
  int compute_capability = 0;  ///< 90 for 9.0
  Architecture code;           ///< the architecture its kernels were compiled for: its own or an earlier one
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t shared_bytes = 0;  ///< shared memory that a block may use after opting in
  std::size_t l2_bytes = 0;
  double clock_hz = 0;
  double memory_rate = 0;  ///< bytes per second of a copy, read plus written; estimated
  std::string unusable;    ///< why no kernel of this build runs on it; empty when one does

  /// Whether blocks of its kernels may form clusters.
  [[nodiscard]] bool has_clusters() const { return code.compute_capability >= 90; }
};

/// The GPUs of this machine, in CUDA's order. Empty where there is no driver.
[[nodiscard]] const std::vector<GpuFacts>& gpus();
/// One of gpus(); throws Error device otherwise. Cost models and refusals ask nothing else, so they can be
/// tested without a GPU.
[[nodiscard]] const GpuFacts& gpu(Device device);
/// Why cuda:index cannot be used: no driver, a driver too old, no kernel for it. Empty when it can be used.
[[nodiscard]] std::string why_unusable(int index);
/// "NVIDIA H200, sm_90, 132 SMs, 140 GiB, 50 MiB L2".
[[nodiscard]] std::string to_string(const GpuFacts& facts);

/// For tests: while it lives, gpus() returns these, or none for the given reason. Choosing works with them,
/// running does not.
class PretendedGpus {
 public:
  explicit PretendedGpus(std::vector<GpuFacts> gpus, std::string reason_of_none = {});
  ~PretendedGpus();
  PretendedGpus(const PretendedGpus&) = delete;
  PretendedGpus& operator=(const PretendedGpus&) = delete;

 private:
  std::vector<GpuFacts> real_;
  std::string real_reason_;
};

}  // namespace kronsparse::cuda
