// Sums of the warps that share out the terms, and their way to y. held_tiles.cuh says how they lie.
#pragma once

#include "cuda/held_operands.cuh"
#include "cuda/store_neighbours.cuh"

namespace kronsparse::cuda::held {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <class T, Shape shape, bool ordinary>
class SumStore {
  static constexpr int block_j = shape.block_j(), unit = shape.unit();

 public:
  __device__ SumStore(const Arguments& args, const BlockPlace& place, std::uint32_t base, int warp)
      : args_(args),
        base_(base),
        warp_(warp),
        sample_(thread() / sample_units),
        output_(thread() % sample_units / shape.output_units()),
        exists_(thread() < shape.units() && place.first_sample + sample_ >= place.first_stored &&
                place.first_sample + sample_ < args.batch),
        outputs_left_(args.b - place.first_k - output_),
        first_feature_((std::int64_t{place.i} * args.b + place.first_k) * shape.d +
                       thread() % sample_units * unit),
        y_(static_cast<T*>(args.y) + (place.first_sample + sample_) * args.y_sample + first_feature_) {}

  /// What a warp has of a tile, to where its weights were and others find it.
  __device__ void put(const float (&sums)[block_j][4], int slot) const {
    const std::uint32_t to = base_ + slot_place(warp_, slot);
    __syncwarp();  // other lanes have read the weights
#pragma unroll
    for (int at = 0; at < 4; ++at)
#pragma unroll
      for (int four = 0; four < block_j / 4; ++four)
        ptx::store_shared_floats(
            to + shape.sum_place(warp_ % shape.j_warps(), four, shape.sample_of(lane() / 4) + at / 2 * 8,
                                 lane() % 4 * 2 + at % 2),
            sums[4 * four][at], sums[4 * four + 1][at], sums[4 * four + 2][at], sums[4 * four + 3][at]);
  }

  /// Adds up a tile's sums, and stores results.
  __device__ void finish(int tile, int slot) const {
    if (!exists_ || tile * tile_outputs >= outputs_left_) return;
    float sums[unit] = {};
    add_up(sums, slot);
    std::uint32_t words[unit / 2];
    const int later = tile * tile_outputs * shape.d;
    round_neighbours<ordinary, T>(words, sums, args_, first_feature_ + later);
    store_neighbours<ordinary>(words, args_, y_ + later);
  }

 private:
  static constexpr int sample_units = tile_outputs * shape.output_units();

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % 32; }

  __device__ void add_up(float (&sums)[unit], int slot) const {
    const int unit_of_output = thread() % shape.output_units();
    const int j_warp = shape.j_warps() == 1 ? 0 : unit_of_output;
    uint4 parts[shape.l_warps()][unit / 4];
#pragma unroll
    for (int part = 0; part < shape.l_warps(); ++part)
#pragma unroll
      for (int four = 0; four < unit / 4; ++four)
        parts[part][four] = ptx::load_shared_16(
            base_ + slot_place(part * shape.j_warps() + j_warp, slot) +
            shape.sum_place(j_warp, shape.j_warps() == 1 ? unit_of_output : four, sample_, output_));
#pragma unroll
    for (const auto& part : parts)
#pragma unroll
      for (int four = 0; four < unit / 4; ++four) {
        sums[4 * four] += __uint_as_float(part[four].x), sums[4 * four + 1] += __uint_as_float(part[four].y);
        sums[4 * four + 2] += __uint_as_float(part[four].z);
        sums[4 * four + 3] += __uint_as_float(part[four].w);
      }
  }

  const Arguments& args_;
  std::uint32_t base_;
  int warp_;
  int sample_, output_;  ///< of the thread's unit
  bool exists_;
  int outputs_left_;  ///< from the thread's of the first tile on
  std::int64_t first_feature_;
  T* y_;
};

#endif

}  // namespace kronsparse::cuda::held
