#include "cuda/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include "core/message.hpp"
#include "cuda/runtime.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::cuda {
namespace {

constexpr std::int64_t element_bytes = 2;

/// The driver's encoder, found without linking against the driver.
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

/// Of a dimension of one element any stride will do: that of the one before.
std::int64_t stride_bytes(const TensorView& view, std::size_t dimension) {
  while (dimension > 0 && view.sizes[dimension] == 1) --dimension;
  return dimension == 0 ? 16 : view.strides[dimension - 1] * element_bytes;
}

}  // namespace

bool strides_fit(const TensorView& view) noexcept {
  constexpr std::int64_t size_limit = std::int64_t{1} << 31;  // coordinates are signed
  constexpr std::int64_t stride_limit = std::int64_t{1} << 40;
  // The engine writes whole units of 16 bytes, even over the end of a row.
  if (view.sizes[0] * element_bytes % 16 != 0) return false;
  for (std::size_t dimension = 0; dimension < 4; ++dimension) {
    if (view.sizes[dimension] < 1 || view.sizes[dimension] + view.box[dimension] >= size_limit) return false;
    if (dimension == 0) continue;
    const std::int64_t stride = stride_bytes(view, dimension);
    if (stride % 16 != 0 || stride >= stride_limit) return false;
  }
  return true;
}

bool fits(const TensorView& view) noexcept {
  return strides_fit(view) && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

CUtensorMap tensor_map(const TensorView& view) {
  std::array<cuuint64_t, 4> sizes{};
  std::array<cuuint64_t, 3> strides{};
  std::array<cuuint32_t, 4> box{};
  constexpr std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  for (std::size_t dimension = 0; dimension < 4; ++dimension) {
    sizes[dimension] = static_cast<cuuint64_t>(view.sizes[dimension]);
    box[dimension] = static_cast<cuuint32_t>(view.box[dimension]);
    if (dimension > 0) strides[dimension - 1] = static_cast<cuuint64_t>(stride_bytes(view, dimension));
  }
  CUtensorMap map{};
  const auto encode = [&] {
    return encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(view.data), sizes.data(),
                     strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = encode();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {
    // A thread that has called nothing of CUDA yet: the runtime makes its context current.
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
