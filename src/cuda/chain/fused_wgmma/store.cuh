// The way of y out of shared memory in the kernel `fused_wgmma`: lines become rows.
#pragma once

#include "cuda/chain/fused_wgmma/products.cuh"

namespace kronsparse::cuda::fused_wgmma {

/// Stores y of a tile, or of a part of it. A warp takes 8 samples and 32 features at once: loads transpose
/// four squares of 8 features, chosen so that a lane gets 8 neighbouring features of a sample.
template <class Traits>
class YStore {
 public:
  __device__ YStore(const Arguments& p, std::int64_t tile, int part, std::uint32_t shared, const Lane& at)
      : p_(p), shared_(shared), at_(at), part_first_(part * p.y_run) {
    const std::int64_t sample = tile * (Traits::row_groups * row_group_samples);
    const std::int64_t rest = p.batch - sample;
    there_ = rest < Traits::row_groups * row_group_samples ? static_cast<int>(rest)
                                                           : Traits::row_groups * row_group_samples;
    y_ = reinterpret_cast<std::uint16_t*>(p.y) + sample * p.y_stride;
  }

  __device__ __forceinline__ void run() const {
    if (p_.y_vectors)
      store_all<true>();
    else
      store_all<false>();
  }

 private:
  template <bool is_vector>
  __device__ void store_all() const {
    constexpr int warps = Traits::consumer_threads / 32, eights = Traits::row_groups * 8;
    const int warp = at_.warpgroup * consumer_warps_in_group + at_.warp;
    const int groups = (p_.y_features + 31) / 32;
    for (int number = warp; number < groups * eights; number += warps) {
      const int eight = number % eights, group = number / eights;
      store_square<is_vector>(eight, group * 32);
    }
  }

  template <bool is_vector>
  __device__ void store_square(int eight, int first) const {
    const Step& last = p_.step[p_.steps - 1];
    const int lane_feature =
        min(first + at_.lane % 8 / 2 * 8 + at_.lane / 8 * 2 + at_.lane % 2, p_.y_features - 1);
    const int line = ptx::load_shared_2(shared_ + p_.y_lines + lane_feature * 2);
    const uint4 words = ptx::load_matrices_transposed(
        unit_at(shared_ + last.out + eight / 8 * last.out_group, line, eight % 8));
    const int sample = eight * 8 + at_.g, feature = first + at_.t * 8;
    if (sample >= there_ || feature >= p_.y_features) return;
    std::uint16_t* const row = y_ + sample * p_.y_stride;
    if constexpr (is_vector) {
      *reinterpret_cast<uint4*>(row + feature_of(feature)) = words;
    } else {
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (feature + e < p_.y_features)
          row[feature_of(feature + e)] = static_cast<std::uint16_t>(word[e / 2] >> e % 2 * 16);
    }
  }

  /// The feature of y that is `feature` of the part.
  [[nodiscard]] __device__ std::int64_t feature_of(int feature) const {
    if (p_.parts == 1) return feature;
    const auto run = static_cast<int>(p_.y_runs.quotient(static_cast<std::uint32_t>(feature)));
    return std::int64_t{run} * p_.y_run_step + part_first_ + (feature - run * p_.y_run);
  }

  const Arguments& p_;
  std::uint32_t shared_;
  Lane at_;
  int part_first_, there_ = 0;
  std::uint16_t* y_;
};

}  // namespace kronsparse::cuda::fused_wgmma
