// The producer of the kernel `fused_wgmma`: one warp that copies slabs of weights, and of x for the first
// step, into a ring of stages, in the order in which the warpgroups take them.
#pragma once

#include "cuda/chain/fused_wgmma/tiles.cuh"
#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/ring.cuh"
#include "cuda/device/tensor_core.cuh"

namespace kronsparse::cuda::fused_wgmma {

template <Arithmetic arithmetic_value, Shape shape>
struct Traits {
  static constexpr Arithmetic arithmetic = arithmetic_value;
  static constexpr int row_groups = shape.row_groups;
  static constexpr int warpgroups = shape.warpgroups;
  static constexpr int blocks_at_once = shape.blocks_at_once;
  static constexpr int consumer_threads = warpgroups * warpgroup_threads;
  static constexpr int threads = consumer_threads + producer_threads;
  /// Registers of a thread that multiplies. The producer has few.
  static constexpr int registers = shape.registers;
};

/// The order of slabs in a step: items go to the warpgroups in rounds, and each warpgroup of a round gets its
/// first slab before any gets its second.
template <class Traits>
[[nodiscard]] __device__ inline int items_in_round(const Step& step, int first) {
  return min(Traits::warpgroups, step.items_of_part - first);
}

/// An item: some blocks, and a chunk of their outputs.
struct Item {
  int block, chunk;
};
[[nodiscard]] __device__ inline Item item_at(const Step& step, int part, int number) {
  const int group = number / step.chunks_of_part;
  return {group * step.item.blocks, part * step.chunks_of_part + number - group * step.chunks_of_part};
}

template <class Traits>
class Producer {
 public:
  __device__ Producer(const Arguments& p, std::uint32_t shared)
      : p_(p), shared_(shared), barriers_{shared}, lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    ptx::wait_for_earlier_kernels();
    for (std::int64_t tile = blockIdx.x; tile < p_.tiles; tile += gridDim.x)
      for (int s = 0; s < p_.steps; ++s)
        for (int part = 0; part < (s + 1 == p_.steps ? p_.parts : 1); ++part) copy_step(tile, s, part);
  }

 private:
  __device__ void copy_step(std::int64_t tile, int s, int part) {
    const Step& step = p_.step[s];
    for (int first = 0; first < step.items_of_part; first += Traits::warpgroups) {
      const int in_round = items_in_round<Traits>(step, first);
      for (int slab = 0; slab < step.slabs; ++slab)
        for (int n = 0; n < in_round; ++n) {
          const Item item = item_at(step, part, first + n);
          ptx::barrier_wait(barriers_.empty(place_.at), place_.parity ^ 1);
          copy_slab(step, s == 0, tile, item, slab);
          place_.advance(p_.stages);
        }
    }
  }

  __device__ void copy_slab(const Step& step, bool has_x, std::int64_t tile, const Item& item, int slab) {
    const ItemShape shape = step.item;
    const std::uint32_t stage = shared_ + p_.stages_at + place_.at * p_.stage_bytes;
    const std::uint32_t full = barriers_.full(place_.at);
    const int slices = min(slab_slices, step.slices - slab * slab_slices);
    const int block_bytes = slices * shape.columns * (slice_terms * 2);
    // The terms of small blocks are neighbours in x; those of large ones are slabs of their own.
    const bool are_neighbours = step.slabs == 1;
    const int boxes =
        are_neighbours ? (shape.blocks * step.terms + box_features - 1) / box_features : shape.blocks;
    const int first = item.block * step.terms + (slab * slab_terms >> step.repeat_shift);
    const int apart = are_neighbours ? box_features : step.terms;
    if (has_x && !p_.x_boxes) {
      for (int box = 0; box < boxes; ++box) copy_x_elements(stage, tile, box, first + box * apart);
      ptx::fence_for_bulk();
      __syncwarp();
    }
    if (lane_ != 0) return;
    const int x_bytes = has_x && p_.x_boxes ? boxes * box_bytes : 0;
    ptx::barrier_arrive_expecting(full, shape.blocks * block_bytes + x_bytes);
    const std::int64_t all_bytes = std::int64_t{step.slices} * shape.columns * (slice_terms * 2);
    const std::byte* weights = p_.weights + step.weights +
                               (std::int64_t{item.block} * step.chunks + item.chunk) * all_bytes +
                               slab * slab_slices * shape.columns * (slice_terms * 2);
    for (int block = 0; block < shape.blocks; ++block, weights += step.chunks * all_bytes)
      ptx::copy_bulk(stage + p_.weights_in_stage + block * block_bytes, weights, block_bytes, full);
    if (x_bytes == 0) return;
    const auto sample = static_cast<int>(tile * (Traits::row_groups * row_group_samples));
    for (int box = 0; box < boxes; ++box)
      ptx::copy_box(stage + box * box_bytes, &p_.x_map, first + box * apart, sample, 0, 0, full);
  }

  /// A box, element by element: for addresses that the copy engine does not take.
  __device__ void copy_x_elements(std::uint32_t stage, std::int64_t tile, int box, int first) const {
    constexpr int rows = Traits::row_groups * row_group_samples, units = box_features / 8;
    const auto* x = reinterpret_cast<const std::uint16_t*>(p_.x);
    for (int at = lane_; at < rows * units; at += 32) {
      const int unit = at % units, row = at / units;
      const std::int64_t sample = tile * rows + row;
      std::uint32_t words[4]{};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int from = first + unit * 8 + e;
        if (sample >= p_.batch || from >= p_.x_features) continue;
        words[e / 2] |= static_cast<std::uint32_t>(x[sample * p_.x_stride + from]) << e % 2 * 16;
      }
      ptx::store_shared_16(unit_at(stage + box * box_bytes, row, unit), words[0], words[1], words[2],
                           words[3]);
    }
  }

  static constexpr int box_bytes = Traits::row_groups * box_group_bytes;
  const Arguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  int lane_;
  RingPlace place_;
};

}  // namespace kronsparse::cuda::fused_wgmma
