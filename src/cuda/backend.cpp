// The entry of NVIDIA GPUs in the table of backends.
#include "cuda/backend.hpp"

#include <algorithm>

#include "core/implementation.hpp"
#include "cuda/host/memory.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/packing/packing.hpp"

namespace kronsparse {
namespace cuda {
namespace {

/// CUDA puts the fastest GPU first, the core expects the best device last.
std::vector<DeviceInfo> usable_gpus() {
  std::vector<DeviceInfo> usable;
  for (const GpuFacts& facts : gpus())
    if (facts.unusable.empty())
      usable.push_back({Device{Backend::cuda, facts.index}, to_string(facts), facts.l2_bytes});
  std::ranges::reverse(usable);
  return usable;
}

/// Best guess first: equal predictions keep this order.
std::vector<Implementation> all_implementations() {
  return {
      gemm_implementation(),          wgmma_implementation(),          mma_implementation(),
      resident_implementation(),      direct_implementation(),         unpacked_implementation(),
      narrow_implementation(),        stream_implementation(),         skinny_implementation(),
      simt_implementation(),          gradient_wgmma_implementation(), gradient_mma_implementation(),
      gradient_simt_implementation(), staged_implementation(),         fused_wgmma_implementation(),
      fused_implementation(),
  };
}

}  // namespace
}  // namespace cuda

const BackendEntry& cuda_backend() {
  static const std::vector<Implementation> implementations = cuda::all_implementations();
  static const BackendEntry entry{.backend = Backend::cuda,
                                  .devices = cuda::usable_gpus,
                                  .why_unusable = cuda::why_unusable,
                                  .implementations = implementations,
                                  .memory = cuda::memory_ops(),
                                  .pack = cuda::pack_all};
  return entry;
}

}  // namespace kronsparse
