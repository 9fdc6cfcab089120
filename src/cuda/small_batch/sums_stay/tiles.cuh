// The small-batch kernel `sums-stay` for Hopper: shapes, cuts and the arrangement of shared memory.
//
// It is for batches up to 64 of half types in batch_first, with d = 1, 2 or 4. Blocks have few outputs: x is
// the left operand of wgmma, 64 samples of which some may not exist, and the weights are the right one, 8 to
// 64 outputs of each j. So there are enough blocks without splitting sums much.
//
// Tensor copies bring x as it lies in memory, in boxes of 128 bytes of (l, j) for each sample. Bulk copies
// bring the weights in the order in which they are packed. For d = 1 wgmma reads the boxes as they are; else
// lanes sort them by j on the way to registers (loads.cuh). x and the weights have rings of stages of their
// own: often all weights fit, and come before the earlier kernel has ended. Sums stay in registers. Two
// warpgroups, two blocks of a cluster, or both share the terms, and add up at the end (exchange.cuh).
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/racecheck.cuh"
#include "cuda/host/divisor.hpp"
#include "cuda/packing/packed_place.cuh"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda::sums_stay {

inline constexpr int max_samples = 64;       ///< rows of one product
inline constexpr int box_row_bytes = 128;    ///< bytes of one sample
inline constexpr int step_terms = 16;        ///< terms of one instruction
inline constexpr int barrier_bytes = 16;     ///< a stage has two: one for full, one for empty
inline constexpr int producer_threads = 64;  ///< the last of a block: a warp for weights, one for x
inline constexpr int max_warpgroups = 2;
inline constexpr int barriers_are_there = 1;  ///< numbered barriers
inline constexpr int lent_to_first = 2, lent_to_second = 3;
inline constexpr int first_is_done = 4, second_is_done = 5;

/// The work of a block. Every shape has its own kernel.
struct Shape {
  int block_j;  ///< all of d: 1, 2 or 4
  int outputs;  ///< outputs of each j

  [[nodiscard]] __host__ __device__ constexpr int block_outputs() const { return block_j * outputs; }
  /// Sums of a lane.
  [[nodiscard]] __host__ __device__ constexpr int sums() const { return block_outputs() / 2; }
  /// The threads that share a multiprocessor's registers. Small shapes leave some of them to the next kernel.
  /// Beside its sums, each thread holds x as loaded and as sorted.
  [[nodiscard]] __host__ __device__ constexpr int register_threads() const {
    const int registers = sums() + (block_j == 1 ? 0 : 32);
    return (registers <= 72 ? 4 : registers <= 104 ? 3 : 2) * 128 + producer_threads;
  }

  // A slab: a box of x, and its weights.
  [[nodiscard]] __host__ __device__ constexpr int slab_terms() const { return 64 / block_j; }
  [[nodiscard]] __host__ __device__ constexpr int slab_steps() const { return slab_terms() / step_terms; }
  /// Bytes of weights for one instruction, and for a slab.
  [[nodiscard]] __host__ __device__ constexpr int step_bytes() const { return outputs * step_terms * 2; }
  [[nodiscard]] __host__ __device__ constexpr int slab_weight_bytes() const {
    return slab_steps() * block_j * step_bytes();
  }

  /// Neighbours in y that a lane has sums of: two outputs with all their j.
  [[nodiscard]] __host__ __device__ constexpr int lane_features() const { return 2 * block_j; }

  // A lane has sums of two samples. The half of its sums that belongs to one of them goes to the other
  // warpgroup or block, in pieces of some outputs, so that the first are added up and stored while others are
  // on their way.
  [[nodiscard]] __host__ __device__ constexpr int half_sums() const { return sums() / 2; }
  /// Bytes of a half, for all lanes of a warp: as much as the weights of one step for all j.
  [[nodiscard]] __host__ __device__ constexpr int warp_half_bytes() const { return half_sums() * 128; }
  /// Sums of a lane in a piece. A small half is one piece.
  [[nodiscard]] __host__ __device__ constexpr int piece_sums() const {
    return half_sums() < 24 ? half_sums() : 8;
  }
  [[nodiscard]] __host__ __device__ constexpr int pieces() const { return half_sums() / piece_sums(); }

  /// The term of a slab at a position of a step. Lane t of four holds positions 2t, 2t + 1, 2t + 8 and 2t +
  /// 9. It takes them from units 2t and 2t + 1 (16 bytes each) of a box's row. With the swizzle of boxes,
  /// lanes that load together then find them in different banks.
  [[nodiscard]] __host__ __device__ constexpr int term_at(int step, int position) const {
    const int t = position % 8 / 2, odd = position % 2, pair = position / 8;
    switch (block_j) {
      case 1:
        return step * step_terms + position;
      case 2:  // a unit has four terms
        return 4 * (2 * t + step) + 2 * pair + odd;
      default:  // two terms
        return 4 * t + 2 * pair + odd;
    }
  }

  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

inline constexpr std::array shapes{
    Shape{1, 8}, Shape{1, 16}, Shape{1, 24}, Shape{1, 32}, Shape{1, 40}, Shape{1, 48}, Shape{1, 64},
    Shape{2, 8}, Shape{2, 16}, Shape{2, 24}, Shape{2, 32}, Shape{2, 48}, Shape{2, 64},  //
    Shape{4, 8}, Shape{4, 16}, Shape{4, 24}, Shape{4, 32}, Shape{4, 40}, Shape{4, 48},
};

/// How a problem is cut into blocks; fixed when the plan is made.
struct Cut {
  Shape shape{1, 8};
  int rows = 8;  ///< samples of a box: the batch, rounded up to 8
  int k_blocks = 1;
  int splits = 1;      ///< blocks of a cluster that split l: 1 or 2
  int warpgroups = 2;  ///< warpgroups that take slabs by turns: 1 or 2; there are at least two that share l
  int slabs = 1;       ///< slabs of a block
  int stage_slabs = 1;
  int x_stages = 1, weight_stages = 1;
  bool joins_boxes = false;  ///< one copy brings all boxes of a stage

  [[nodiscard]] __host__ __device__ int threads() const { return warpgroups * 128; }
  /// Fillings of the stages of either ring. The last may have fewer slabs.
  [[nodiscard]] __host__ __device__ int fillings() const { return (slabs + stage_slabs - 1) / stage_slabs; }
  [[nodiscard]] __host__ __device__ int box_bytes() const { return rows * box_row_bytes; }

  /// Warps of a warpgroup that have samples.
  [[nodiscard]] __host__ __device__ int sample_warps() const { return (rows + 15) / 16; }
  /// Whether a warpgroup has room for the sums that it lends in its own stages of weights, where its own
  /// products alone read. A stage always goes to the same warpgroup (see for_each_completion). The half of
  /// each warp takes the place of a step.
  [[nodiscard]] __host__ __device__ bool has_room_to_lend() const {
    return weight_stages / warpgroups * stage_slabs * shape.slab_steps() >= 4;
  }

  /// Sums received from the other block, and the barriers that signal them.
  [[nodiscard]] __host__ __device__ int received_bytes() const {
    return splits == 1 ? 0 : sample_warps() * shape.warp_half_bytes();
  }
  [[nodiscard]] __host__ __device__ int received_pieces() const { return splits == 1 ? 0 : shape.pieces(); }
  [[nodiscard]] __host__ __device__ int received_piece_bytes() const {
    return sample_warps() * shape.piece_sums() * 128;
  }
  /// For racecheck, in place of numbered barriers.
  [[nodiscard]] __host__ __device__ int lending_barriers() const {
    return for_racecheck && warpgroups > 1 ? 3 * 4 : 0;
  }
};

/// Offsets in a block's shared memory, in bytes. The stages of x come first.
struct SharedLayout {
  int weights;   ///< [stage]; warpgroups later lend sums there
  int received;  ///< sums of the other block: [warp][four][lane]
  int barriers;  ///< [stage of x], [stage of weights]; then those for received sums and for lending
  int unused;    ///< 4 bytes that nobody reads
  int total;
};

[[nodiscard]] __host__ __device__ inline SharedLayout shared_layout(const Cut& cut) {
  SharedLayout s{};
  s.weights = cut.x_stages * cut.stage_slabs * cut.box_bytes();
  const int rings = s.weights + cut.weight_stages * cut.stage_slabs * cut.shape.slab_weight_bytes();
  // wgmma reads 64 rows, also of shorter boxes. The results of the extra rows are not used.
  const int last_box_end = s.weights - cut.box_bytes() + max_samples * box_row_bytes;
  s.received = rings < last_box_end ? last_box_end : rings;
  s.barriers = s.received + cut.received_bytes();
  s.unused = s.barriers + (cut.x_stages + cut.weight_stages) * barrier_bytes +
             (cut.received_pieces() + cut.lending_barriers()) * 8;
  s.total = s.unused + 8;
  return s;
}

/// The places where warpgroups lend each other sums (exchange.cuh).
struct Lending {
  int places[4];        ///< offsets in shared memory for each warp of the first warpgroup
  int second;           ///< from there to the places of the second warpgroup
  int meeting_threads;  ///< threads that have samples, of both warpgroups
};

[[nodiscard]] inline Lending lending_of(const Cut& cut) {
  const Shape& shape = cut.shape;
  const int slab_bytes = shape.slab_weight_bytes(), stage_bytes = cut.stage_slabs * slab_bytes;
  Lending lending{
      .places = {}, .second = stage_bytes, .meeting_threads = cut.warpgroups * cut.sample_warps() * 32};
  for (int warp = 0; warp < 4; ++warp) {
    const int slab = warp / shape.slab_steps();
    lending.places[warp] =
        shared_layout(cut).weights + slab / cut.stage_slabs * cut.warpgroups * stage_bytes +
        slab % cut.stage_slabs * slab_bytes + warp % shape.slab_steps() * shape.warp_half_bytes();
  }
  return lending;
}

[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t index) {
  const Shape& shape = cut.shape;
  Digits digits(index);
  // The weights of an instruction are blocks of 8 outputs x 8 terms. Those of the next 8 terms come after all
  // outputs.
  const std::int64_t term = digits.take(8), k = digits.take(shape.outputs), next_terms = digits.take(2);
  const std::int64_t j = digits.take(shape.block_j), step = digits.take(shape.slab_steps());
  const std::int64_t slab = digits.take(cut.slabs), rank = digits.take(cut.splits);
  const std::int64_t k_block = digits.take(cut.k_blocks);
  return {.i = digits.rest(),
          .k = k_block * shape.outputs + k,
          .l = (rank * cut.slabs + slab) * shape.slab_terms() +
               shape.term_at(static_cast<int>(step), static_cast<int>(next_terms * 8 + term)),
          .j = j};
}

/// The same order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const Shape& shape = cut.shape;
  for (const int position : {1, 2, 4}) layout.bit({.l = shape.term_at(0, position)});
  layout.digit(shape.outputs, {.k = 1});
  layout.digit(2, {.l = shape.term_at(0, 8)});
  layout.digit(shape.block_j, {.j = 1});
  layout.digit(shape.slab_steps(), {.l = shape.slab_steps() > 1 ? shape.term_at(1, 0) : 0});
  layout.digit(std::int64_t{cut.slabs} * cut.splits, {.l = shape.slab_terms()});
  layout.digit(cut.k_blocks, {.k = shape.outputs});
  return layout;
}

/// The numbers that packed_place() depends on. Slabs are numbered through all blocks that split l.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  return {
      .family = "sums-stay",
      .numbers = {cut.shape.block_j, cut.shape.outputs, std::int64_t{cut.slabs} * cut.splits, cut.k_blocks}};
}
/// Gives the cut this order. Its other numbers do not count.
inline void take_order(Cut& cut, const PackedOrder& order) {
  const auto number = [&](std::size_t at) { return static_cast<int>(order.numbers[at]); };
  cut.shape = {number(0), number(1)};
  cut.slabs = number(2);
  cut.k_blocks = number(3);
}

/// The arguments of a launch.
struct Arguments {
  CUtensorMap x_map;  ///< for tensor copies of x
  const std::byte* weights;
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  bool boxes;  ///< whether tensor copies bring x; else threads do
  int batch;
  Activation activation;
  std::int64_t b, c, d;
  std::int64_t x_sample, y_sample;
  bool y_vectors;        ///< whether 4 neighbouring features are stored at once
  bool y_direct;         ///< lanes round sums and store them from where they are
  std::uint32_t blocks;  ///< blocks that have work
  Divisor splits, k_blocks;
  bool just_packed = false;  ///< the earlier kernel may write the weights: wait for it first
  Lending lending;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The position of a block: its weights, i, first output, and its part of l.
struct BlockPlace {
  int number;
  int i, k;
  int rank;  ///< among the blocks that split l
  int first_slab;

  __device__ explicit BlockPlace(const Arguments& args) : number(static_cast<int>(ptx::block_number())) {
    const auto take = [](unsigned& rest, const Divisor& count) {
      const unsigned quotient = count.quotient(rest);
      const unsigned digit = rest - quotient * count.value();
      rest = quotient;
      return static_cast<int>(digit);
    };
    auto rest = static_cast<unsigned>(number);
    rank = take(rest, args.splits);
    k = take(rest, args.k_blocks) * args.cut.shape.outputs;
    i = static_cast<int>(rest);
    first_slab = rank * args.cut.slabs;
  }
};

/// The place where a thread stores results, and how many of them exist; computed before there are sums.
template <class T>
struct YPlace {
  T* y;
  int there;
};

/// The stages of x or of weights, and their barriers.
class Ring {
 public:
  __device__ Ring(std::uint32_t data, std::uint32_t barriers, int stage_bytes, int stages)
      : data_(data), barriers_(barriers), stage_bytes_(stage_bytes), stages_(stages) {}

  /// Called by one warp.
  __device__ void init(int arrivals_of_fillers) const {
    for (int stage = static_cast<int>(threadIdx.x) % 32; stage < stages_; stage += 32) {
      ptx::barrier_init(full(stage), arrivals_of_fillers);
      ptx::barrier_init(empty(stage), arrivals_of_warps(4));
    }
  }

  [[nodiscard]] __device__ int stages() const { return stages_; }
  [[nodiscard]] __device__ std::uint32_t data(int stage) const { return data_ + stage * stage_bytes_; }
  [[nodiscard]] __device__ std::uint32_t full(int stage) const { return barriers_ + stage * barrier_bytes; }
  [[nodiscard]] __device__ std::uint32_t empty(int stage) const { return full(stage) + 8; }

 private:
  std::uint32_t data_, barriers_;
  int stage_bytes_, stages_;
};

/// Both rings of a block, and the barriers that signal sums from other blocks or warpgroups.
struct Stages {
  Ring x, weights;
  std::uint32_t received;  ///< [piece]
  /// For racecheck. For each warp: whether the same warp of the other warpgroup has lent sums to the first
  /// warpgroup, and to the second. For each warpgroup: whether its products are done.
  std::uint32_t lending;

  __device__ Stages(const Cut& cut, const SharedLayout& layout, std::uint32_t base)
      : x(base, base + layout.barriers, cut.stage_slabs * cut.box_bytes(), cut.x_stages),
        weights(base + layout.weights, base + layout.barriers + cut.x_stages * barrier_bytes,
                cut.stage_slabs * cut.shape.slab_weight_bytes(), cut.weight_stages),
        received(base + layout.barriers + (cut.x_stages + cut.weight_stages) * barrier_bytes),
        lending(received + cut.received_pieces() * 8) {}

  /// Called by one warp.
  __device__ void init(const Cut& cut, bool boxes) const {
    x.init(boxes ? 1 : arrivals_of_warps(1));
    weights.init(1);
    const auto number = static_cast<int>(threadIdx.x) % 32;
    if (number < cut.received_pieces()) {
      ptx::barrier_init(received + number * 8, 1);
      ptx::barrier_arrive_expecting(received + number * 8, cut.received_piece_bytes());
    }
    if (number < cut.lending_barriers()) ptx::barrier_init(lending + number * 8, number < 8 ? 32 : 128);
    ptx::barrier_init_fence();
    __syncwarp();
  }
};

#endif

}  // namespace kronsparse::cuda::sums_stay
