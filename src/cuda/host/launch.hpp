// Launches of kernels that may overlap the end of the kernels before them.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <string_view>
#include <type_traits>

#include "core/message.hpp"
#include "cuda/host/runtime.hpp"

namespace kronsparse::cuda {

struct LaunchShape {
  dim3 blocks{1};
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster_blocks = 1;
  /// Lets the kernel start before the earlier kernels of the stream have ended. It must then be compiled for
  /// sm_90 or later, and wait for them (griddepcontrol.wait) before it touches operands.
  bool overlapping = false;
  /// The shared memory that each multiprocessor reserves for its blocks, in per cent of the maximum; the rest
  /// is cache. By default the driver decides.
  int shared_percent = cudaSharedmemCarveoutDefault;
};

/// Whether the kernel's code has the instructions that overlapping needs. A newer GPU may run older code
/// without them.
[[nodiscard]] inline bool can_overlap(const void* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's attributes");
  return attributes.ptxVersion >= 90;
}

/// Lets launches of the kernel use all the shared memory that a block may have. Plans share kernels, so the
/// needs of one plan must not become the limit of another.
inline void allow_shared_memory(const void* kernel, const GpuFacts& gpu) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(gpu.shared_bytes)),
        "raising a kernel's limit of shared memory");
}

/// Lets launches of the kernel use clusters of this many blocks.
inline void allow_cluster(const void* kernel, int blocks) {
  constexpr int portable = 8;  // larger ones have to be asked for
  if (blocks > portable)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "asking for large clusters");
}

/// The clusters of this shape that the GPU runs at the same time, at least one.
[[nodiscard]] inline int max_clusters(const void* kernel, const LaunchShape& shape) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(shape.cluster_blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.cluster_blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
        "asking for the clusters that run at once");
  return clusters > 0 ? clusters : 1;
}

/// Launches a kernel with `arguments`. Throws Error device with the kernel's name if that fails.
template <class... Arguments>
void launch(std::string_view name, const void* kernel, const LaunchShape& shape, Stream stream,
            const Arguments&... arguments) {
  std::array<cudaLaunchAttribute, 3> attributes{};
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
#if CUDART_VERSION >= 13000  // the first releases of 12 lack the attribute
  if (shape.shared_percent != cudaSharedmemCarveoutDefault) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = static_cast<unsigned>(shape.shared_percent);
  }
#endif
  std::array<void*, sizeof...(Arguments)> parameters{
      const_cast<void*>(static_cast<const void*>(&arguments))...};
  // cudaGetLastError is not asked: it may return the error of an earlier call by somebody else.
  const cudaError_t status = cudaLaunchKernelExC(&config, kernel, parameters.data());
  if (status != cudaSuccess)
    check(status, message("launching the kernel {}", name));  // the text is made for failures only
}

/// The same, with arguments converted to the kernel's parameter types.
template <class... Parameters>
void launch(std::string_view name, void (*kernel)(Parameters...), const LaunchShape& shape, Stream stream,
            const std::type_identity_t<Parameters>&... arguments) {
  launch(name, reinterpret_cast<const void*>(kernel), shape, stream, arguments...);
}

}  // namespace kronsparse::cuda
