#include "cuda/host/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include "core/message.hpp"
#include "cuda/host/runtime.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

/// The driver's encoder, looked up at run time, without linking against the driver.
auto encoder() {
  using Encoder = decltype(&cuTensorMapEncodeTiled);
  static const Encoder found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &result),
          "looking up cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess)
      throw Error(ErrorCode::device, "the CUDA driver has no cuTensorMapEncodeTiled, it is older than 12.0");
    return reinterpret_cast<Encoder>(function);
  }();
  return found;
}

}  // namespace

CUtensorMap tensor_map(const TensorView& view) {
  std::array<cuuint64_t, 4> sizes{};
  std::array<cuuint64_t, 3> strides{};
  std::array<cuuint32_t, 4> box{};
  constexpr std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  for (std::size_t dimension = 0; dimension < 4; ++dimension) {
    sizes[dimension] = static_cast<cuuint64_t>(view.sizes[dimension]);
    box[dimension] = static_cast<cuuint32_t>(view.box[dimension]);
    if (dimension > 0) strides[dimension - 1] = static_cast<cuuint64_t>(view.stride_bytes(dimension));
  }
  CUtensorMap map{};
  const auto encode = [&] {
    return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(view.data), sizes.data(),
                     strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                     view.is_swizzled()  ? CU_TENSOR_MAP_SWIZZLE_128B
                     : view.swaps_halves ? CU_TENSOR_MAP_SWIZZLE_32B
                                         : CU_TENSOR_MAP_SWIZZLE_NONE,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = encode();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    // This thread has not called CUDA before. The runtime makes its context current.
    int device = 0;
    check(cudaGetDevice(&device), "asking for the current device");
    check(cudaSetDevice(device), "making the device current");
    status = encode();
  }
  if (status != CUDA_SUCCESS)
    throw Error(ErrorCode::internal,
                message("cuTensorMapEncodeTiled refused a tensor (error {})", static_cast<int>(status)));
  return map;
}

}  // namespace kronsparse::cuda
