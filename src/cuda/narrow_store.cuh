// The product for small batches in blocks of few outputs: sums of warpgroups and of blocks on their way to y.
#pragma once

#include "cuda/epilogue.cuh"
#include "cuda/narrow_tiles.cuh"

namespace kronsparse::cuda::narrow {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Sums lie in shared memory as rows of samples: [sample][output][j], in units of 4. Of the wgmma
/// accumulator of one j, sample 16·warp + lane/4 + 8h of outputs 8q + 2·(lane%4) + e is sums[4q + 2h + e].
template <class T, int block_j, int outputs>
class SumStore {
 public:
  using Sums = float[block_j][outputs / 2];

  __device__ SumStore(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                      std::uint32_t base)
      : args_(args),
        place_(place),
        sums_(base),
        received_(base + layout.received),
        share_rows_(args.cut.share_rows()) {}

  /// By each warpgroup, to rows of its own.
  __device__ void put(const Sums& sums, int warpgroup) const {
    const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * h;
      if (row >= args_.cut.rows) continue;
      const std::uint32_t to = sums_ + (warpgroup * args_.cut.rows + row) * sample_bytes;
#pragma unroll
      for (int q = 0; q < outputs / 8; ++q) {
        const int first = 4 * q + 2 * h;
        if constexpr (block_j == 1) {
          ptx::store_shared_floats(to + unit_place(2 * q + t / 2) + t % 2 * 8, sums[0][first],
                                   sums[0][first + 1]);
        } else if constexpr (block_j == 2) {
          ptx::store_shared_floats(to + unit_place(4 * q + t), sums[0][first], sums[1][first],
                                   sums[0][first + 1], sums[1][first + 1]);
        } else {
#pragma unroll
          for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < block_j; j += 4)
              ptx::store_shared_floats(to + unit_place(((8 * q + 2 * t + e) * block_j + j) / 4),
                                       sums[j][first + e], sums[j + 1][first + e], sums[j + 2][first + e],
                                       sums[j + 3][first + e]);
        }
      }
    }
  }

  /// Adds the sums of all warpgroups to those of the first.
  __device__ void add_warpgroups() const {
    for_units(args_.cut.rows, [&](const Units& units) {
      float values[4 * at_once] = {};
      for (int w = 0; w < args_.cut.warpgroups; ++w) units.add(values, warpgroup_sums(w));
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (units.is_there(u))
          ptx::store_shared_floats(sums_ + units.place(u), values[4 * u], values[4 * u + 1],
                                   values[4 * u + 2], values[4 * u + 3]);
    });
  }

  /// To each other block of the cluster the samples that it adds up. One thread for each.
  __device__ void send(std::uint32_t barrier) const {
    const auto to = static_cast<int>(threadIdx.x);
    if (to >= args_.cut.splits || to == place_.rank) return;
    const int bytes = share_rows_ * sample_bytes;
    ptx::copy_bulk_to_cluster(ptx::cluster_address(received_ + place_.rank * bytes, to), sums_ + to * bytes,
                              bytes, ptx::cluster_address(barrier, to));
  }

  /// Adds up what warpgroups have, or blocks of the cluster, in their order: results of this block to y.
  __device__ void finish() const {
    const Cut& cut = args_.cut;
    const int first = place_.rank * share_rows_;
    for_units(min(args_.batch - first, share_rows_), [&](const Units& units) {
      float values[4 * at_once] = {};
      if (cut.splits == 1)
        for (int w = 0; w < cut.warpgroups; ++w) units.add(values, warpgroup_sums(w));
      else
        for (int rank = 0; rank < cut.splits; ++rank)
          units.add(values, (rank == place_.rank ? sums_ : received_) + rank * share_rows_ * sample_bytes);
      if (args_.bias != nullptr)
#pragma unroll
        for (int u = 0; u < at_once; ++u)
          if (units.is_there(u)) add_bias(values + 4 * u, units.unit(u));
      activate_all(values, args_.activation);
#pragma unroll
      for (int u = 0; u < at_once; ++u)
        if (units.is_there(u)) store(values + 4 * u, first + units.row(u), units.unit(u));
    });
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  static constexpr int sample_bytes = shape.sample_bytes();
  static constexpr int at_once = 4;  ///< units of a thread, whose loads do not wait for each other

  /// Units that lanes of a warp write together lie in different banks.
  __device__ static int unit_place(int unit) { return (unit ^ (unit / 8 % 8)) * 16; }

  [[nodiscard]] __device__ std::uint32_t warpgroup_sums(int warpgroup) const {
    return sums_ + warpgroup * args_.cut.rows * sample_bytes;
  }

  /// Some units of a thread, of `count` in all.
  struct Units {
    int first, step, count;

    [[nodiscard]] __device__ bool is_there(int u) const { return first + u * step < count; }
    [[nodiscard]] __device__ int row(int u) const { return (first + u * step) / of_a_row; }
    [[nodiscard]] __device__ int unit(int u) const { return (first + u * step) % of_a_row; }
    [[nodiscard]] __device__ int place(int u) const { return row(u) * sample_bytes + unit_place(unit(u)); }

    __device__ void add(float (&values)[4 * at_once], std::uint32_t from) const {
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const uint4 part = is_there(u) ? ptx::load_shared_16(from + place(u)) : uint4{0, 0, 0, 0};
        values[4 * u] += __uint_as_float(part.x), values[4 * u + 1] += __uint_as_float(part.y);
        values[4 * u + 2] += __uint_as_float(part.z), values[4 * u + 3] += __uint_as_float(part.w);
      }
    }
  };
  static constexpr int of_a_row = block_j * outputs / 4;

  /// Shares the units of so many rows out to the threads that multiply.
  template <class Body>
  __device__ void for_units(int rows, Body&& body) const {
    const int threads = args_.cut.threads();
#pragma unroll 1
    for (int first = threadIdx.x; first < rows * of_a_row; first += at_once * threads)
      body(Units{first, threads, rows * of_a_row});
  }

  /// The first feature of a unit. All j of an output, and so of neighbouring outputs, are neighbours; some of
  /// more are so among themselves.
  [[nodiscard]] __device__ std::int64_t feature_of(int unit) const {
    return (place_.i * args_.b + place_.k + unit * 4 / block_j) * args_.d + place_.j + unit * 4 % block_j;
  }
  /// How many of its features exist; none where it is below 1.
  [[nodiscard]] __device__ int features_of(int unit) const {
    return static_cast<int>(
        min((args_.b - place_.k - unit * 4 / block_j) * args_.d - unit * 4 % block_j, std::int64_t{4}));
  }

  __device__ void add_bias(float* four, int unit) const {
    const T* from = static_cast<const T*>(args_.bias) + feature_of(unit);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (e < features_of(unit)) four[e] += static_cast<float>(__ldcg(from + e));
  }

  __device__ void store(const float* four, int sample, int unit) const {
    T* const to = static_cast<T*>(args_.y) + sample * args_.y_sample + feature_of(unit);
    const int there = features_of(unit);
    const T rounded[4] = {static_cast<T>(four[0]), static_cast<T>(four[1]), static_cast<T>(four[2]),
                          static_cast<T>(four[3])};
    if (args_.y_vectors && there > 0) {
      uint2 vector;
      memcpy(&vector, rounded, sizeof(vector));
      *reinterpret_cast<uint2*>(to) = vector;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (e < there) to[e] = rounded[e];
    }
  }

  const Arguments& args_;
  const BlockPlace& place_;
  std::uint32_t sums_, received_;
  int share_rows_;
};

#endif

}  // namespace kronsparse::cuda::narrow
