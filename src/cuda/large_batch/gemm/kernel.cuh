// The kernel `gemm` for Hopper: half types whose rows are contiguous, that is batch_last, and batch_first
// with d = 1.
//
// There the product is a grouped matrix product, and the copy engine and the tensor cores can read x as it
// lies. Boxes of 64 samples x 64 terms arrive swizzled in shared memory: the copy engine writes this form,
// and wgmma reads it. No thread touches x on its way, unless its rows lie at addresses that the copy engine
// does not take; then three warps bring it in the same form (rows.cuh).
//
// One warpgroup, the producer, brings x and the weights through a ring of stages; two warpgroups multiply. If
// a group's weights stay in shared memory, the two take tiles in turn, and one stores while the other
// multiplies. If weights are streamed, both work on one tile. Results leave through two buffers by the copy
// engine, or as shifted rows.
#pragma once

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/large_batch/gemm/rows.cuh"
#include "cuda/large_batch/gemm/tiles.cuh"

namespace kronsparse::cuda {

template <Arithmetic A, GemmShape S>
struct GemmTraits {
  static constexpr Arithmetic arithmetic = A;
  static constexpr GemmShape shape = S;
  static_assert(S.n % S.round == 0);
  static_assert(S.columns || S.round == 64, "a row of the copy engine is 128 bytes");
  static_assert(S.sample_boxes * S.n / 2 <= 128, "accumulators in registers");
};

namespace gemm {

/// Samples of a tile: of one warpgroup if they take turns, else of both.
template <class Traits>
__device__ inline int tile_samples(const GemmArguments& p) {
  return p.w_slots != 0 ? Traits::shape.samples() : 2 * Traits::shape.samples();
}

/// The thread that talks to the copy engine: all of x and the weights, or the weights alone.
template <class Traits>
class Producer {
 public:
  __device__ Producer(const GemmArguments& p, std::uint32_t shared)
      : p_(p),
        shared_(shared),
        barriers_{shared},
        boxes_(Traits::shape.sample_boxes * (p.w_slots != 0 ? 1 : 2)) {}

  __device__ void run() {
    Walk walk(p_, Traits::shape.n, tile_samples<Traits>(p_));
    std::uint32_t group = ~0u;
    bool waited = p_.just_packed;
    if (waited) ptx::wait_for_earlier_kernels();
    RingPlace place;
    RingPlace slot;
    for (; !walk.done(); walk.next()) {
      const Tile& tile = walk.tile();
      if (p_.w_slots != 0 && tile.group != group) {
        load_group(tile, slot);
        slot.advance(p_.w_slots);
      }
      group = tile.group;
      if (p_.w_slots != 0 && !p_.x_tensor_copies) continue;
      if (!waited) ptx::wait_for_earlier_kernels();  // x depends on them, packed weights do not
      waited = true;
      for (int chunk = 0; chunk < p_.chunks; chunk += kGemmStageChunks) {
        ptx::barrier_wait(barriers_.empty(place.at), place.parity ^ 1);
        load_stage(tile, chunk, place.at);
        place.advance(p_.stages);
      }
    }
  }

 private:
  __device__ void load_group(const Tile& tile, const RingPlace& slot) const {
    const int bytes = p_.chunks * p_.w_chunk_bytes;
    ptx::barrier_wait(barriers_.weights_empty(slot.at), slot.parity ^ 1);
    ptx::barrier_arrive_expecting(barriers_.weights_full(slot.at), bytes);
    ptx::copy_bulk(shared_ + p_.w_offset + slot.at * bytes,
                   p_.weights + static_cast<std::int64_t>(tile.group) * bytes, bytes,
                   barriers_.weights_full(slot.at));
  }

  __device__ void load_stage(const Tile& tile, int chunk, int stage) const {
    const std::uint32_t full = barriers_.full(stage);
    const int x_bytes = p_.x_tensor_copies ? boxes_ * kGemmBoxBytes : 0;
    const int w_bytes = p_.w_slots != 0 ? 0 : kGemmStageChunks * p_.w_chunk_bytes;
    ptx::barrier_arrive_expecting(full, w_bytes + x_bytes);
    if (p_.x_tensor_copies) {
      const std::uint32_t to = shared_ + p_.stages_offset + stage * x_bytes;
      for (int box = 0; box < boxes_; ++box) {
        const auto n = static_cast<int>(tile.n0) + box * kGemmBoxSamples;
        const std::uint32_t box_to = to + box * kGemmBoxBytes;
        if constexpr (Traits::shape.columns)
          ptx::copy_box(box_to, &p_.x_map, n, static_cast<int>(tile.j), chunk * 16, static_cast<int>(tile.i),
                        full);
        else
          ptx::copy_box(box_to, &p_.x_map, chunk * 16, static_cast<int>(tile.i), n, 0, full);
      }
    }
    if (w_bytes != 0) {
      const std::byte* from =
          p_.weights + (static_cast<std::int64_t>(tile.group) * p_.chunks + chunk) * p_.w_chunk_bytes;
      ptx::copy_bulk(shared_ + p_.w_offset + stage * w_bytes, from, w_bytes, full);
    }
  }

  const GemmArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  int boxes_;  ///< boxes of samples in a stage
};

template <class Traits>
class Consumer {
 public:
  __device__ Consumer(const GemmArguments& p, std::uint32_t shared)
      : p_(p),
        shared_(shared),
        barriers_{shared},
        warpgroup_(static_cast<int>(threadIdx.x - kGemmProducerThreads) / 128),
        warp_(static_cast<int>(threadIdx.x) % 128 / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    ptx::wait_for_earlier_kernels();  // they may still read y, or write the bias
    if (p_.w_slots != 0)
      run_by_turns();
    else
      run_together();
    ptx::wait_bulk_stores();  // they must have read shared memory before the block ends
  }

 private:
  static constexpr GemmShape kShape = Traits::shape;
  static constexpr int kBoxes = kShape.sample_boxes;
  // Numbered barriers: each warpgroup has one of each kind.
  static constexpr int kStore = 1;
  static constexpr int kTurn = 3;

  __device__ void run_by_turns() {
    const int tile_stages = p_.chunks / kGemmStageChunks;
    const int group_bytes = p_.chunks * p_.w_chunk_bytes;
    RingPlace slot;
    std::uint32_t group = ~0u;
    int turn = 0;
    bool begun = false;
    for (Walk walk(p_, kShape.n, kShape.samples()); !walk.done();) {
      const Tile tile = walk.tile();
      if (tile.group != group) {  // both follow every change of group, whoever's turn it is
        if (group != ~0u) {
          release(barriers_.weights_empty(slot.at));
          slot.advance(p_.w_slots);
        }
        group = tile.group;
        ptx::barrier_wait(barriers_.weights_full(slot.at), slot.parity);
      }
      walk.next();
      if (turn == warpgroup_) {
        // They multiply one after the other: the barrier of a stage cannot tell apart fillings two turns of
        // the ring apart.
        if (begun) ptx::barrier_of(kTurn + warpgroup_, kGemmConsumerThreads);
        multiply(tile_stages, 0, kBoxes, shared_ + p_.w_offset + slot.at * group_bytes,
                 kGemmStageChunks * p_.w_chunk_bytes, !walk.done());
        finish(tile, tile.n0);
        store(tile, tile.n0);
      } else {
        place_.skip(p_.stages, tile_stages);
      }
      turn ^= 1;
      begun = true;
    }
  }

  __device__ void run_together() {
    const int tile_stages = p_.chunks / kGemmStageChunks;
    for (Walk walk(p_, kShape.n, 2 * kShape.samples()); !walk.done(); walk.next()) {
      const Tile tile = walk.tile();
      multiply(tile_stages, warpgroup_ * kBoxes, 2 * kBoxes, shared_ + p_.w_offset, 0, false);
      const std::int64_t n0 = tile.n0 + warpgroup_ * kShape.samples();
      finish(tile, n0);
      store(tile, n0);
    }
  }

  __device__ void release(std::uint32_t barrier) const {
    __syncwarp();
    if (lane_ == 0) ptx::barrier_arrive(barrier);
  }

  /// Computes the products of a tile. `first_box` of a stage's `boxes` is this warpgroup's first. Weights lie
  /// `w_stage_step` further with each stage; 0 means in the stage's own place. At the end it may hand over to
  /// the other warpgroup.
  __device__ void multiply(int tile_stages, int first_box, int boxes, std::uint32_t weights, int w_stage_step,
                           bool hands_over) {
    int before = -1;
    for (int stage = 0; stage < tile_stages; ++stage) {
      ptx::barrier_wait(barriers_.full(place_.at), place_.parity);
      const std::uint32_t x = shared_ + p_.stages_offset + (place_.at * boxes + first_box) * kGemmBoxBytes;
      const std::uint32_t w = weights + (w_stage_step != 0 ? stage * w_stage_step
                                                           : place_.at * kGemmStageChunks * p_.w_chunk_bytes);
      ptx::wgmma_fence();
#pragma unroll
      for (int chunk = 0; chunk < kGemmStageChunks; ++chunk)
#pragma unroll
        for (int box = 0; box < kBoxes; ++box)
          issue(sums_[box], x + box * kGemmBoxBytes + chunk * (kShape.columns ? 16 * 128 : 32),
                w + chunk * 32, stage == 0 && chunk == 0 ? 0 : 1);
      ptx::wgmma_commit();
      // When its products are done, the previous stage has been read.
      if (before >= 0) {
        ptx::wgmma_wait<1>();
        release(barriers_.empty(before));
      }
      before = place_.at;
      place_.advance(p_.stages);
    }
    if (hands_over) ptx::barrier_signal(kTurn + 1 - warpgroup_, kGemmConsumerThreads);
    ptx::wgmma_wait<0>();
    release(barriers_.empty(before));
  }

  __device__ static void issue(float (&sums)[kShape.n / 2], std::uint32_t x, std::uint32_t weights, int add) {
    using Instruction = ptx::Wgmma<kShape.n>;
    const std::uint64_t a = ptx::wgmma_swizzled_operand(x);
    const std::uint64_t b = ptx::wgmma_swizzled_operand(weights);
    if constexpr (Traits::arithmetic == Arithmetic::bf16) {
      if constexpr (kShape.columns)
        Instruction::bf16_columns(sums, a, b, add);
      else
        Instruction::bf16_shared(sums, a, b, add);
    } else {
      if constexpr (kShape.columns)
        Instruction::f16_columns(sums, a, b, add);
      else
        Instruction::f16_shared(sums, a, b, add);
    }
  }

  /// Bias and activation. Most launches have neither.
  __device__ void finish(const Tile& tile, std::int64_t n0) {
    if (p_.bias == nullptr && p_.activation == Activation::none) return;
    const std::int64_t features = tile.i * p_.b;
#pragma unroll
    for (int e = 0; e < kShape.n / 2; ++e) {
      const std::int64_t k = tile.k0 + e / 4 * 8 + lane_ % 4 * 2 + e % 2;
      const float bias = p_.bias != nullptr && k < p_.b
                             ? mma::load_element<Traits>(p_.bias, (features + k) * p_.d + tile.j)
                             : 0.0f;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        sums_[box][e] += bias;
        if (p_.activation != Activation::none) sums_[box][e] = mma::activated(sums_[box][e], p_.activation);
      }
    }
  }

  /// Stores `round` outputs at a time, through two buffers that alternate: one leaves while the other is
  /// filled.
  __device__ void store(const Tile& tile, std::int64_t n0) {
    constexpr int box_bytes = kShape.round * kGemmBoxSamples * 2;
    const std::uint32_t buffers = shared_ + p_.out_offset + warpgroup_ * kShape.out_bytes();
    const bool leads = threadIdx.x % 128 == 0;
#pragma unroll
    for (int first = 0; first < kShape.n; first += kShape.round) {
      const std::uint32_t buffer = buffers + out_turn_ * (kBoxes * box_bytes);
      if (leads) ptx::wait_bulk_stores<1>();  // the buffer's previous content has left
      ptx::barrier_of(kStore + warpgroup_, 128);
      for (int box = 0; box < kBoxes; ++box) stage_round(sums_[box], first, buffer + box * box_bytes);
      ptx::fence_for_bulk();
      ptx::barrier_of(kStore + warpgroup_, 128);
      if (p_.y_tensor_copies) {
        if (leads) {
          for (int box = 0; box < kBoxes; ++box) {
            const auto n = static_cast<int>(n0 + box * kGemmBoxSamples);
            const auto k = static_cast<int>(tile.k0) + first;
            if constexpr (kShape.columns)
              ptx::store_box(&p_.y_map, n, static_cast<int>(tile.j), k, static_cast<int>(tile.i),
                             buffer + box * box_bytes);
            else
              ptx::store_box(&p_.y_map, k, static_cast<int>(tile.i), n, 0, buffer + box * box_bytes);
          }
          ptx::commit_bulk_stores();
        }
      } else {
        store_rows<Traits>(p_, tile, tile.k0 + first, n0, buffer);
      }
      out_turn_ ^= 1;
    }
  }

  /// Puts this warp's 16 samples of a box, `round` outputs from `first`, in the form that the copy engine
  /// takes.
  __device__ void stage_round(const float (&sums)[kShape.n / 2], int first, std::uint32_t buffer) const {
#pragma unroll
    for (int q = 0; q < kShape.round / 8; q += 2) {
      const float* s = &sums[(first / 8 + q) * 4];
      const std::uint32_t words[4] = {mma::pack_pair<Traits>(s[0], s[1]), mma::pack_pair<Traits>(s[2], s[3]),
                                      mma::pack_pair<Traits>(s[4], s[5]), mma::pack_pair<Traits>(s[6], s[7])};
      // Matrices: 8 outputs of the first 8 samples, of the next 8 samples; then the next 8 outputs.
      const int outputs = (q + lane_ / 16) * 8;
      const int samples = warp_ * 16 + lane_ / 8 % 2 * 8;
      if constexpr (kShape.columns)
        ptx::store_matrices_transposed(buffer + swizzled(outputs + lane_ % 8, samples * 2), words[0],
                                       words[1], words[2], words[3]);
      else
        ptx::store_matrices(buffer + swizzled(samples + lane_ % 8, outputs * 2), words[0], words[1], words[2],
                            words[3]);
    }
  }

  const GemmArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  int warpgroup_, warp_, lane_;
  RingPlace place_;
  int out_turn_ = 0;
  float sums_[kBoxes][kShape.n / 2];  // (boxes of 64 samples, sums of a lane)
};

}  // namespace gemm

template <class Traits>
__global__ void __launch_bounds__(kGemmProducerThreads + kGemmConsumerThreads, 1)
    multiply_gemm(const __grid_constant__ GemmArguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)  // the host refuses other GPUs; an empty body compiles quickly
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const gemm::Barriers barriers{shared};
  if (threadIdx.x == 0) {
    constexpr int consumer_warps = kGemmConsumerThreads / 32;
    const bool by_turns = p.w_slots != 0;
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::barrier_init(barriers.full(stage),
                        p.x_tensor_copies ? 1 : arrivals_of_warps(kGemmRowWarps) + (by_turns ? 0 : 1));
      ptx::barrier_init(barriers.empty(stage), by_turns ? consumer_warps / 2 : consumer_warps);
    }
    for (int slot = 0; slot < p.w_slots; ++slot) {
      ptx::barrier_init(barriers.weights_full(slot), 1);
      ptx::barrier_init(barriers.weights_empty(slot), consumer_warps);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::let_later_kernels_start();
  if (threadIdx.x < kGemmProducerThreads) {
    // Both numbers together use the registers that 384 threads were launched with, 168 each.
    ptx::give_registers<56>();
    if (threadIdx.x == 0)
      gemm::Producer<Traits>(p, shared).run();
    else if (threadIdx.x >= 32 && !p.x_tensor_copies && p.w_slots != 0)
      gemm::RowProducer<Traits, Traits::shape.sample_boxes>(p, shared).run();
    else if (threadIdx.x >= 32 && !p.x_tensor_copies)
      gemm::RowProducer<Traits, 2 * Traits::shape.sample_boxes>(p, shared).run();
  } else {
    ptx::take_registers<224>();
    gemm::Consumer<Traits>(p, shared).run();
  }
#endif
}

}  // namespace kronsparse::cuda
