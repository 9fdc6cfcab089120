// The order of weights of `wgmma` and `gemm`, as digits.
#include "cuda/large_batch/wgmma/weights.cuh"

namespace kronsparse::cuda {

PackLayout pack_layout(const Problem& problem, const WgmmaOrder& order) {
  PackLayout layout = PackLayout::of(problem);
  if (order.swizzled_rows) {
    for (const int term : {1, 2, 4}) layout.bit({.l = term});
    layout.digit(8, {.l = 8});
    layout.digit(order.tile_k, {.k = 1});
    layout.digit(order.chunks / 4, {.l = 64});
    layout.swizzled = true;
  } else {
    if (order.parts == 1) {
      layout.bit({.l = 1});
      layout.bit({.l = 4});
      layout.bit({.l = 8});
      layout.digit(8, {.k = 1});
      layout.digit(2, {.l = 2});
      layout.digit(order.tile_k / 8, {.k = 8});
    } else {
      layout.bit({.l = 4});
      layout.bit({.l = 8});
      layout.digit(8, {.k = 1});
      layout.digit(2, {.l = 1});
      layout.digit(order.tile_k / 8, {.k = 8});
      layout.digit(2, {.l = 2});
      layout.to_rest = layout.units;
      layout.skip(2);
      layout.elements = PackElements::split_floats;
    }
    layout.digit(order.j_count, {.j = 1});
    layout.digit(order.chunks, {.l = 16});
  }
  layout.digit(order.k_tiles, {.k = order.tile_k});
  layout.digit(order.j_groups, {.j = order.j_count});
  return layout;
}

PackedOrder packed_order(const WgmmaOrder& order, bool transposed) {
  return {.family = order.swizzled_rows ? "gemm" : "wgmma",
          .numbers = {transposed, order.j_groups, order.k_tiles, order.chunks, order.j_count, order.tile_k,
                      order.parts},
          .bytes = static_cast<std::size_t>(order.elements()) * (order.parts == 1 ? 2 : 4)};
}

}  // namespace kronsparse::cuda
