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
      : args_(args), place_(place), sums_(base), received_(base + layout.received) {}

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
    for_units(args_.cut.rows, [&](int row, int unit) {
      const std::uint32_t to = sums_ + row * sample_bytes + unit_place(unit);
      float four[4] = {};
      for (int w = 0; w < args_.cut.warpgroups; ++w) add(four, to + w * args_.cut.rows * sample_bytes);
      ptx::store_shared_floats(to, four[0], four[1], four[2], four[3]);
    });
  }

  /// To each other block of the cluster the samples that it adds up. One thread for each.
  __device__ void send(std::uint32_t barrier) const {
    const auto to = static_cast<int>(threadIdx.x);
    if (to >= args_.cut.splits || to == place_.rank) return;
    const int bytes = args_.cut.share_bytes();
    ptx::copy_bulk_to_cluster(ptx::cluster_address(received_ + place_.rank * bytes, to), sums_ + to * bytes,
                              bytes, ptx::cluster_address(barrier, to));
  }

  /// Adds up what warpgroups have, or blocks of the cluster, in their order: results of this block to y.
  __device__ void finish() const {
    const Cut& cut = args_.cut;
    const int first = place_.rank * cut.share_rows();
    const int there = min(args_.batch - first, cut.share_rows());
    for_units(there, [&](int row, int unit) {
      const int at = row * sample_bytes + unit_place(unit);
      float four[4] = {};
      if (cut.splits == 1)
        for (int w = 0; w < cut.warpgroups; ++w) add(four, sums_ + w * cut.rows * sample_bytes + at);
      else
        for (int rank = 0; rank < cut.splits; ++rank)
          add(four, (rank == place_.rank ? sums_ : received_) + rank * cut.share_bytes() + at);
      store(four, first + row, unit);
    });
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  static constexpr int sample_bytes = shape.sample_bytes();

  /// Units that lanes of a warp write together lie in different banks.
  __device__ static int unit_place(int unit) { return (unit ^ (unit / 8 % 8)) * 16; }

  __device__ static void add(float (&to)[4], std::uint32_t from) {
    const uint4 part = ptx::load_shared_16(from);
    to[0] += __uint_as_float(part.x), to[1] += __uint_as_float(part.y);
    to[2] += __uint_as_float(part.z), to[3] += __uint_as_float(part.w);
  }

  /// Shares the units of so many rows out to the threads that multiply.
  template <class Body>
  __device__ void for_units(int rows, Body&& body) const {
    constexpr int units = block_j * outputs / 4;
#pragma unroll 1
    for (int at = threadIdx.x; at < rows * units; at += args_.cut.threads()) body(at / units, at % units);
  }

  __device__ void store(float (&four)[4], int sample, int unit) const {
    // All j of an output, and so of neighbouring outputs, are neighbours; 16 of more are so among themselves.
    const int k = place_.k + unit * 4 / block_j, j = unit * 4 % block_j;
    const std::int64_t feature = (place_.i * args_.b + k) * args_.d + place_.j + j;
    const auto there = static_cast<int>(min((args_.b - k) * args_.d - j, std::int64_t{4}));
    if (there <= 0) return;
    if (args_.bias != nullptr)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (e < there) four[e] += static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature + e));
    activate_all(four, args_.activation);
    T* const to = static_cast<T*>(args_.y) + sample * args_.y_sample + feature;
    const T rounded[4] = {static_cast<T>(four[0]), static_cast<T>(four[1]), static_cast<T>(four[2]),
                          static_cast<T>(four[3])};
    if (args_.y_vectors) {
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
};

#endif

}  // namespace kronsparse::cuda::narrow
