// Half types where rows are contiguous, on Hopper: batch_last, and batch_first with d = 1.
//
// There the product is a grouped matrix product, and the copy engine and the tensor
// cores can read x as it lies: boxes of 64 samples by 64 terms arrive swizzled in
// shared memory, which is both what the engine writes and what wgmma reads. No
// thread touches x on its way.
//
// One warpgroup brings x and the weights, two multiply. Where a group's weights stay
// in shared memory, the two take tiles by turns, and one stores while the other
// multiplies. Where weights are streamed, both work on one tile.
#pragma once

#include "cuda/gemm_tile.cuh"
#include "cuda/ptx_sm90.cuh"
#include "cuda/wgmma.cuh"

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

/// Samples of a tile: of one warpgroup where they take turns, else of both.
template <class Traits>
__device__ inline int tile_samples(const GemmArguments& p) {
  return p.w_slots != 0 ? Traits::shape.samples() : 2 * Traits::shape.samples();
}

/// Boxes of x where the copy engine cannot read, element by element. Out of line, as is
/// the next: both are for addresses that hardly anyone has.
template <class Traits>
__device__ __noinline__ void copy_elements(const GemmArguments& p, const Tile& tile, int l0, int boxes,
                                           std::uint32_t to) {
  const auto* x = reinterpret_cast<const std::uint16_t*>(p.x);
  for (int index = static_cast<int>(threadIdx.x); index < boxes * kGemmBoxBytes / 2;
       index += kGemmProducerThreads) {
    const int box = index / (kGemmBoxBytes / 2);
    const int row = index % (kGemmBoxBytes / 2) / 64;
    const int column = index % 64;
    const std::int64_t l = l0 + (Traits::shape.columns ? row : column);
    const std::int64_t n = tile.n0 + box * kGemmBoxSamples + (Traits::shape.columns ? column : row);
    std::uint16_t element = 0;
    if (l < p.c && n < p.batch)
      element = x[n * p.x_sample + ((tile.i * p.c + l) * p.d + tile.j) * p.x_feature];
    ptx::store_shared_2(to + box * kGemmBoxBytes + swizzled(row, column * 2), element);
  }
}

/// Boxes of results where the copy engine cannot write.
template <class Traits>
__device__ __noinline__ void store_elements(const GemmArguments& p, const Tile& tile, std::int64_t k0,
                                            std::int64_t n0, std::uint32_t from) {
  constexpr int box_elements = Traits::shape.round * kGemmBoxSamples;
  auto* y = reinterpret_cast<std::uint16_t*>(p.y);
  for (int index = static_cast<int>(threadIdx.x) % 128; index < Traits::shape.sample_boxes * box_elements;
       index += 128) {
    const int box = index / box_elements;
    const int row = index % box_elements / 64;
    const int column = index % 64;
    const std::int64_t k = k0 + (Traits::shape.columns ? row : column);
    const std::int64_t n = n0 + box * kGemmBoxSamples + (Traits::shape.columns ? column : row);
    if (k < p.b && n < p.batch)
      y[n * p.y_sample + ((tile.i * p.b + k) * p.d + tile.j) * p.y_feature] =
          ptx::load_shared_2(from + box * box_elements * 2 + swizzled(row, column * 2));
  }
}

template <class Traits>
class Producer {
 public:
  __device__ Producer(const GemmArguments& p, std::uint32_t shared)
      : p_(p),
        shared_(shared),
        barriers_{shared},
        boxes_(Traits::shape.sample_boxes * (p.w_slots != 0 ? 1 : 2)) {}

  __device__ void run() {
    const bool leads = threadIdx.x == 0;
    if (!leads && p_.x_tensor_copies) return;
    Walk walk(p_, Traits::shape.n, tile_samples<Traits>(p_));
    std::uint32_t group = ~0u;
    bool waited = p_.just_packed;
    if (waited) ptx::wait_for_earlier_kernels();
    RingPlace place;
    RingPlace slot;
    for (; !walk.done(); walk.next()) {
      const Tile& tile = walk.tile();
      if (leads && p_.w_slots != 0 && tile.group != group) {
        load_group(tile, slot);
        slot.advance(p_.w_slots);
      }
      group = tile.group;
      if (!waited) ptx::wait_for_earlier_kernels();  // packed weights do not depend on them, x does
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
    const std::uint32_t to = shared_ + p_.stages_offset + stage * boxes_ * kGemmBoxBytes;
    const int w_bytes = p_.w_slots != 0 ? 0 : kGemmStageChunks * p_.w_chunk_bytes;
    const bool leads = threadIdx.x == 0;
    if (p_.x_tensor_copies) {
      ptx::barrier_arrive_expecting(full, w_bytes + boxes_ * kGemmBoxBytes);
      for (int box = 0; box < boxes_; ++box) {
        const auto n = static_cast<int>(tile.n0) + box * kGemmBoxSamples;
        const std::uint32_t box_to = to + box * kGemmBoxBytes;
        if constexpr (Traits::shape.columns)
          ptx::copy_box(box_to, &p_.x_map, n, static_cast<int>(tile.j), chunk * 16, static_cast<int>(tile.i),
                        full);
        else
          ptx::copy_box(box_to, &p_.x_map, chunk * 16, static_cast<int>(tile.i), n, 0, full);
      }
    } else {
      copy_elements<Traits>(p_, tile, chunk * 16, boxes_, to);
      ptx::fence_for_bulk();  // wgmma reads as the copy engine does
      if (leads)
        ptx::barrier_arrive_expecting(full, w_bytes);
      else
        ptx::barrier_arrive(full);
    }
    if (leads && w_bytes != 0) {
      const std::byte* from =
          p_.weights + (static_cast<std::int64_t>(tile.group) * p_.chunks + chunk) * p_.w_chunk_bytes;
      ptx::copy_bulk(shared_ + p_.w_offset + stage * w_bytes, from, w_bytes, full);
    }
  }

  const GemmArguments& p_;
  std::uint32_t shared_;
  Barriers barriers_;
  int boxes_;  ///< of samples in a stage
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
    ptx::wait_bulk_stores();  // shared memory must not go before they have read it
  }

 private:
  static constexpr GemmShape kShape = Traits::shape;
  static constexpr int kBoxes = kShape.sample_boxes;
  // Numbers of barriers: each warpgroup has one of either.
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
      if (tile.group != group) {  // both follow every change, whoever's turn it is
        if (group != ~0u) {
          release(barriers_.weights_empty(slot.at));
          slot.advance(p_.w_slots);
        }
        group = tile.group;
        ptx::barrier_wait(barriers_.weights_full(slot.at), slot.parity);
      }
      walk.next();
      if (turn == warpgroup_) {
        // One after the other: a barrier cannot tell a stage that is two rounds of the ring ahead.
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

  /// The products of a tile. `first_box` of the `boxes` of a stage is this warpgroup's first;
  /// weights: `w_stage_step` further with each stage, or (0) in the stage's own place. At the end it may
  /// hand over to the other warpgroup.
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
      // The stage before this one has been read when its products are done.
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

  /// Bias and activation. Most launches have nothing to do here.
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

  /// `round` outputs at a time, through two buffers by turns: one leaves while the other is filled.
  __device__ void store(const Tile& tile, std::int64_t n0) {
    constexpr int box_bytes = kShape.round * kGemmBoxSamples * 2;
    const std::uint32_t buffers = shared_ + p_.out_offset + warpgroup_ * kShape.out_bytes();
    const bool leads = threadIdx.x % 128 == 0;
#pragma unroll
    for (int first = 0; first < kShape.n; first += kShape.round) {
      const std::uint32_t buffer = buffers + out_turn_ * (kBoxes * box_bytes);
      if (leads) ptx::wait_bulk_stores<1>();  // what this buffer held has left
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
        store_elements<Traits>(p_, tile, tile.k0 + first, n0, buffer);
      }
      out_turn_ ^= 1;
    }
  }

  /// This warp's 16 samples of a box, `round` outputs from `first`, as the copy engine takes them.
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
  float sums_[kBoxes][kShape.n / 2];
};

}  // namespace gemm

template <class Traits>
__global__ void __launch_bounds__(kGemmProducerThreads + kGemmConsumerThreads, 1)
    multiply_gemm(const __grid_constant__ GemmArguments p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)  // elsewhere refused on the host, and quick to compile
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const gemm::Barriers barriers{shared};
  if (threadIdx.x == 0) {
    constexpr int consumer_warps = kGemmConsumerThreads / 32;
    const bool by_turns = p.w_slots != 0;
    for (int stage = 0; stage < p.stages; ++stage) {
      ptx::barrier_init(barriers.full(stage), p.x_tensor_copies ? 1 : kGemmProducerThreads);
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
    // The two numbers share the registers that 384 threads of 168 were launched with.
    ptx::give_registers<56>();
    gemm::Producer<Traits>(p, shared).run();
  } else {
    ptx::take_registers<224>();
    gemm::Consumer<Traits>(p, shared).run();
  }
#endif
}

}  // namespace kronsparse::cuda
