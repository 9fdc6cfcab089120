// The products of the kernel `fused_wgmma`: items of a step, from a stage of the ring and lines to lines.
#pragma once

#include "cuda/chain/fused_wgmma/loads.cuh"
#include "cuda/device/wgmma.cuh"

namespace kronsparse::cuda::fused_wgmma {

struct Lane {
  int warpgroup;
  int group, team;  ///< the warpgroup's row group and team
  int warp;         ///< of the warpgroup
  int lane, g, t;
};
template <class Traits>
[[nodiscard]] __device__ inline Lane this_lane() {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  // The compiler must see that all lanes of a warp have the same: it lets no wgmma overlap elsewhere.
  const int warpgroup = __shfl_sync(0xffffffffu, thread / warpgroup_threads, 0);
  return {warpgroup,
          warpgroup % Traits::row_groups,
          warpgroup / Traits::row_groups,
          thread / 32 % warps_in_warpgroup,
          lane,
          lane / 4,
          lane % 4};
}

/// The multiplying warps meet; lines that were written are then visible to the tensor cores.
template <class Traits>
__device__ inline void meet() {
  ptx::fence_for_bulk();
  ptx::barrier_of(1, Traits::consumer_threads);
}

/// Lane 4g + t of warp w holds samples 16w + g and 16w + g + 8 of its row group, and of each 8 outputs 2t and
/// 2t + 1.
template <ItemShape shape>
using Sums = float[shape.blocks][shape.columns / 2];

/// A team's places in the two rings.
struct Places {
  RingPlace x, weights;
};

/// A step, or a part of it, as one warpgroup computes it.
template <class Traits, ItemShape shape, bool reads_x>
class StepOfWarpgroup {
 public:
  __device__ __forceinline__ StepOfWarpgroup(const Arguments& p, const Step& step, bool is_last,
                                             std::uint32_t shared, const Lane& at)
      : p_(p), step_(step), is_last_(is_last), shared_(shared), barriers_{shared}, at_(at) {}

  __device__ __forceinline__ void run(int part, Places& places) {
    for (int first = 0; first < step_.items_of_part; first += Traits::teams) {
      if (at_.team >= items_in_round<Traits>(step_, first)) continue;
      const Item item = item_at(step_, part, first + at_.team);
      multiply(item, places);
      finish(item);
      store(item);
    }
  }

 private:
  /// The number of a team's stage among those of all teams.
  [[nodiscard]] __device__ int number_of(const Ring& ring, int stage) const {
    return at_.team * ring.stages + stage;
  }
  [[nodiscard]] __device__ std::uint32_t address_of(const Ring& ring, int stage) const {
    return shared_ + static_cast<std::uint32_t>(ring.at + number_of(ring, stage) * ring.stage_bytes);
  }
  __device__ void release(int x_stage, int weight_stage) const {
    __syncwarp();
    if (at_.lane != 0) return;
    if constexpr (reads_x) ptx::barrier_arrive(barriers_.empty(false, number_of(p_.x_ring, x_stage)));
    ptx::barrier_arrive(barriers_.empty(true, number_of(p_.weight_ring, weight_stage)));
  }

  __device__ __forceinline__ void multiply(const Item& item, Places& places) {
    // Sums that begin at zero have no past: the compiler keeps those of the item before nowhere.
#pragma unroll
    for (int block = 0; block < shape.blocks; ++block)
#pragma unroll
      for (int e = 0; e < shape.columns / 2; ++e) sums_[block][e] = 0;
    int x_before = 0, weights_before = 0;
    for (int slab = 0; slab < step_.slabs; ++slab) {
      const RingPlace x = places.x, weights = places.weights;
      if constexpr (reads_x) {
        ptx::barrier_wait(barriers_.full(false, number_of(p_.x_ring, x.at)), x.parity);
        places.x.advance(p_.x_ring.stages);
      }
      ptx::barrier_wait(barriers_.full(true, number_of(p_.weight_ring, weights.at)), weights.parity);
      places.weights.advance(p_.weight_ring.stages);
      const std::uint32_t x_at = address_of(p_.x_ring, x.at),
                          weights_at = address_of(p_.weight_ring, weights.at);
      const int slices = min(slab_slices, step_.slices - slab * slab_slices);
      // wgmma allows no loop of unknown length between its fence and its commit.
      if (slices == 4)
        issue<4>(item, x_at, weights_at, slab);
      else if (slices == 3)
        issue<3>(item, x_at, weights_at, slab);
      else if (slices == 2)
        issue<2>(item, x_at, weights_at, slab);
      else
        issue<1>(item, x_at, weights_at, slab);
      if (slab > 0) {
        ptx::wgmma_wait<1>();
        release(x_before, weights_before);
      }
      x_before = x.at;
      weights_before = weights.at;
    }
    ptx::wgmma_wait<0>();
    release(x_before, weights_before);
    // The other warps of the warpgroup read these terms, too.
    if (step_.in_place) ptx::barrier_of(2 + at_.warpgroup, warpgroup_threads);
  }

  /// The slices of a slab, of all blocks.
  template <int slices>
  __device__ __forceinline__ void issue(const Item& item, std::uint32_t x_at, std::uint32_t weights_at,
                                        int slab) {
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
            weights_at + static_cast<std::uint32_t>((block * slices + slice) * slice_bytes), 128, 256);
        const int x_slice = slice >> step_.repeat_shift;
        float(&sums)[shape.columns / 2] = sums_[number];
        if constexpr (reads_x) {
          const int feature = block * step_.x_features + x_slice * slice_terms;
          const std::uint64_t x = ptx::wgmma_swizzled_operand(
              x_at + (feature / box_features * Traits::row_groups + at_.group) * box_group_bytes +
              feature % box_features * 2);
          if constexpr (Traits::arithmetic == Arithmetic::bf16)
            Instruction::bf16_shared(sums, x, weights, 1);
          else
            Instruction::f16_shared(sums, x, weights, 1);
        } else {
          const int line = (item.block + block) * step_.block_lines +
                           ((slab * slab_slices >> step_.repeat_shift) + x_slice) * slice_terms;
          const std::uint64_t x = ptx::wgmma_swizzled_operand(shared_ + step_.in +
                                                              at_.group * step_.in_group + line * line_bytes);
          if constexpr (Traits::arithmetic == Arithmetic::bf16)
            Instruction::bf16_columns(sums, x, weights, 1);
          else
            Instruction::f16_columns(sums, x, weights, 1);
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
          float* const sums = &sums_[block][eight * 4];
          sums[0] = sums[0] * by.x + bias.x;
          sums[1] = sums[1] * by.y + bias.y;
          sums[2] = sums[2] * by.x + bias.x;
          sums[3] = sums[3] * by.y + bias.y;
        }
    if (!is_last_ || p_.activation == Activation::none) return;
    float* const all = &sums_[0][0];
    constexpr int count = shape.blocks * shape.columns / 2, at_once = 8;
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
        const float* const sums = &sums_[block][sixteen * 8];
        ptx::store_matrices_transposed(
            unit_at(shared_ + step_.out + at_.group * step_.out_group, line, unit),
            mma::pack_pair<Traits>(sums[0], sums[1]), mma::pack_pair<Traits>(sums[2], sums[3]),
            mma::pack_pair<Traits>(sums[4], sums[5]), mma::pack_pair<Traits>(sums[6], sums[7]));
      }
  }

  const Arguments& p_;
  const Step& step_;
  bool is_last_;
  std::uint32_t shared_;
  Barriers barriers_;
  Lane at_;
  Sums<shape> sums_;
};

/// Computes a step, or a part of the last one, by the code for its items.
template <class Traits, bool reads_x, int number = 0>
__device__ __forceinline__ void multiply_step(const Arguments& p, int s, int part, std::uint32_t shared,
                                              const Lane& at, Places& places) {
  if constexpr (number < item_shape_count) {
    if (p.step[s].item_number == number)
      StepOfWarpgroup<Traits, item_shape(number), reads_x>(p, p.step[s], s + 1 == p.steps, shared, at)
          .run(part, places);
    else
      multiply_step<Traits, reads_x, number + 1>(p, s, part, shared, at, places);
  }
}

}  // namespace kronsparse::cuda::fused_wgmma
