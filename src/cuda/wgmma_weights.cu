#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/launch.hpp"
#include "cuda/wgmma_weights.cuh"

namespace kronsparse::cuda {
namespace {

/// One thread a weight, in the order of the values.
template <class Element>
__global__ void pack_wgmma_weights(const Element* values, Element* packed, WgmmaOrder order,
                                   bool transposed) {
  const std::int64_t total = order.a * order.b * order.c * order.d;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  // The values' own shape: b and c before the transposition.
  const std::int64_t inner = transposed ? order.b : order.c;
  const std::int64_t outer = transposed ? order.c : order.b;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < total; at += threads) {
    const std::int64_t j = at % order.d;
    const std::int64_t column = at / order.d % inner;
    const std::int64_t row = at / order.d / inner % outer;
    const std::int64_t i = at / order.d / inner / outer;
    const std::int64_t to = transposed ? order.place(i, column, row, j) : order.place(i, row, column, j);
    const Element value = values[at];
    if constexpr (sizeof(Element) == 2) {
      packed[to] = value;
    } else {
      const Element high = tf32_part(value);
      const float rest = __uint_as_float(value) - __uint_as_float(high);
      packed[to] = high;
      packed[to + order.tile_k * 16] = isfinite(rest) ? __float_as_uint(rest) : 0u;
    }
  }
}

}  // namespace

void pack_weights(const WgmmaOrder& order, std::size_t element_bytes, const void* values, void* packed,
                  bool transposed, Stream stream) {
  const std::int64_t total = order.a * order.b * order.c * order.d;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((total + 255) / 256, 65535));
  const auto enqueue = [&]<class Element>() {
    launch("wgmma (packing)", pack_wgmma_weights<Element>, {.blocks = blocks, .threads = 256}, stream,
           static_cast<const Element*>(values), static_cast<Element*>(packed), order, transposed);
  };
  if (element_bytes == 2)
    enqueue.operator()<std::uint16_t>();
  else
    enqueue.operator()<std::uint32_t>();
}

}  // namespace kronsparse::cuda
