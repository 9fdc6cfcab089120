// Sums of the warps that share out the terms, and their way to y. held_tiles.cuh says how they lie.
#pragma once

#include "cuda/held_operands.cuh"
#include "cuda/store_neighbours.cuh"

namespace kronsparse::cuda::held {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <class T, Shape shape, bool ordinary>
class SumStore {
  static constexpr int block_j = shape.block_j(), fours = block_j / 4, unit = shape.unit();

 public:
  __device__ SumStore(const Arguments& args, const BlockPlace& place, std::uint32_t base, int warp)
      : args_(args),
        first_feature_((std::int64_t{place.i} * args.b + place.first_k) * shape.d +
                       thread() % sample_units * unit) {
    const int j_warp = warp % shape.j_warps(), unit_of_output = thread() % shape.output_units();
#pragma unroll
    for (int four = 0; four < fours; ++four)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        put_[four][odd] = base + slot_place(warp, 0) +
                          shape.sum_place(j_warp, four, shape.sample_of(lane() / 4), lane() % 4 * 2 + odd);
        ptx::settle(put_[four][odd]);
      }
    const int sample = thread() / sample_units, output = thread() % sample_units / shape.output_units();
    const bool by_j_warp = shape.j_warps() > 1;
    take_ = base + slot_place(by_j_warp ? unit_of_output : 0, 0) +
            shape.sum_place(by_j_warp ? unit_of_output : 0, by_j_warp ? 0 : unit_of_output, sample, output);
    ptx::settle(take_);
    const int at = place.first_sample + sample;
    y_ = static_cast<T*>(args.y) + at * args.y_sample + first_feature_;
    ptx::settle(y_);
    const bool exists = thread() < shape.units() && at >= place.first_stored && at < args.batch;
    outputs_left_ = exists ? args.b - place.first_k - output : 0;
  }

  /// What a warp has of a tile, to where its weights were and others find it.
  __device__ void put(const float (&sums)[block_j][4], int slot) const {
    __syncwarp();  // other lanes have read the weights
#pragma unroll
    for (int at = 0; at < 4; ++at)
#pragma unroll
      for (int four = 0; four < fours; ++four)
        ptx::store_shared_floats(
            put_[four][at % 2] + slot_place(0, slot) + shape.sum_place(0, 0, at / 2 * 8, 0),
            sums[4 * four][at], sums[4 * four + 1][at], sums[4 * four + 2][at], sums[4 * four + 3][at]);
  }

  /// Adds up a tile's sums, and stores results.
  __device__ void finish(int tile, int slot) const {
    if (tile * tile_outputs >= outputs_left_) return;
    float sums[unit];
    add_up(sums, slot);
    std::uint32_t words[unit / 2];
    const int later = tile * tile_outputs * shape.d;
    round_neighbours<ordinary, T>(words, sums, args_, first_feature_ + later);
    store_neighbours<ordinary>(words, args_, y_ + later);
  }

 private:
  static constexpr int sample_units = tile_outputs * shape.output_units();

  __device__ static int thread() { return static_cast<int>(threadIdx.x % threads); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void add_up(float (&sums)[unit], int slot) const {
    uint4 parts[shape.l_warps()][unit / 4];
#pragma unroll
    for (int part = 0; part < shape.l_warps(); ++part)
#pragma unroll
      for (int four = 0; four < unit / 4; ++four)
        parts[part][four] = ptx::load_shared_16(take_ + slot_place(part * shape.j_warps(), slot) +
                                                shape.sum_place(0, four, 0, 0));
#pragma unroll
    for (int part = 0; part < shape.l_warps(); ++part)
#pragma unroll
      for (int four = 0; four < unit / 4; ++four) {
        const uint4& more = parts[part][four];
        const float floats[4] = {__uint_as_float(more.x), __uint_as_float(more.y), __uint_as_float(more.z),
                                 __uint_as_float(more.w)};
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[4 * four + e] = part == 0 ? floats[e] : sums[4 * four + e] + floats[e];
      }
  }

  const Arguments& args_;
  std::int64_t first_feature_;        ///< of the thread's unit, in the first tile
  std::uint32_t put_[fours][2] = {};  ///< where sums of two outputs go, in slot 0
  std::uint32_t take_ = 0;            ///< and where the first of the thread's unit lie
  T* y_ = nullptr;
  int outputs_left_ = 0;  ///< from the thread's of the first tile on; none where its sample is not stored
};

#endif

}  // namespace kronsparse::cuda::held
