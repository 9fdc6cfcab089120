// The kernels of kernel.cuh, by dtype and samples per block.
#include "cuda/small_batch/x_stays/wgmma/kernel.cuh"
#include "cuda/small_batch/x_stays/wgmma/search.hpp"

namespace kronsparse::cuda {
namespace {

template <class T>
XStaysWgmmaKernel kernel_of(int samples) {
  if (samples == 8) return multiply_x_stays_wgmma<T, 8>;
  if (samples == 16) return multiply_x_stays_wgmma<T, 16>;
  if (samples == 32) return multiply_x_stays_wgmma<T, 32>;
  return multiply_x_stays_wgmma<T, 64>;
}

}  // namespace

XStaysWgmmaKernel x_stays_wgmma_kernel(DType dtype, int samples) {
  return dtype == DType::bf16 ? kernel_of<__nv_bfloat16>(samples) : kernel_of<__half>(samples);
}

}  // namespace kronsparse::cuda
