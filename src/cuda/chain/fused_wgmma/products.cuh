// The products of the kernel `fused_wgmma`: items of a step, from a stage of the ring and lines to lines.
#pragma once

#include "cuda/chain/fused_wgmma/loads.cuh"
#include "cuda/device/wgmma.cuh"

namespace kronsparse::cuda::fused_wgmma {

struct Lane {
  int warpgroup;
  int warp;  ///< of the warpgroup
  int lane, g, t;
};
[[nodiscard]] __device__ inline Lane this_lane() {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // The compiler must see that all lanes of a warp have the same: it lets no wgmma overlap elsewhere.
  return {__shfl_sync(0xffffffffu, thread / warpgroup_threads, 0), thread / 32 % consumer_warps_in_group,
          lane, lane / 4, lane % 4};
}

/// The multiplying warps meet; lines that were written are then visible to the tensor cores.
template <class Traits>
__device__ inline void meet() {
  ptx::fence_for_bulk();
  ptx::barrier_of(1, Traits::consumer_threads);
}

/// Lane 4g + t of warp w holds samples 16w + g and 16w + g + 8 of each row group, and of each 8 outputs 2t
/// and 2t + 1.
template <class Traits, ItemShape shape>
using Sums = float[Traits::row_groups][shape.blocks][shape.columns / 2];

/// A step, or a part of it, as one warpgroup computes it.
template <class Traits, ItemShape shape, bool reads_x>
class StepOfWarpgroup {
 public:
  __device__ __forceinline__ StepOfWarpgroup(const Arguments& p, const Step& step, bool is_last,
                                             std::uint32_t shared, const Lane& at)
      : p_(p), step_(step), is_last_(is_last), shared_(shared), barriers_{shared}, at_(at) {}

  /// `place` is that of the step's first stage; it becomes that of the next step's.
  __device__ __forceinline__ void run(int part, RingPlace& place) {
    for (int first = 0; first < step_.items_of_part; first += Traits::warpgroups) {
      const int in_round = items_in_round<Traits>(step_, first);
      if (at_.warpgroup < in_round) {
        const Item item = item_at(step_, part, first + at_.warpgroup);
        RingPlace mine = place;
        mine.skip(p_.stages, at_.warpgroup);
        multiply(item, mine, in_round);
        finish(item);
        store(item);
      }
      place.skip(p_.stages, in_round * step_.slabs);
    }
  }

 private:
  __device__ void release(int stage) const {
    __syncwarp();
    if (at_.lane == 0) ptx::barrier_arrive(barriers_.empty(stage));
  }

  __device__ __forceinline__ void multiply(const Item& item, RingPlace place, int in_round) {
    // Sums that begin at zero have no past: the compiler keeps those of the item before nowhere.
#pragma unroll
    for (int group = 0; group < Traits::row_groups; ++group)
#pragma unroll
      for (int block = 0; block < shape.blocks; ++block)
#pragma unroll
        for (int e = 0; e < shape.columns / 2; ++e) sums_[group][block][e] = 0;
    int before = 0;
    for (int slab = 0; slab < step_.slabs; ++slab) {
      ptx::barrier_wait(barriers_.full(place.at), place.parity);
      const std::uint32_t stage = shared_ + p_.stages_at + place.at * p_.stage_bytes;
      const int slices = min(slab_slices, step_.slices - slab * slab_slices);
      // wgmma allows no loop of unknown length between its fence and its commit.
      if (slices == 4)
        issue<4>(item, stage, slab);
      else if (slices == 3)
        issue<3>(item, stage, slab);
      else if (slices == 2)
        issue<2>(item, stage, slab);
      else
        issue<1>(item, stage, slab);
      if (slab > 0) {
        ptx::wgmma_wait<1>();
        release(before);
      }
      before = place.at;
      place.skip(p_.stages, in_round);
    }
    ptx::wgmma_wait<0>();
    release(before);
    // The other warps of the warpgroup read these terms, too.
    if (step_.in_place) ptx::barrier_of(2 + at_.warpgroup, warpgroup_threads);
  }

  /// The slices of a slab, of all blocks.
  template <int slices>
  __device__ __forceinline__ void issue(const Item& item, std::uint32_t stage, int slab) {
    constexpr int slice_bytes = shape.columns * slice_terms * 2;
    using Instruction = ptx::Wgmma<shape.columns>;
    ptx::wgmma_fence();
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
      for (int number = 0; number < shape.blocks; ++number) {
        // Items of fewer blocks compute the last one again: no branches, either.
        const int block = min(number, step_.item.blocks - 1);
        const std::uint64_t weights = ptx::wgmma_operand(
            stage + p_.weights_in_stage + (block * slices + slice) * slice_bytes, 128, 256);
        const int x_slice = slice >> step_.repeat_shift;
#pragma unroll
        for (int group = 0; group < Traits::row_groups; ++group) {
          float(&sums)[shape.columns / 2] = sums_[group][number];
          if constexpr (reads_x) {
            const int feature = block * step_.x_features + x_slice * slice_terms;
            const std::uint64_t x = ptx::wgmma_swizzled_operand(
                stage + (feature / box_features * Traits::row_groups + group) * box_group_bytes +
                feature % box_features * 2);
            if constexpr (Traits::arithmetic == Arithmetic::bf16)
              Instruction::bf16_shared(sums, x, weights, 1);
            else
              Instruction::f16_shared(sums, x, weights, 1);
          } else {
            const int line = (item.block + block) * step_.block_lines +
                             ((slab * slab_slices >> step_.repeat_shift) + x_slice) * slice_terms;
            const std::uint64_t x =
                ptx::wgmma_swizzled_operand(shared_ + step_.in + group * step_.in_group + line * line_bytes);
            if constexpr (Traits::arithmetic == Arithmetic::bf16)
              Instruction::bf16_columns(sums, x, weights, 1);
            else
              Instruction::f16_columns(sums, x, weights, 1);
          }
        }
      }
    }
    ptx::wgmma_commit();
  }

  /// The number of an item's first output among those of the step, which are padded to whole chunks.
  [[nodiscard]] __device__ int first_output(const Item& item, int block) const {
    return ((item.block + block) * step_.chunks + item.chunk) * shape.columns;
  }

  /// Multiplies sums by their outputs' factors, adds the bias, applies the activation.
  __device__ __forceinline__ void finish(const Item& item) {
    const bool has_bias = is_last_ && p_.biases >= 0;
    if (step_.factors >= 0 || has_bias)
#pragma unroll
      for (int block = 0; block < shape.blocks; ++block)
#pragma unroll
        for (int eight = 0; eight < shape.columns / 8; ++eight) {
          if (block >= step_.item.blocks) continue;
          const std::uint32_t output =
              shared_ + static_cast<std::uint32_t>(first_output(item, block) + eight * 8 + at_.t * 2) * 4;
          float2 by{1, 1}, bias{0, 0};
          if (step_.factors >= 0) by = load_floats(output + step_.factors);
          if (has_bias) bias = load_floats(output + p_.biases);
#pragma unroll
          for (int group = 0; group < Traits::row_groups; ++group) {
            float* const sums = &sums_[group][block][eight * 4];
            sums[0] = sums[0] * by.x + bias.x;
            sums[1] = sums[1] * by.y + bias.y;
            sums[2] = sums[2] * by.x + bias.x;
            sums[3] = sums[3] * by.y + bias.y;
          }
        }
    if (!is_last_ || p_.activation == Activation::none) return;
    float* const all = &sums_[0][0][0];
    constexpr int count = Traits::row_groups * shape.blocks * shape.columns / 2, at_once = 8;
#pragma unroll 1
    for (int turn = 0; turn < count; turn += at_once) {
      float now[at_once];
#pragma unroll
      for (int e = 0; e < at_once; ++e) now[e] = all[e];
#pragma unroll
      for (int e = 0; e + at_once < count; ++e) all[e] = all[e + at_once];
      activate_all(now, p_.activation);
#pragma unroll
      for (int e = 0; e < at_once; ++e) all[count - at_once + e] = now[e];
    }
  }
  [[nodiscard]] __device__ static float2 load_floats(std::uint32_t address) {
    const uint2 bits = ptx::load_shared_8(address);
    return {__uint_as_float(bits.x), __uint_as_float(bits.y)};
  }

  /// Rounds the sums and stores them as lines. An instruction stores 16 outputs of a warp's 16 samples: the
  /// lanes give the places of 8 outputs for the first 8 samples, then of the same for the next 8, and so on.
  __device__ __forceinline__ void store(const Item& item) const {
    const int in_sixteen = at_.lane / 16 * 8 + at_.lane % 8, unit = at_.warp * 2 + at_.lane / 8 % 2;
#pragma unroll
    for (int block = 0; block < shape.blocks; ++block)
#pragma unroll
      for (int sixteen = 0; sixteen < shape.columns / 16; ++sixteen) {
        if (block >= step_.item.blocks) continue;
        const int output = first_output(item, block) + sixteen * 16 + in_sixteen;
        const int line = ptx::load_shared_2(shared_ + step_.lines + output * 2);
#pragma unroll
        for (int group = 0; group < Traits::row_groups; ++group) {
          const float* const sums = &sums_[group][block][sixteen * 8];
          ptx::store_matrices_transposed(
              unit_at(shared_ + step_.out + group * step_.out_group, line, unit),
              mma::pack_pair<Traits>(sums[0], sums[1]), mma::pack_pair<Traits>(sums[2], sums[3]),
              mma::pack_pair<Traits>(sums[4], sums[5]), mma::pack_pair<Traits>(sums[6], sums[7]));
        }
      }
  }

  const Arguments& p_;
  const Step& step_;
  bool is_last_;
  std::uint32_t shared_;
  Barriers barriers_;
  Lane at_;
  Sums<Traits, shape> sums_;
};

/// Computes a step, or a part of the last one, by the code for its items.
template <class Traits, bool reads_x, int number = 0>
__device__ __forceinline__ void multiply_step(const Arguments& p, int s, int part, std::uint32_t shared,
                                              const Lane& at, RingPlace& place) {
  if constexpr (number < item_shape_count) {
    if (p.step[s].item_number == number)
      StepOfWarpgroup<Traits, item_shape(number), reads_x>(p, p.step[s], s + 1 == p.steps, shared, at)
          .run(part, place);
    else
      multiply_step<Traits, reads_x, number + 1>(p, s, part, shared, at, place);
  }
}

}  // namespace kronsparse::cuda::fused_wgmma
