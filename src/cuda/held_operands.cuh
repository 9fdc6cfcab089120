// What comes to a warp's shared memory, and from there to the tensor cores' registers: x once, weights tile
// after tile. held_tiles.cuh says how they lie.
#pragma once

#include "cuda/held_tiles.cuh"
#include "cuda/ptx_sm90.cuh"
#include "cuda/racecheck.cuh"
#include "cuda/small_batch_mma.cuh"
#include "cuda/tensor_core.cuh"

namespace kronsparse::cuda::held {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// Where a block stands.
struct BlockPlace {
  int number;
  int outputs;  ///< the number of the block's outputs, of all i
  int i, first_k;
  /// Of those that are multiplied, and of those that are stored: where the last block would have few, it
  /// begins earlier. (Boxes with samples that do not exist take longer to come.)
  int first_sample, first_stored;

  /// Blocks of the same weights are neighbours: they read them at the same time.
  __device__ static int outputs_of_block(const Arguments& args) {
    return static_cast<int>(args.blocks_of_samples.quotient(ptx::block_number()));
  }

  __device__ explicit BlockPlace(const Arguments& args)
      : number(static_cast<int>(ptx::block_number())), outputs(outputs_of_block(args)) {
    const int sample_block = number - outputs * static_cast<int>(args.blocks_of_samples.value());
    i = static_cast<int>(args.k_blocks.quotient(static_cast<unsigned>(outputs)));
    first_k = (outputs - i * args.cut.k_blocks) * args.cut.tiles * tile_outputs;
    first_stored = sample_block * tile_samples;
    first_sample = max(min(first_stored, args.batch - tile_samples), 0);
  }
};

/// All warps' weights of the first tile are asked for before anything else is done, by the first thread:
/// instructions and arguments come from memory as well, and nothing should come before this.
__device__ inline void ask_for_first_tile(const Arguments& args, std::uint32_t base) {
  if (threadIdx.x != 0) return;
  const std::uint32_t barrier = base + shared_layout().barriers;
  ptx::barrier_init(barrier, 1);
  ptx::barrier_init_fence();
  ptx::barrier_arrive_expecting(barrier, tile_weight_bytes);
  ptx::copy_bulk(
      base,
      args.weights + std::int64_t{BlockPlace::outputs_of_block(args)} * args.cut.tiles * tile_weight_bytes,
      tile_weight_bytes, barrier);
}

/// A warp's weights of all tiles. No other warp reads them.
class Weights {
 public:
  __device__ Weights(const Arguments& args, const BlockPlace& place, std::uint32_t base, int warp)
      : from_(args.weights + std::int64_t{place.outputs} * args.cut.tiles * tile_weight_bytes +
              warp * warp_weight_bytes),
        base_(base),
        barriers_(base + barrier_place(warp, 0)),
        warp_(warp) {}

  /// Computes what is needed for every tile; not before the first copies have been asked for.
  __device__ void settle() {
    right_ = base_ + slot_place(warp_, 0) + lane() * 16;
    ptx::settle(right_);
    ptx::settle(from_);
  }

  /// Before a fence and a barrier of the block.
  __device__ void init() const {
    if (lane() != 0) return;
    for (int slot = 0; slot < slots; ++slot) ptx::barrier_init(barriers_ + slot * 8, 1);
  }

  /// Asks for a tile's, for a slot that no lane reads: by all lanes, of which one does.
  __device__ void ask(int tile, int slot) const {
    if (lane() != 0) return;
    const std::uint32_t barrier = barriers_ + slot * 8;
    ptx::barrier_arrive_expecting(barrier, warp_weight_bytes);
    ptx::copy_bulk(base_ + slot_place(warp_, slot), from_ + std::int64_t{tile} * tile_weight_bytes,
                   warp_weight_bytes, barrier);
  }

  /// For those of a later tile than the first, which has a barrier of its own.
  __device__ void wait(int slot, int parity) const { ptx::barrier_wait(barriers_ + slot * 8, parity); }
  __device__ void wait_for_first_tile() const { ptx::barrier_wait(base_ + shared_layout().barriers, 0); }

  /// The right operands of a step, of all j.
  template <int j_pairs>
  __device__ void load(uint4 (&right)[j_pairs], int slot, int step) const {
#pragma unroll
    for (int pair = 0; pair < j_pairs; ++pair)
      right[pair] = ptx::load_shared_16(right_ + slot_place(0, slot) + (step * j_pairs + pair) * 512);
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  const std::byte* from_;
  std::uint32_t base_, barriers_;
  std::uint32_t right_ = 0;  ///< of the lane, in slot 0
  int warp_;
};

/// Multiplies left operands of all j with right ones, of two j each.
template <class T, int block_j>
__device__ inline void multiply(float (&sums)[block_j][4], const uint4 (&left)[block_j],
                                const uint4 (&right)[block_j / 2]) {
#pragma unroll
  for (int j = 0; j < block_j; j += 2) {
    multiply_tile<T>(sums[j], left[j], right[j / 2].x, right[j / 2].y);
    multiply_tile<T>(sums[j + 1], left[j + 1], right[j / 2].z, right[j / 2].w);
  }
}

/// The first blocks of a kernel ask for all blocks' weights: tile by tile, as they will be needed.
__device__ inline void ask_for_all(const Arguments& args, const BlockPlace& place) {
  const Cut& cut = args.cut;
  if (place.number >= cut.early_blocks) return;
  for (int tile = 0; tile < cut.early_tiles; ++tile)
    for (int piece = place.number + cut.early_blocks * static_cast<int>(threadIdx.x);
         piece < args.warp_pieces; piece += cut.early_blocks * threads)
      ptx::prefetch_bulk(args.weights + (std::int64_t{piece / warps} * cut.tiles + tile) * tile_weight_bytes +
                             piece % warps * warp_weight_bytes,
                         warp_weight_bytes);
}

/// A warp's share of the copies of x, and its lanes' loads.
template <Shape shape, bool ordinary>
class X {
  static constexpr int block_j = shape.block_j(), loads = block_j / 2, j_warps = shape.j_warps();

 public:
  __device__ X(const Arguments& args, const BlockPlace& place, std::uint32_t base, int warp)
      : args_(args), place_(place), base_(base), warp_(warp), first_warp_(warp / j_warps * j_warps) {}

  /// By every warp, before a fence and a barrier of the block.
  __device__ void init() const {
    if (lane_number() != 0) return;
    for (int box = 0; box < warp_boxes; ++box)
      ptx::barrier_init(barrier_of(warp_, box), has_boxes() ? 1 : arrivals_of_warps(1));
    if (has_boxes()) ptx::prefetch_map(&args_.x_map);
  }

  /// Asks for the warp's boxes: every so many-th of those that warps share, so that the first come first.
  __device__ void ask() const {
    if (!has_boxes()) {
      for (int box = 0; box < warp_boxes; ++box) copy_elements(box);
    } else if (lane_number() == 0) {
      for (int box = 0; box < warp_boxes; ++box) {
        const std::uint32_t barrier = barrier_of(warp_, box);
        ptx::barrier_arrive_expecting(barrier, box_bytes);
        ptx::copy_box(base_ + box_place(warp_, box), &args_.x_map, 0, place_.first_sample, first_row(box),
                      place_.i, barrier);
      }
    }
  }

  /// Computes what is needed for every load, while x is on its way.
  __device__ void settle() {
    const int lane = lane_number();
#pragma unroll
    for (int load = 0; load < loads; ++load) {
      from_[load] = base_ + box_place(first_warp_, 0) +
                    shape.place(shape.sample_of(lane / 4),
                                term_of(8 / block_j, lane % 4, load * (8 / block_j)) * shape.d * 2 +
                                    warp_ % j_warps * 16);
      ptx::settle(from_[load]);
    }
  }

  /// Waits for a box of those that warps share.
  __device__ void wait(int box) const {
    ptx::barrier_wait(barrier_of(first_warp_ + box % j_warps, box / j_warps), 0);
  }
  /// Whether this warp asked for it, and which slot is there later.
  [[nodiscard]] __device__ bool asked_for(int box) const { return warp_ % j_warps == box % j_warps; }
  [[nodiscard]] __device__ static constexpr int slot_of(int box) { return 1 + box / j_warps; }
  /// Waits for all that share the warp's x: they have read what they have waited for.
  __device__ void meet() const {
    if constexpr (j_warps == 1)
      __syncwarp();
    else
      ptx::barrier_of(1 + warp_ / j_warps, j_warps * 32);
  }

  /// The left operands of a step of a box.
  __device__ void load(uint4 (&left)[block_j], int box, int step) const {
    const int later = box_place(box % j_warps, box / j_warps) - box_place(0, 0) + step * shape.step_bytes();
    std::uint32_t words[2][loads * 4];
#pragma unroll
    for (int load = 0; load < loads; ++load)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 v = ptx::load_shared_16(from_[load] + later + half * Shape::eight_samples_bytes);
        words[half][4 * load] = v.x, words[half][4 * load + 1] = v.y;
        words[half][4 * load + 2] = v.z, words[half][4 * load + 3] = v.w;
      }
#pragma unroll
    for (int j = 0; j < block_j; ++j)
      left[j] = {pair_of_terms<block_j>(words[0], j, 0), pair_of_terms<block_j>(words[1], j, 0),
                 pair_of_terms<block_j>(words[0], j, 1), pair_of_terms<block_j>(words[1], j, 1)};
  }

 private:
  __device__ static int lane_number() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] __device__ bool has_boxes() const { return ordinary || args_.boxes; }
  [[nodiscard]] __device__ std::uint32_t barrier_of(int warp, int box) const {
    return base_ + barrier_place(warp, slots + box);
  }
  /// Of a box of this warp, among the rows of a sample.
  [[nodiscard]] __device__ int first_row(int box) const {
    return (first_warp_ * warp_boxes + box * j_warps + warp_ % j_warps) * box_rows;
  }

  /// What the copy engine cannot take: to where it would have brought it.
  __device__ void copy_elements(int box) const {
    constexpr int units = row_bytes / 16;
    for (int at = lane_number(); at < box_rows * tile_samples * units; at += 32) {
      const int unit = at % units, row = at / units % box_rows, sample = at / units / box_rows;
      const int x_row = first_row(box) + row;
      const bool exists = x_row < args_.x_rows && place_.first_sample + sample < args_.batch;
      const auto* from = static_cast<const std::byte*>(args_.x) +
                         (place_.first_sample + sample) * args_.x_sample * 2 +
                         (std::int64_t{place_.i} * args_.x_rows + x_row) * row_bytes + unit * 16;
      mma::store_elements(base_ + box_place(warp_, box) + shape.place(sample, row * row_bytes + unit * 16),
                          from, exists ? 8 : 0);
    }
    ptx::fence_for_bulk();  // weights will come to the same place
    if (speaks_for_warp()) ptx::barrier_arrive(barrier_of(warp_, box));
  }

  const Arguments& args_;
  const BlockPlace& place_;
  std::uint32_t base_;
  int warp_, first_warp_;           ///< of those that share x, the first
  std::uint32_t from_[loads] = {};  ///< of the lane, in the first box
};

#endif

}  // namespace kronsparse::cuda::held
