// Launches of kernels that may overlap the end of those before them.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <string_view>

#include "core/message.hpp"
#include "cuda/runtime.hpp"

namespace kronsparse::cuda {

struct LaunchShape {
  dim3 blocks{1};
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster_blocks = 1;
  /// Starts before the kernels ahead of it in the stream have ended. The kernel must then be compiled
  /// for sm_90 or later, and wait for them (griddepcontrol.wait) before it touches operands.
  bool overlapping = false;
};

/// Whether a plan's runs may overlap what is ahead of them in their stream. Kernels that overlap read the
/// weights at once, so the kernel that packs new ones must have ended.
class FreshWeights {
 public:
  void packed_on(Stream stream) noexcept {
    stream_ = stream;
    is_next_ = true;
  }
  /// False for the first run that follows the packing in its stream.
  [[nodiscard]] bool may_overlap(Stream stream) const noexcept {
    return stream != stream_ || !is_next_.exchange(false);
  }

 private:
  Stream stream_ = nullptr;
  mutable std::atomic<bool> is_next_ = false;  // runs may come from several threads
};

/// Whether the kernel's code has the instructions that overlapping needs: a newer GPU also runs older code.
[[nodiscard]] inline bool can_overlap(const void* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's attributes");
  return attributes.ptxVersion >= 90;
}

/// Lets launches of the kernel have all the shared memory there is. Plans share kernels: what one needs
/// must not become the limit of another.
inline void allow_shared_memory(const void* kernel, const GpuFacts& gpu) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(gpu.shared_bytes)),
        "raising a kernel's limit of shared memory");
}

/// Lets launches of the kernel have clusters of so many blocks.
inline void allow_cluster(const void* kernel, int blocks) {
  constexpr int portable = 8;  // more have to be asked for
  if (blocks > portable)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "asking for large clusters");
}

template <class Arguments>
void launch(std::string_view name, const void* kernel, const LaunchShape& shape, Stream stream,
            Arguments arguments) {
  std::array<cudaLaunchAttribute, 2> attributes{};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes.data();
  if (shape.cluster_blocks > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster_blocks), 1, 1};
  }
  if (shape.overlapping) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  std::array<void*, 1> parameters{&arguments};
  check(cudaLaunchKernelExC(&config, kernel, parameters.data()), message("launching the kernel {}", name));
  check_launch(name);
}

}  // namespace kronsparse::cuda
