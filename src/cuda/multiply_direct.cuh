// The product for small batches without shared memory for x: the kernel. direct_tiles.cuh says how it works.
#pragma once

#include "cuda/direct_weights.cuh"
#include "cuda/direct_x.cuh"
#include "cuda/kernel_arguments.cuh"

namespace kronsparse::cuda {
namespace direct {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// Where a block stands.
struct BlockPlace {
  int row_block;  ///< of all i
  int i, first_row, first_sample;

  __device__ explicit BlockPlace(const Arguments& args) {
    // Blocks of the same weights are neighbours: they read them at the same time.
    const unsigned number = ptx::block_number();
    row_block = static_cast<int>(args.blocks_of_samples.quotient(number));
    const int sample_block =
        static_cast<int>(number) - row_block * static_cast<int>(args.blocks_of_samples.value());
    i = static_cast<int>(args.row_blocks.quotient(static_cast<unsigned>(row_block)));
    first_row = (row_block - i * args.cut.row_blocks) * args.cut.rows;
    first_sample = sample_block * args.cut.sample_warps * args.cut.shape.tiles * tile_samples;
  }

  [[nodiscard]] __device__ RowPlace row_place(const Arguments& args, int row, int sample_warp) const {
    const int of_i = first_row + row;
    const auto k_tile = static_cast<int>(args.j_groups.quotient(static_cast<unsigned>(of_i)));
    return {.i = i,
            .first_k = k_tile * args.cut.shape.tile_k(),
            .first_j = (of_i - k_tile * args.cut.j_groups) * args.cut.shape.block_j,
            .first_sample = first_sample + sample_warp * args.cut.shape.tiles * tile_samples};
  }
};

#endif

}  // namespace direct

/// The kernel of one of the shapes, by its number: a kernel's template argument cannot be a class.
template <class T, std::size_t shape_number>
__global__ void __launch_bounds__(direct::shapes[shape_number].max_warps() * 32, 1)
    multiply_direct(const __grid_constant__ direct::Arguments args) {
  using namespace direct;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared_memory[];
  constexpr Shape shape = shapes[shape_number];
  constexpr int block_j = shape.block_j, tiles = shape.tiles, outputs = shape.outputs;
  constexpr int floats = shape.item_floats(), item_bytes = floats * 4 * 32;
  const Cut& cut = args.cut;
  const SharedLayout layout = shared_layout(cut);
  const std::uint32_t base = ptx::shared_address(shared_memory);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  // A later kernel that reads its weights as given has nothing to do before this one has ended: its blocks
  // would only take the places that are free now, and share multiprocessors while others do nothing.
  if constexpr (!shape.as_given) {
    ptx::let_later_kernels_start();
    if (args.just_packed) ptx::wait_for_earlier_kernels();
  }
  const BlockPlace place(args);
  if (was_idle(args)) return;
  const auto chunk = static_cast<int>(args.sample_warps.quotient(static_cast<unsigned>(warp)));
  const int sample_warp = warp - chunk * cut.sample_warps;
  const auto row = static_cast<int>(args.l_warps.quotient(static_cast<unsigned>(chunk)));
  const int part = chunk - row * cut.l_warps;

  const std::uint32_t weights = base + chunk * cut.chunk_bytes(),
                      barrier = base + layout.barriers + chunk * 8;
  if (!shape.as_given && sample_warp == 0 && lane == 0) {
    ptx::barrier_init(barrier, 1);
    ptx::barrier_init_fence();
    ptx::barrier_arrive_expecting(barrier, cut.chunk_bytes());
    ptx::copy_bulk(weights,
                   args.weights + (std::int64_t{place.row_block} * cut.chunks() + chunk) * cut.chunk_bytes(),
                   cut.chunk_bytes(), barrier);
  }
  const RowPlace row_place = place.row_place(args, row, sample_warp);
  const auto* x =
      static_cast<const std::uint16_t*>(args.x) + std::int64_t{place.i} * args.c * args.d + row_place.first_j;
  int samples[tiles];  // where they begin; those that do not exist are the last, and not stored
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    samples[tile] =
        min(row_place.first_sample + tile * tile_samples + lane / 4, args.batch - 1) * args.x_sample;
  const int first_l = part * cut.steps * shape.step_l();
  read_arguments<0>(args, base + layout.unused);
  __syncthreads();  // barriers are there

  constexpr int result_tiles = shape.result_tiles(), operands = shape.operands();
  constexpr bool x_is_left = shape.x_is_left();
  // The registers of one tile's loads are the left operand as they are. Its upper half are pairs that belong
  // to the other product, whose lower half is then the wrong one: each has sums of its own.
  constexpr bool is_crossed = x_is_left && tiles == 1;
  float sums[is_crossed ? 2 : result_tiles][operands][4] = {};
  using Rows = std::conditional_t<shape.as_given, RowsOfWeights<shape>, PackedWeights>;
  using Weights = std::conditional_t<shape.as_given, StepOfWeights<shape>, PackedWeights>;
  const auto multiply = [&](const StepOfX<shape>& x_of_step, const Weights& weights_of_step, int step) {
    const std::uint32_t of_lane = weights + step * operands * operand_bytes + lane * 16;
#pragma unroll
    for (int o = 0; o < operands; ++o) {
      const uint4 operand = weights_of_step.operand(o, of_lane);
      if constexpr (is_crossed) {
        const uint4 left{x_of_step.pair(0, 0, 0), x_of_step.pair(0, 0, 1), x_of_step.pair(0, 0, 2),
                         x_of_step.pair(0, 0, 3)};
        multiply_tile<T>(sums[0][o], left, operand.x, operand.y);
        multiply_tile<T>(sums[1][o], left, operand.z, operand.w);
      } else if constexpr (x_is_left) {
#pragma unroll
        for (int tile = 0; tile < result_tiles; ++tile) {
          const auto left = [&](int pair) {
            return uint4{x_of_step.pair(2 * tile, 0, pair), x_of_step.pair(2 * tile + 1, 0, pair),
                         x_of_step.pair(2 * tile, 0, pair + 1), x_of_step.pair(2 * tile + 1, 0, pair + 1)};
          };
          multiply_tile<T>(sums[tile][o], left(0), operand.x, operand.y);
          multiply_tile<T>(sums[tile][o], left(2), operand.z, operand.w);
        }
      } else {
#pragma unroll
        for (int tile = 0; tile < result_tiles; ++tile)
          multiply_tile<T>(sums[tile][o], operand, x_of_step.pair(tile, o % block_j, 0),
                           x_of_step.pair(tile, o % block_j, 1));
      }
    }
  };
  const auto multiply_all = [&]<bool x_vectors>() {
    using X = StepOfX<shape>;
    const Rows rows(args, row_place);
    constexpr int at_once = shape.at_once, step_l = shape.step_l();
    X x_of[at_once];
    Weights weights_of[at_once];
    {
      typename X::Places places[at_once];
#pragma unroll
      for (int s = 0; s < at_once; ++s) {
        places[s].find(args, x, samples, first_l + s * step_l);
        places[s].settle();  // before the wait
      }
#pragma unroll
      for (int s = 0; s < at_once; ++s)
        if (s < cut.steps && !args.just_packed)
          weights_of[s].template load<x_vectors>(args, rows, first_l + s * step_l);
      ptx::wait_for_earlier_kernels();
#pragma unroll
      for (int s = 0; s < at_once; ++s)
        if (s < cut.steps && args.just_packed)
          weights_of[s].template load<x_vectors>(args, rows, first_l + s * step_l);
#pragma unroll
      for (int s = 0; s < at_once; ++s)
        if (s < cut.steps) x_of[s].template load<x_vectors>(places[s]);
    }
    Weights::wait_for_copies(barrier);
#pragma unroll 1
    for (int first_step = 0; first_step < cut.steps; first_step += at_once) {
#pragma unroll
      for (int s = 0; s < at_once; ++s) {
        const int step = first_step + s;
        if (step >= cut.steps) break;
        multiply(x_of[s], weights_of[s], step);
        if (step + at_once < cut.steps) {
          const int next_l = first_l + (step + at_once) * step_l;
          weights_of[s].template load<x_vectors>(args, rows, next_l);
          typename X::Places places;
          places.find(args, x, samples, next_l);
          x_of[s].template load<x_vectors>(places);
        }
      }
    }
  };
  if (args.x_vectors)
    multiply_all.template operator()<true>();
  else
    multiply_all.template operator()<false>();
  if constexpr (shape.as_given) ptx::let_later_kernels_start();
  if constexpr (is_crossed) {
#pragma unroll
    for (int o = 0; o < operands; ++o)
#pragma unroll
      for (int k = 0; k < 2; ++k) sums[0][o][k] += sums[1][o][2 + k];
  }

  const auto gather = [&](float(&of_item)[floats], int item) {
#pragma unroll
    for (int f = 0; f < floats; ++f) {
      // All of an operand, or of one j after the other, of one tile of outputs.
      constexpr int items_of_outputs = shape.items() / outputs;
      const int at = item % items_of_outputs * (floats / block_j) + f / block_j;
      of_item[f] = x_is_left ? sums[item / operands][item % operands][f]
                             : sums[at / 4][item / items_of_outputs * block_j + f % block_j][at % 4];
    }
  };
  const bool plain_store = is_plain(args);
  if (cut.l_warps == 1) {
    const Store<T, shape> store(args, row_place);
    const auto store_all = [&]<bool plain>() {
#pragma unroll
      for (int item = 0; item < shape.items(); ++item) {
        float of_item[floats];
        gather(of_item, item);
        store.template item<plain>(of_item, item);
      }
    };
    if (plain_store)
      store_all.template operator()<true>();
    else
      store_all.template operator()<false>();
    return;
  }

  __syncthreads();  // the weights have been read, sums may take their place
  const int first_item = (row * cut.sample_warps + sample_warp) * shape.items();
#pragma unroll
  for (int item = 0; item < shape.items(); ++item) {
    float of_item[floats];
    gather(of_item, item);
    const std::uint32_t to = base + ((first_item + item) * cut.l_warps + part) * item_bytes + lane * 16;
#pragma unroll
    for (int f = 0; f < floats; f += 4)
      ptx::store_shared_floats(to + f * 128, of_item[f], of_item[f + 1], of_item[f + 2], of_item[f + 3]);
  }
  __syncthreads();
  const int items = cut.rows * cut.sample_warps * shape.items();
#pragma unroll 1
  for (int item = warp; item < items; item += cut.warps()) {
    const std::uint32_t from = base + item * cut.l_warps * item_bytes + lane * 16;
    float of_item[floats] = {};
    constexpr int parts_at_once = 4;  // whose loads do not wait for each other
#pragma unroll 1
    for (int first_part = 0; first_part < cut.l_warps; first_part += parts_at_once) {
      uint4 parts[parts_at_once][floats / 4];
#pragma unroll
      for (int p = 0; p < parts_at_once; ++p)
#pragma unroll
        for (int f = 0; f < floats / 4; ++f)
          parts[p][f] = first_part + p < cut.l_warps
                            ? ptx::load_shared_16(from + (first_part + p) * item_bytes + f * 512)
                            : uint4{0, 0, 0, 0};
#pragma unroll
      for (int p = 0; p < parts_at_once; ++p)
#pragma unroll
        for (int f = 0; f < floats / 4; ++f) {
          const uint4& four = parts[p][f];
          of_item[4 * f] += __uint_as_float(four.x), of_item[4 * f + 1] += __uint_as_float(four.y);
          of_item[4 * f + 2] += __uint_as_float(four.z), of_item[4 * f + 3] += __uint_as_float(four.w);
        }
    }
    const int row_and_samples = item / shape.items();
    const auto item_row =
        static_cast<int>(args.sample_warps.quotient(static_cast<unsigned>(row_and_samples)));
    const RowPlace item_place =
        place.row_place(args, item_row, row_and_samples - item_row * cut.sample_warps);
    const Store<T, shape> store(args, item_place);
    if (plain_store)
      store.template item<true>(of_item, item % shape.items());
    else
      store.template item<false>(of_item, item % shape.items());
  }
#endif
}

}  // namespace kronsparse::cuda
