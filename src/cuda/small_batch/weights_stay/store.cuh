// The partial sums of the warps that split l, and their path to y. tiles.cuh says how they lie.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/device/store_neighbours.cuh"
#include "cuda/small_batch/weights_stay/loads.cuh"

namespace kronsparse::cuda::weights_stay {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <class T, Shape shape>
class SumStore {
  static constexpr int block_j = shape.block_j(), unit = shape.unit();
  using Words = std::uint32_t[unit / 2];  ///< the results of a unit

 public:
  __device__ SumStore(const Arguments& args, const BlockPlace& place, std::uint32_t sums)
      : args_(args),
        sums_(sums),
        outputs_left_(args.b - place.first_k),
        sample_(thread() / sample_units),
        output_(thread() % sample_units / shape.output_units()),
        left_(thread() < shape.units() && output_ < outputs_left_ ? args.batch - place.first_sample - sample_
                                                                  : 0),
        first_feature_((std::int64_t{place.i} * args.b + place.first_k) * shape.d),
        y_(static_cast<T*>(args.y) + (place.first_sample + sample_) * args.y_sample + first_feature_ +
           thread() % sample_units * unit) {}

  /// Puts a warp's results of a pass into shared memory: partial sums, or rounded results if no other warp
  /// has parts of them.
  __device__ void put(const float (&sums)[block_j][4], int warp) const {
    if constexpr (shape.l_warps() > 1)
      put_sums(sums, warp);
    else if (is_plain(args_))
      put_results<true>(sums, warp);
    else
      put_results<false>(sums, warp);
  }

  /// Adds up the sums of a pass and stores the results.
  __device__ void finish(int pass) const {
    if (is_plain(args_))
      finish_all<true>(pass);
    else
      finish_all<false>(pass);
  }

 private:
  static constexpr int sample_units = tile_outputs * shape.output_units();
  static constexpr int samples_on = threads / sample_units;  ///< from one of a thread's units to the next, in
                                                             ///< samples

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % 32; }

  /// The output and the sample of one of a lane's four sums of each j.
  __device__ static int output_of(int at) { return lane() / 4 + at / 2 * 8; }
  __device__ static int sample_of(int at) { return shape.sample_of(lane() % 4 * 2 + at % 2); }

  __device__ void put_sums(const float (&sums)[block_j][4], int warp) const {
    const int part = warp / shape.j_warps(), j_warp = warp % shape.j_warps();
#pragma unroll
    for (int at = 0; at < 4; ++at)
#pragma unroll
      for (int four = 0; four < block_j / 4; ++four) {
        const int place = unit == 8 ? shape.sum_place(part, four, sample_of(at), output_of(at), j_warp)
                                    : shape.sum_place(part, 0, sample_of(at), output_of(at), four);
        ptx::store_shared_floats(sums_ + place, sums[4 * four][at], sums[4 * four + 1][at],
                                 sums[4 * four + 2][at], sums[4 * four + 3][at]);
      }
  }

  template <bool plain>
  __device__ void put_results(const float (&sums)[block_j][4], int warp) const {
#pragma unroll
    for (int at = 0; at < 4; ++at) {
      float of_output[unit];
#pragma unroll
      for (int j = 0; j < unit; ++j) of_output[j] = sums[j][at];
      Words words{};
      if (output_of(at) < outputs_left_)
        round_neighbours<plain, T>(words, of_output, args_,
                                   first_feature_ + output_of(at) * shape.d + warp * unit);
      ptx::store_shared_16(sums_ + shape.sum_place(0, 0, sample_of(at), output_of(at), warp), words[0],
                           words[1], words[2], words[3]);
    }
  }

  template <bool plain>
  __device__ void finish_all(int pass) const {
#pragma unroll
    for (int k = 0; k < shape.thread_units(); ++k) {
      const int later = pass * tile_samples + k * samples_on;
      if (later >= left_) continue;
      const auto load = [&](int part, int four) {
        return ptx::load_shared_16(sums_ + shape.sum_place(part, four, sample_ + k * samples_on, output_,
                                                           thread() % shape.output_units()));
      };
      Words words;
      if constexpr (shape.l_warps() == 1) {
        const uint4 results = load(0, 0);
        words[0] = results.x, words[1] = results.y, words[2] = results.z, words[3] = results.w;
      } else {
        float sums[unit] = {};
#pragma unroll
        for (int part = 0; part < shape.l_warps(); ++part)
#pragma unroll
          for (int four = 0; four < unit / 4; ++four) {
            const uint4 v = load(part, four);
            sums[4 * four] += __uint_as_float(v.x), sums[4 * four + 1] += __uint_as_float(v.y);
            sums[4 * four + 2] += __uint_as_float(v.z), sums[4 * four + 3] += __uint_as_float(v.w);
          }
        round_neighbours<plain, T>(words, sums, args_, first_feature_ + thread() % sample_units * unit);
      }
      store_neighbours<plain>(words, args_, y_ + later * args_.y_sample);
    }
  }

  const Arguments& args_;
  std::uint32_t sums_;
  int outputs_left_;     ///< outputs from the block's first on
  int sample_, output_;  ///< place of the thread's first unit
  int left_;             ///< samples from that one on
  std::int64_t first_feature_;
  T* y_;
};

#endif

}  // namespace kronsparse::cuda::weights_stay
