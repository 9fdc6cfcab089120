// The small-batch kernel `narrow`: sums of warpgroups and of blocks on their way to y.
#pragma once

#include "cuda/device/epilogue.cuh"
#include "cuda/small_batch/narrow/tiles.cuh"

namespace kronsparse::cuda::narrow {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Sums lie in shared memory as rows of samples, [sample][output][j], in units of 4. In the wgmma accumulator
/// of one j, sample 16·warp + lane/4 + 8h and outputs 8q + 2·(lane%4) + e are sums[4q + 2h + e].
template <class T, int block_j, int outputs>
class SumStore {
 public:
  using Sums = float[block_j][outputs / 2];  // (j, sums of a lane)

  /// Computes everything that does not depend on sums, which is nearly all, while nobody waits for it.
  __device__ SumStore(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                      std::uint32_t base)
      : args_(args),
        rank_(place.rank),
        sums_(base),
        received_(base + layout.received),
        share_rows_(args.cut.share_rows()),
        first_row_(static_cast<int>(threadIdx.x) / of_a_row),
        row_step_(args.cut.threads() / of_a_row),
        unit_at_(unit_place(own_unit())) {}

  /// The place in y of the thread's unit in its first row, and how many of its features exist.
  [[nodiscard]] __device__ YPlace<T> y_place(const BlockPlace& place) const {
    // If the block has all j, neighbouring outputs are contiguous in y; else only its j of one output are.
    const int k = place.k + own_unit() * 4 / block_j, j = own_unit() * 4 % block_j;
    return {static_cast<T*>(args_.y) + first_sample() * args_.y_sample + (place.i * args_.b + k) * args_.d +
                place.j + j,
            static_cast<int>(max(min((args_.b - k) * args_.d - j, std::int64_t{4}), std::int64_t{0}))};
  }

  /// Called by each warpgroup, which writes to rows of its own.
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

  /// Called by every warpgroup but the first, which adds these sums to its own. They stay in the order of
  /// lanes.
  __device__ void lend(const Sums& sums, int warpgroup) const {
    for_fours([&](int j, int at, int four) {
      ptx::store_shared_floats(lent(warpgroup, four), sums[j][at], sums[j][at + 1], sums[j][at + 2],
                               sums[j][at + 3]);
    });
  }
  /// Called by the first warpgroup.
  __device__ void add_lent(Sums& sums) const {
#pragma unroll 1
    for (int w = 1; w < args_.cut.warpgroups; ++w)
      for_fours([&](int j, int at, int four) {
        const uint4 part = ptx::load_shared_16(lent(w, four));
        sums[j][at] += __uint_as_float(part.x), sums[j][at + 1] += __uint_as_float(part.y);
        sums[j][at + 2] += __uint_as_float(part.z), sums[j][at + 3] += __uint_as_float(part.w);
      });
  }

  /// Sends to each other block of the cluster the samples that it adds up. One thread sends to one block.
  __device__ void send(std::uint32_t barrier) const {
    const auto to = static_cast<int>(threadIdx.x);
    if (to >= args_.cut.splits || to == rank_) return;
    const int bytes = share_rows_ * sample_bytes;
    ptx::copy_bulk_to_cluster(ptx::cluster_address(received_ + rank_ * bytes, to), sums_ + to * bytes, bytes,
                              ptx::cluster_address(barrier, to));
  }

  /// Adds up the sums of the warpgroups, or of the blocks of the cluster, in order, and stores this block's
  /// results to y.
  __device__ void finish(const YPlace<T>& to) const {
    const Cut& cut = args_.cut;
    if (to.there == 0) return;
    const int count = min(args_.batch - rank_ * share_rows_, share_rows_);
    const auto store_rows = [&]<bool plain>() {
      float bias[4] = {};
      if (!plain && args_.bias != nullptr) {
        const std::int64_t feature = to.y - static_cast<const T*>(args_.y) - first_sample() * args_.y_sample;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (e < to.there)
            bias[e] = static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature + e));
      }
      T* y = to.y;
      for_rows(count, [&](const Rows& rows) {
        float values[4 * at_once] = {};
        if (cut.splits == 1)
          for (int w = 0; w < cut.warpgroups; ++w) rows.add(values, warpgroup_sums(w));
        else
          for (int rank = 0; rank < cut.splits; ++rank)
            rows.add(values, (rank == rank_ ? sums_ : received_) + rank * share_rows_ * sample_bytes);
        if constexpr (!plain) {
          if (args_.bias != nullptr)
#pragma unroll
            for (int v = 0; v < 4 * at_once; ++v) values[v] += bias[v % 4];
          activate_all(values, args_.activation);
        }
#pragma unroll
        for (int r = 0; r < at_once; ++r, y += row_step_ * args_.y_sample)
          if (rows.is_there(r)) store<plain>(y, values + 4 * r, to.there);
      });
    };
    // Two copies of the code, so that the plain one has no branches for the epilogue.
    if (is_plain(args_))
      store_rows.template operator()<true>();
    else
      store_rows.template operator()<false>();
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  static constexpr int sample_bytes = shape.sample_bytes();
  static constexpr int of_a_row = block_j * outputs / 4;
  static constexpr int at_once = 4;  ///< rows of a thread that are loaded before the first is used

  /// The units that lanes of a warp write together lie in different banks.
  __device__ static int unit_place(int unit) { return (unit ^ (unit / 8 % 8)) * 16; }

  [[nodiscard]] __device__ std::uint32_t warpgroup_sums(int warpgroup) const {
    return sums_ + warpgroup * args_.cut.rows * sample_bytes;
  }

  /// Calls body(j, its first sum, number) for every four sums of a lane.
  template <class Body>
  __device__ static void for_fours(Body&& body) {
#pragma unroll
    for (int four = 0; four < shape.sums() / 4; ++four)
      body(four / (outputs / 8), four % (outputs / 8) * 4, four);
  }
  [[nodiscard]] __device__ std::uint32_t lent(int warpgroup, int four) const {
    return sums_ + args_.cut.rows * sample_bytes + (warpgroup - 1) * shape.lent_bytes() + four * 2048 +
           threadIdx.x % 128 * 16;
  }

  /// Some rows of a thread's unit.
  struct Rows {
    int first, step, count;
    int unit_at;

    [[nodiscard]] __device__ int row(int r) const { return first + r * step; }
    [[nodiscard]] __device__ bool is_there(int r) const { return row(r) < count; }
    [[nodiscard]] __device__ int place(int r) const { return row(r) * sample_bytes + unit_at; }

    __device__ void add(float (&values)[4 * at_once], std::uint32_t from) const {
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        const uint4 part = is_there(r) ? ptx::load_shared_16(from + place(r)) : uint4{0, 0, 0, 0};
        values[4 * r] += __uint_as_float(part.x), values[4 * r + 1] += __uint_as_float(part.y);
        values[4 * r + 2] += __uint_as_float(part.z), values[4 * r + 3] += __uint_as_float(part.w);
      }
    }
  };

  [[nodiscard]] __device__ int first_sample() const { return rank_ * share_rows_ + first_row_; }
  /// Every thread that multiplies keeps one unit for all of its rows, so that little is computed per row.
  [[nodiscard]] __device__ static int own_unit() { return static_cast<int>(threadIdx.x) % of_a_row; }
  template <class Body>
  __device__ void for_rows(int count, Body&& body) const {
    if (first_row_ >= row_step_) return;
#pragma unroll 1
    for (int row = first_row_; row < count; row += at_once * row_step_)
      body(Rows{row, row_step_, count, unit_at_});
  }

  template <bool plain>
  __device__ void store(T* to, const float* four, int there) const {
    const T rounded[4] = {static_cast<T>(four[0]), static_cast<T>(four[1]), static_cast<T>(four[2]),
                          static_cast<T>(four[3])};
    if (plain || args_.y_vectors) {
      std::uint32_t words[2];
      memcpy(words, rounded, sizeof(words));
      ptx::store_words(to, words);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (e < there) to[e] = rounded[e];
    }
  }

  const Arguments& args_;
  int rank_;
  std::uint32_t sums_, received_;
  int share_rows_;
  // For the thread's unit:
  int first_row_, row_step_, unit_at_;
};

#endif

}  // namespace kronsparse::cuda::narrow
