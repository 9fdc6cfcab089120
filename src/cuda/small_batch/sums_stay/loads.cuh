// The small-batch kernel `sums-stay`: the producers that fill a block's stages, and the path of x from there
// to the registers of wgmma.
#pragma once

#include "cuda/device/ring.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/small_batch/sums_stay/tiles.cuh"

namespace kronsparse::cuda::sums_stay {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// The place of a unit of 16 bytes in a box, which is swizzled.
__device__ inline int unit_place(int row, int unit) {
  return row * box_row_bytes + ((unit ^ (row & 7)) << 4);
}

/// A single thread takes some 160 clocks for each request, whatever its size. So copies are as large as
/// possible, lanes request free stages side by side, and constants are computed beforehand.
template <int block_j, int outputs>
class Producer {
 protected:
  static constexpr Shape shape{block_j, outputs};

  __device__ Producer(const Cut& cut, const Ring& ring)
      : ring_(ring),
        lane_(static_cast<int>(threadIdx.x) % 32),
        stage_slabs_(cut.stage_slabs),
        fillings_(cut.fillings()),
        last_slabs_(cut.slabs - (fillings_ - 1) * cut.stage_slabs),
        free_(min(ring.stages(), fillings_)) {}

  __device__ int slabs_of(int filling) const { return filling + 1 < fillings_ ? stage_slabs_ : last_slabs_; }

  /// Calls request(filling, stage) for the stages that are free at first, each by one lane.
  template <class Request>
  __device__ void fill_free(Request&& request) const {
    for (int filling = lane_; filling < free_; filling += 32) request(filling, filling);
  }
  /// The same for all other fillings, as stages become empty; every lane that calls this makes each request.
  template <class Request>
  __device__ void fill_again(Request&& request) const {
    RingPlace at;
    at.skip(ring_.stages(), free_);
    for (int filling = free_; filling < fillings_; ++filling, at.advance(ring_.stages())) {
      ptx::barrier_wait(ring_.empty(at.at), at.parity ^ 1);
      request(filling, at.at);
    }
  }

  const Ring& ring_;
  int lane_;
  int stage_slabs_, fillings_;
  int last_slabs_;  ///< slabs of the last filling
  int free_;        ///< fillings that find their stage empty
};

/// A warp that brings weights.
template <int block_j, int outputs>
class WeightProducer : Producer<block_j, outputs> {
  using Base = Producer<block_j, outputs>;

 public:
  __device__ WeightProducer(const Arguments& args, const BlockPlace& place, const Ring& ring)
      : Base(args.cut, ring),
        from_(args.weights + std::int64_t{place.number} * args.cut.slabs * Base::shape.slab_weight_bytes()) {}

  __device__ void run() const {
    const auto request = [this](int filling, int stage) {
      const int bytes = this->slabs_of(filling) * Base::shape.slab_weight_bytes();
      ptx::barrier_arrive_expecting(this->ring_.full(stage), bytes);
      ptx::copy_bulk(this->ring_.data(stage),
                     from_ + std::int64_t{filling} * this->stage_slabs_ * Base::shape.slab_weight_bytes(),
                     bytes, this->ring_.full(stage));
    };
    this->fill_free(request);
    if (this->lane_ == 0) this->fill_again(request);
  }

 private:
  const std::byte* from_;
};

/// A warp that brings x.
template <int block_j, int outputs>
class XProducer : Producer<block_j, outputs> {
  using Base = Producer<block_j, outputs>;
  using Base::shape;

 public:
  __device__ XProducer(const Arguments& args, const BlockPlace& place, const Ring& ring)
      : Base(args.cut, ring),
        args_(args),
        place_(place),
        box_bytes_(args.cut.box_bytes()),
        first_box_(place.first_slab) {
    if (args.boxes && this->lane_ == 0) ptx::prefetch_map(&args.x_map);
  }

  /// If x does not come in boxes, all lanes copy.
  __device__ void run() const {
    if (!args_.boxes) {
      for (int filling = 0; filling < this->free_; ++filling) copy_elements(filling, filling);
      this->fill_again([this](int filling, int stage) { copy_elements(filling, stage); });
      return;
    }
    const auto request = [this](int filling, int stage) { request_boxes(filling, stage); };
    this->fill_free(request);
    if (this->lane_ == 0) this->fill_again(request);
  }

 private:
  __device__ void request_boxes(int filling, int stage) const {
    const int first = first_box_ + filling * this->stage_slabs_;
    const std::uint32_t barrier = this->ring_.full(stage);
    std::uint32_t to = this->ring_.data(stage);
    if (args_.cut.joins_boxes) {  // also for the last filling: there is room
      ptx::barrier_arrive_expecting(barrier, this->stage_slabs_ * box_bytes_);
      ptx::copy_box(to, &args_.x_map, 0, 0, first, place_.i, barrier);
      return;
    }
    const int boxes = this->slabs_of(filling);
    ptx::barrier_arrive_expecting(barrier, boxes * box_bytes_);
    for (int box = first; box < first + boxes; ++box, to += box_bytes_)
      ptx::copy_box(to, &args_.x_map, box * (box_row_bytes / 2), place_.i, 0, 0, barrier);
  }

  /// Copies an x that is not aligned, to the same places.
  __device__ void copy_elements(int filling, int stage) const {
    const int rows = args_.cut.rows;
    constexpr int units = box_row_bytes / 16;
    const std::int64_t first = std::int64_t{first_box_ + filling * this->stage_slabs_} * (box_row_bytes / 2),
                       end = args_.c * args_.d;
    for (int at = this->lane_; at < this->slabs_of(filling) * rows * units; at += 32) {
      const int unit = at % units, row = at / units % rows, box = at / units / rows;
      const std::int64_t feature = first + box * (box_row_bytes / 2) + unit * 8;  // within i
      const std::int64_t left = row < args_.batch ? end - feature : 0;
      const auto* from = static_cast<const std::byte*>(args_.x) +
                         (row * args_.x_sample + place_.i * end + feature) * std::int64_t{2};
      mma::store_elements(this->ring_.data(stage) + box * box_bytes_ + unit_place(row, unit), from,
                          static_cast<int>(max(min(left, std::int64_t{8}), std::int64_t{0})));
    }
    ptx::fence_for_bulk();  // wgmma reads through the same proxy as the copy engine
    if (speaks_for_warp()) ptx::barrier_arrive(this->ring_.full(stage));
  }

  const Arguments& args_;
  const BlockPlace& place_;
  int box_bytes_;
  int first_box_;
};

/// A lane's x of a slab, sorted by j, for d > 1.
template <int block_j>
class SortedX {
 public:
  static constexpr int steps = Shape{block_j, 8}.slab_steps();

  /// A lane's two samples lie 8 apart; `first_half` (0 or 1) says which of them comes first.
  __device__ SortedX(const Arguments& args, int first_half) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(warp * 16 + lane / 4 + 8 * (half ^ first_half), args.cut.rows - 1);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) places_[half][odd] = unit_place(row, lane % 4 * 2 + odd);
    }
  }

  __device__ void load(std::uint32_t slab) {
#pragma unroll
    for (int unit = 0; unit < units; ++unit)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 loaded = ptx::load_shared_16(slab + places_[half][unit]);
        raw_[unit][half][0] = loaded.x;
        raw_[unit][half][1] = loaded.y;
        raw_[unit][half][2] = loaded.z;
        raw_[unit][half][3] = loaded.w;
      }
  }

  /// The left operands of all products of the slab: [step][j].
  __device__ void sort(std::uint32_t (&left)[steps * block_j][4]) const {
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int j = 0; j < block_j; ++j)
#pragma unroll
        for (int pair = 0; pair < 2; ++pair)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            left[step * block_j + j][2 * pair + half] = __byte_perm(
                word(step, j, pair, 0, half), word(step, j, pair, 1, half), j % 2 == 0 ? 0x5410 : 0x7632);
  }

 private:
  static constexpr int units = 2;  ///< of 16 bytes, for each of a lane's samples

  /// The word that holds j and the term at the lane's position 8·pair + odd.
  [[nodiscard]] __device__ std::uint32_t word(int step, int j, int pair, int odd, int half) const {
    return block_j == 2 ? raw_[step][half][2 * pair + odd] : raw_[pair][half][2 * odd + j / 2];
  }

  int places_[2][units];
  std::uint32_t raw_[units][2][4];  // (units, samples, words)
};

#endif

}  // namespace kronsparse::cuda::sums_stay
