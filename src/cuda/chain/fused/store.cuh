// The way of y out of shared memory in the kernel `fused`.
#pragma once

#include "cuda/chain/fused/block.cuh"

namespace kronsparse::cuda::fused {

/// Stores a part of a tile of y.
template <class Traits>
class YStore {
 public:
  __device__ YStore(const Arguments& p, std::int64_t tile, int rank, int part, std::uint32_t from)
      : p_(p), from_(from), first_(rank * p.y_features), part_first_(part * p.y_run) {
    features_ = min(p.y_features, p.y_all - first_);
    const std::int64_t sample = tile * Traits::samples;
    there_ = samples_there<Traits>(p, sample);
    y_ = p.y + sample * p.y_sample * Traits::element;
  }

  __device__ void store_all(const Lane& at) const {
    if (p_.samples_first && p_.y_vectors)
      store_rows<true>(at);
    else if (p_.samples_first)
      store_rows<false>(at);
    else if (p_.y_vectors)
      store_lines<true>(at);
    else
      store_lines<false>(at);
  }

 private:
  /// The feature of y that is `feature` of the rank's part.
  [[nodiscard]] __device__ std::int64_t feature_of(int feature) const {
    const int number = first_ + feature;
    if (p_.parts == 1) return number;
    const auto run = static_cast<int>(p_.y_runs.quotient(static_cast<std::uint32_t>(number)));
    return static_cast<std::int64_t>(run) * p_.y_run_step + part_first_ + (number - run * p_.y_run);
  }
  [[nodiscard]] __device__ std::uint32_t line_at(int feature) const {
    return from_ + address_of(line_entry(Traits::line(), feature, p_.space[p_.steps].shift));
  }

  /// A warp stores 8 rows of 4 units. A lane's unit are the features that a load of four transposed squares
  /// gives it: pairs of features are the rows of the squares.
  template <bool is_vector>
  __device__ void store_rows(const Lane& at) const {
    constexpr int of_eight = Traits::samples / 8;
    constexpr int across = 4 * Traits::unit_elements;  // features
    const int first = at.warp / of_eight * across, step = max(1, at.warps / of_eight) * across;
    for (int eight = at.warp % of_eight; eight < of_eight; eight += at.warps)
      for (int group = first; group < features_; group += step) store_square<is_vector>(eight * 8, group, at);
  }
  template <bool is_vector>
  __device__ void store_square(int first_sample, int group, const Lane& at) const {
    const int lane_feature =
        group + (Traits::half ? at.lane % 8 / 2 * 8 + at.lane / 8 * 2 + at.lane % 2 : at.t * 4);
    const int place = (first_sample + (Traits::half ? 0 : at.g)) * Traits::element;
    const int last = features_ - 1;
    std::uint32_t words[4];
    if constexpr (Traits::half) {
      const uint4 all = ptx::load_matrices_transposed(line_at(min(lane_feature, last)) ^ place);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) words[e] = ptx::load_shared_4(line_at(min(lane_feature + e, last)) ^ place);
    }
    const int sample = first_sample + at.g, feature = group + at.t * Traits::unit_elements;
    const int here = sample < there_ ? min(Traits::unit_elements, features_ - feature) : 0;
    std::byte* const row = y_ + sample * p_.y_sample * Traits::element;
    if constexpr (is_vector) {
      if (here > 0) ptx::store_words(row + feature_of(feature) * Traits::element, words);
    } else {
#pragma unroll
      for (int e = 0; e < Traits::unit_elements; ++e)
        if (e < here) store_element(row + feature_of(feature + e) * Traits::element, words, e);
    }
  }

  /// A warp stores as many lines as it has lanes for.
  template <bool is_vector>
  __device__ void store_lines(const Lane& at) const {
    constexpr int lines = 32 / Traits::units;
    const int unit = at.lane % Traits::units;
    const int here = min(Traits::unit_elements, there_ - unit * Traits::unit_elements);
    if (here <= 0) return;
#pragma unroll 2
    for (int feature = at.warp * lines + at.lane / Traits::units; feature < features_;
         feature += at.warps * lines) {
      const uint4 words = ptx::load_shared_16(line_at(feature) ^ unit * 16);
      std::byte* const to =
          y_ + (feature_of(feature) * p_.y_feature + unit * Traits::unit_elements) * Traits::element;
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
      if (is_vector && here == Traits::unit_elements) {
        ptx::store_words(to, word);
      } else {
#pragma unroll
        for (int e = 0; e < Traits::unit_elements; ++e)
          if (e < here) store_element(to + e * Traits::element, word, e);
      }
    }
  }

  __device__ static void store_element(std::byte* to, const std::uint32_t (&word)[4], int e) {
    if constexpr (Traits::half)
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(word[e / 2] >> e % 2 * 16);
    else
      *reinterpret_cast<std::uint32_t*>(to) = word[e];
  }

  const Arguments& p_;
  std::uint32_t from_;
  int first_, part_first_, features_, there_;
  std::byte* y_;
};

}  // namespace kronsparse::cuda::fused
