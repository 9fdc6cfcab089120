// The small-batch kernel `x-stays-wgmma` for Hopper: cuts, the order of weights and their path.
//
// It is for batches up to 64 of half types, where most of the traffic is weights. The weights are the left
// operand of wgmma: 64 outputs of one (i, j), a row of tiles, over a range of l. One thread has the copy
// engine bring them to shared memory in the order in which they are packed, as many as there is room for, and
// before the earlier kernel has ended. x is the right operand. Tensor copies bring it if d = 1; else threads
// stage it (x_in_shared.cuh). Each warpgroup has its own rows, weights and barriers. The blocks of a cluster
// may split l; they add up in the order of their ranks, so results do not vary.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/device/ring.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/host/divisor.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/packing/packed_place.cuh"
#include "cuda/small_batch/x_stays/x_in_shared.cuh"

namespace kronsparse::cuda::x_stays_wgmma {

inline constexpr int max_warpgroups = 4;
inline constexpr int tile_k = 64;                             ///< outputs of a row
inline constexpr int step_l = 16;                             ///< terms of one instruction
inline constexpr int step_bytes = tile_k * step_l * 2;        ///< bytes of weights for a step
inline constexpr int chunk_steps = 4;                         ///< steps whose weights arrive together
inline constexpr int chunk_bytes = chunk_steps * step_bytes;  // 8 KB
inline constexpr int barrier_bytes = 16;                      ///< a stage has two: one for full, one for
                                                              ///< empty
inline constexpr int producer_threads = 32;                   ///< the last of a block
inline constexpr int barriers_are_there = 1, x_is_there = 2;  ///< numbered barriers

/// How a problem is cut into blocks and rows; fixed when the plan is made.
///
/// A panel shares x: one i, `j_group` neighbouring j and `samples` of the batch. Its rows are numbered with j
/// fastest, row = (k tile)·j_group + j. A block takes `warpgroups`·`rows` of them, which are whole k tiles or
/// neighbouring j of one: warpgroup w takes the rows w, w + warpgroups, ... Further warpgroups may help to
/// bring x and to store y, which is most of the threads' work.
struct Cut {
  int samples = 8;  ///< 8, 16, 32 or 64
  int j_group = 1, j_groups = 1;
  int cluster = 1;     ///< blocks that split l
  int warpgroups = 1;  ///< warpgroups that multiply
  int threads = 128;   ///< threads of the block, without the producer's
  int rows = 1;        ///< rows of a warpgroup
  int chunks = 1;      ///< chunks of a row
  int stages = 1;      ///< chunks of a warpgroup that shared memory holds
  int k_blocks = 1;
  int run = 1;           ///< run of the order of terms (TermOrder)
  int bytes = 0;         ///< bytes of x in one load, if x is aligned (see XPlace)
  bool boxes = false;    ///< whether tensor copies bring x, if it is aligned
  bool collects = true;  ///< whether results are collected in shared memory, so that rows of y are stored
                         ///< whole

  [[nodiscard]] __host__ __device__ int block_rows() const { return warpgroups * rows; }
  /// Neighbouring j of a block's rows.
  [[nodiscard]] __host__ __device__ int block_j() const {
    return block_rows() < j_group ? block_rows() : j_group;
  }
  [[nodiscard]] __host__ __device__ int block_outputs() const { return block_rows() * tile_k; }
  [[nodiscard]] __host__ __device__ int positions() const { return chunks * chunk_steps * step_l; }
  /// Samples whose outputs one block of a cluster adds up and stores.
  [[nodiscard]] __host__ __device__ int share() const { return samples / cluster; }
};

/// Offsets in a block's shared memory, in bytes.
struct SharedLayout {
  int vector;    ///< from 16 bytes of terms to the next 16, for all samples; an odd number of 16 bytes
  int plane;     ///< from one j to the next
  int results;   ///< results of the block's share of samples: [sample][k][j]
  int result;    ///< from one sample's results to the next; an odd number of 16 bytes
  int partials;  ///< partial sums of the block's share of samples: [row][rank][output][sample]
  int weights;   ///< [warpgroup][stage]
  int barriers;  ///< [warpgroup][stage]; then one for each chunk of x
  int unused;    ///< 4 bytes that nobody reads
  int total;
};

/// Floats from one output's partial sums to the next. With 4 extra ones, neighbouring outputs are read from
/// different banks.
[[nodiscard]] __host__ __device__ inline int partial_stride(const Cut& cut) { return cut.share() + 4; }

[[nodiscard]] __host__ __device__ inline SharedLayout shared_layout(const Cut& cut) {
  SharedLayout s{};
  s.vector = cut.samples * 16 + 16;
  s.plane = cut.positions() / 8 * s.vector;
  s.results = s.plane * cut.j_group;
  s.result = cut.block_outputs() * 2 + 16;
  s.partials = s.results + (cut.collects ? s.result * cut.share() : 0);
  const int partial_bytes =
      cut.cluster == 1 ? 0 : cut.block_rows() * cut.cluster * tile_k * partial_stride(cut) * 4;
  s.weights = (s.partials + partial_bytes + 127) / 128 * 128;
  s.barriers = s.weights + cut.warpgroups * cut.stages * chunk_bytes;
  s.unused = s.barriers + cut.warpgroups * cut.stages * barrier_bytes + cut.chunks * 8;
  s.total = s.unused + 8;
  return s;
}

[[nodiscard]] __host__ __device__ inline PackedPlace packed_place(const Cut& cut, std::int64_t index) {
  Digits digits(index);
  // The weights of an instruction are blocks of 8 outputs x 8 terms. Those of the next 8 terms come after all
  // outputs.
  const std::int64_t term = digits.take(8), k_in_tile = digits.take(tile_k), next_terms = digits.take(2);
  const std::int64_t step = digits.take(std::int64_t{cut.chunks} * chunk_steps);
  const std::int64_t r = digits.take(cut.rows), warpgroup = digits.take(cut.warpgroups);
  const std::int64_t rank = digits.take(cut.cluster), k_block = digits.take(cut.k_blocks),
                     j_block = digits.take(cut.j_groups);
  const std::int64_t row = k_block * cut.block_rows() + r * cut.warpgroups + warpgroup;
  const TermOrder<__half> order{.positions = cut.positions(), .run = cut.run};
  const auto position = static_cast<int>(step * step_l + next_terms * 8 + term);
  return {.i = digits.rest(),
          .k = row / cut.j_group * tile_k + k_in_tile,
          .l = rank * order.positions + order.l_at(position),
          .j = j_block * cut.j_group + row % cut.j_group};
}

/// The same order as digits.
[[nodiscard]] inline PackLayout pack_layout(const Problem& problem, const Cut& cut) {
  PackLayout layout = PackLayout::of(problem);
  const TermOrder<__half> order{.positions = cut.positions(), .run = cut.run};
  for (const int position : {1, 2, 4}) layout.bit({.l = order.l_at(position)});
  layout.digit(tile_k, {.k = 1});
  layout.digit(order.vectors(), {.l = cut.run});
  layout.digit(cut.rows, {.row = cut.warpgroups});
  layout.digit(cut.warpgroups, {.row = 1});
  layout.digit(cut.cluster, {.l = order.positions});
  layout.digit(cut.k_blocks, {.row = cut.block_rows()});
  layout.digit(cut.j_groups, {.j = cut.j_group});
  layout.rows_of_k = cut.j_group;
  layout.of_quotient = {.k = tile_k};
  layout.of_rest = {.j = 1};
  return layout;
}

/// The numbers that packed_place() depends on. Rows are numbered through a block, unless its warpgroups have
/// several each, and through all blocks, unless these split l.
[[nodiscard]] inline PackedOrder packed_order(const Cut& cut) {
  const bool through_block = cut.rows == 1 || cut.warpgroups == 1,
             through_all = through_block && cut.cluster == 1;
  const std::int64_t rows = through_block ? 1 : cut.rows,
                     warpgroups = through_all     ? 1
                                  : through_block ? cut.block_rows()
                                                  : cut.warpgroups,
                     k_blocks = through_all ? std::int64_t{cut.block_rows()} * cut.k_blocks : cut.k_blocks;
  return {
      .family = "x-stays-wgmma",
      .numbers = {cut.chunks, rows, warpgroups, cut.cluster, k_blocks, cut.j_groups, cut.j_group, cut.run}};
}
/// Gives the cut this order. Its other numbers do not count.
inline void take_order(Cut& cut, const PackedOrder& order) {
  take_numbers(order, {&cut.chunks, &cut.rows, &cut.warpgroups, &cut.cluster, &cut.k_blocks, &cut.j_groups,
                       &cut.j_group, &cut.run});
}

/// The arguments of a launch.
struct Arguments {
  CUtensorMap x_map;  ///< for tensor copies of x
  const std::byte* weights;
  const void* x;
  void* y;
  const void* bias;  ///< null when there is none
  Cut cut;
  XPlace place;
  int batch;
  Activation activation;
  std::int64_t b, c, d;
  std::int64_t y_sample, y_feature;
  int y_vector;  ///< neighbouring features that are stored at once: 8, 4 or 1; 0 if results go directly to y,
                 ///< because features are not neighbours, or samples are so few that collecting takes longer
  Divisor blocks_of_weights, cluster, k_blocks, j_groups, j_group;
  bool just_packed = false;  ///< the earlier kernel may write the weights: wait for it first
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The position of a block: its panel, its rows, its part of l, its samples.
struct BlockPlace {
  int of_weights;  ///< its number among the blocks of the same samples
  int i, j;        ///< j is the panel's first
  int k_block;
  int rank;  ///< in the cluster
  int first_sample, samples;

  __device__ explicit BlockPlace(const Arguments& args) {
    const auto take = [](unsigned& rest, const Divisor& count) {
      const unsigned quotient = count.quotient(rest);
      const unsigned digit = rest - quotient * count.value();
      rest = quotient;
      return static_cast<int>(digit);
    };
    unsigned rest = ptx::block_number();
    of_weights = take(rest, args.blocks_of_weights);
    first_sample = static_cast<int>(rest) * args.cut.samples;
    rest = static_cast<unsigned>(of_weights);
    rank = take(rest, args.cluster);
    k_block = take(rest, args.k_blocks);
    j = take(rest, args.j_groups) * args.cut.j_group;
    i = static_cast<int>(rest);
    samples = min(args.batch - first_sample, args.cut.samples);
  }
};

/// The weights of one warpgroup on their way through its stages.
class WeightStream {
 public:
  __device__ WeightStream(const Arguments& args, const SharedLayout& layout, const BlockPlace& place,
                          std::uint32_t base, int warpgroup)
      : count_(args.cut.stages), chunks_(args.cut.rows * args.cut.chunks) {
    from_ = args.weights +
            (std::int64_t{place.of_weights} * args.cut.warpgroups + warpgroup) * chunks_ * chunk_bytes;
    stages_ = base + layout.weights + warpgroup * count_ * chunk_bytes;
    barriers_ = base + layout.barriers + warpgroup * count_ * barrier_bytes;
  }

  __device__ void init() const {
    for (int stage = 0; stage < count_; ++stage) {
      ptx::barrier_init(full(stage), 1);
      ptx::barrier_init(empty(stage), 4);
    }
  }

  [[nodiscard]] __device__ int chunks() const { return chunks_; }
  /// Called by one thread: requests the next chunk as soon as its stage is empty.
  __device__ void request(int chunk) {
    if (chunk >= count_) ptx::barrier_wait(empty(place_.at), place_.parity ^ 1);
    ptx::barrier_arrive_expecting(full(place_.at), chunk_bytes);
    ptx::copy_bulk(stages_ + place_.at * chunk_bytes, from_ + std::int64_t{chunk} * chunk_bytes, chunk_bytes,
                   full(place_.at));
    place_.advance(count_);
  }

  /// Called by the warpgroup: waits for the next chunk and returns its address.
  __device__ std::uint32_t next() const {
    ptx::barrier_wait(full(place_.at), place_.parity);
    return stages_ + place_.at * chunk_bytes;
  }
  /// Called after the products of a chunk were committed: those of the previous chunk are done, and its stage
  /// is empty.
  __device__ void advance() {
    if (chunks_ > count_) {
      ptx::wgmma_wait<1>();
      if (previous_ >= 0 && threadIdx.x % 32 == 0) ptx::barrier_arrive(empty(previous_));
    }
    previous_ = place_.at;
    place_.advance(count_);
  }

 private:
  __device__ std::uint32_t full(int stage) const { return barriers_ + stage * barrier_bytes; }
  __device__ std::uint32_t empty(int stage) const { return full(stage) + 8; }

  const std::byte* from_;
  std::uint32_t stages_, barriers_;
  int count_, chunks_;
  int previous_ = -1;  ///< stage of the previous chunk
  RingPlace place_;
};

#endif

}  // namespace kronsparse::cuda::x_stays_wgmma
