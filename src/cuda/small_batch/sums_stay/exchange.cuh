// The small-batch kernel `sums-stay`: partial sums are added up, from registers to y.
//
// Two warpgroups, two blocks of a cluster, or both have parts of all sums. A lane has sums of two samples, 8
// apart: two halves. Each warpgroup collects one half from the other and lends it the other half. Where two
// blocks split l, the first warpgroup of a block then keeps its half, and the second sends its own to the
// other block; a single warpgroup keeps one half and sends the other. Nothing is sorted on the way: lanes
// with the same number have the same samples and outputs in every warpgroup and in both blocks, and a lane
// ends up with neighbours in y.
//
// Sending takes longest, at some 20 bytes per clock. So the second warpgroup sends before it lends, and sends
// a piece as soon as it is added up; the first stores one piece while the next is on its way.
#pragma once

#include <type_traits>

#include "cuda/device/epilogue.cuh"
#include "cuda/small_batch/sums_stay/tiles.cuh"

namespace kronsparse::cuda::sums_stay {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Which of a lane's two samples a warpgroup collects.
__device__ inline int half_of(const BlockPlace& place, int warpgroup) { return place.rank ^ warpgroup; }
/// Which of them its first sums belong to: the one that it collects, so that all run the same code. If wgmma
/// reads x itself, the order is fixed.
template <int block_j>
__device__ inline int first_half(const BlockPlace& place, int warpgroup) {
  return block_j > 1 ? half_of(place, warpgroup) : 0;
}

/// Half h of a lane's sums. In the wgmma accumulator of one j, outputs 8q + 2·(lane%4) + e are sums[4q + 2h +
/// e]. Numbers of sums count as in y: (2q + e)·block_j + j.
template <class T, int block_j, int outputs>
class SumExchange {
 public:
  using Sums = float[block_j][outputs / 2];  // (j, sums of a lane)

  /// Computes everything that does not depend on sums, while nobody waits for it.
  __device__ SumExchange(const Arguments& args, const BlockPlace& place, const SharedLayout& layout,
                         const Stages& stages, std::uint32_t base, int warp)
      : args_(args),
        rank_(place.rank),
        warpgroup_(warp / 4),
        warp_(warp % 4),
        half_(half_of(place, warpgroup_)),
        lent_(base + args.lending.places[warp_] + lane() * 8),
        collected_(args.cut.splits > 1
                       ? base + layout.received + warp_ * shape.warp_half_bytes()
                       : base + args.lending.places[warp_] + (1 - warpgroup_) * args.lending.second),
        received_barriers_(stages.received),
        lending_barriers_(stages.lending) {}

  /// The place in y of the lane's first output. `there` counts the block's outputs that exist from that one
  /// on, for the lane's sample.
  [[nodiscard]] __device__ YPlace<T> y_place(const BlockPlace& place) const {
    const int k = place.k + lane() % 4 * 2;
    const std::int64_t there = max(min(args_.b - k, std::int64_t{outputs}), std::int64_t{0});
    return {static_cast<T*>(args_.y) + sample() * args_.y_sample + (place.i * args_.b + k) * block_j,
            sample() < args_.batch ? static_cast<int>(there) : 0};
  }

  /// Called by all warpgroups, after their products.
  __device__ void run(Sums& sums, const YPlace<T>& to) const {
    if (warp_ * 16 >= args_.cut.rows) {  // these warps have no samples, in any warpgroup and in both blocks
      if (args_.cut.warpgroups > 1) products_are_done<false>();
      return;
    }
    if constexpr (block_j > 1) {
      add_up<0>(sums, to);
    } else {
      if (half_ == 0)
        add_up<0>(sums, to);
      else
        add_up<1>(sums, to);
    }
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  static constexpr int half_sums = shape.half_sums(), piece_sums = shape.piece_sums();
  static constexpr int pieces = shape.pieces();

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// The sample that the lane ends up with.
  [[nodiscard]] __device__ int sample() const { return warp_ * 16 + lane() / 4 + 8 * half_; }
  /// Places among lent sums: the lane's own, and that of the same lane of the other warpgroup.
  [[nodiscard]] __device__ std::uint32_t own_place() const {
    return lent_ + warpgroup_ * args_.lending.second;
  }
  [[nodiscard]] __device__ std::uint32_t others_place() const {
    return lent_ + (1 - warpgroup_) * args_.lending.second;
  }

  /// Waits or signals that the warpgroup's products are done, which read the stages where it lends. The
  /// numbers of barriers are constants: for a variable the compiler would reserve all barriers.
  template <bool waits>
  __device__ void products_are_done() const {
    const auto meet = [](int number) {
      if constexpr (waits)
        ptx::barrier_of(number, 128);
      else
        ptx::barrier_signal(number, 128);
    };
    if constexpr (for_racecheck) {
      const std::uint32_t barrier = lending_barriers_ + (8 + warpgroup_) * 8;
      ptx::barrier_arrive(barrier);
      if (waits) ptx::barrier_wait(barrier, 0);
    } else if (warpgroup_ == 0) {
      meet(first_is_done);
    } else {
      meet(second_is_done);
    }
  }

  /// Signals that this thread's sums are lent, to the warpgroup that waits at barrier `number`.
  template <int number>
  __device__ void tell() const {
    if constexpr (for_racecheck)
      ptx::barrier_arrive(lending_barrier<number>());
    else
      ptx::barrier_signal(number, args_.lending.meeting_threads);
  }
  template <int number>
  __device__ void wait_for_lent() const {
    if constexpr (for_racecheck)
      ptx::barrier_wait(lending_barrier<number>(), 0);
    else
      ptx::barrier_of(number, args_.lending.meeting_threads);
  }
  template <int number>
  [[nodiscard]] __device__ std::uint32_t lending_barrier() const {
    return lending_barriers_ + ((number == lent_to_second) * 4 + warp_) * 8;
  }

  /// Every sum is one addition of two warpgroups and one of two blocks, so results do not depend on who is
  /// ready first.
  ///
  /// Nobody waits for the other block at the end. The other block stores into this one what the first
  /// warpgroup here waits for, so this block is still there. The other block reads nothing from here, and the
  /// sums under way to it have already left the registers.
  template <int kept>
  __device__ void add_up(Sums& sums, const YPlace<T>& to) const {
    constexpr int other = 1 - kept;
    if (args_.cut.warpgroups == 1) {
      for_pieces([&](int piece) { send<other>(sums, piece); });
    } else if (warpgroup_ == 0) {
      lend<other, lent_to_second>(sums);
      wait_for_lent<lent_to_first>();
      for_pieces([&](int piece) { add_lent<kept>(sums, piece); });
    } else if (args_.cut.splits > 1) {
      wait_for_lent<lent_to_second>();
      for_pieces([&](int piece) {
        add_lent<kept>(sums, piece);
        send<kept>(sums, piece);
      });
      lend<other, lent_to_first>(sums);
      return;
    } else {
      lend<other, lent_to_first>(sums);
      wait_for_lent<lent_to_second>();
      for_pieces([&](int piece) { add_lent<kept>(sums, piece); });
    }
    if (args_.y_direct && args_.bias == nullptr)
      round_and_store<kept, false>(sums, to);
    else if (args_.y_direct)
      round_and_store<kept, true>(sums, to);
    else
      activate_and_store<kept>(sums, to);
  }

  template <class Body>
  __device__ static void for_pieces(Body&& body) {
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) body(piece);
  }

  // Sums are lent in pairs, of two outputs and one j, which are neighbours among registers:
  // [warp][pair][lane]. (Vectors of four would have to be assembled first.)
  template <int h>
  [[nodiscard]] __device__ static float* pair_of(Sums& sums, int pair) {
    return sums[pair % block_j] + pair / block_j * 4 + 2 * h;
  }

  template <int h, int number>
  __device__ void lend(Sums& sums) const {
    products_are_done<true>();
    const std::uint32_t to = own_place();
#pragma unroll
    for (int pair = 0; pair < half_sums / 2; ++pair) {
      const float* two = pair_of<h>(sums, pair);
      ptx::store_shared_floats(to + pair * 256, two[0], two[1]);
    }
    tell<number>();
  }
  /// All loads are issued before the first is used.
  template <int h>
  __device__ void add_lent(Sums& sums, int piece) const {
    constexpr int pairs = piece_sums / 2;
    const std::uint32_t from = others_place();
    uint2 parts[pairs];
#pragma unroll
    for (int at = 0; at < pairs; ++at) parts[at] = ptx::load_shared_8(from + (piece * pairs + at) * 256);
#pragma unroll
    for (int at = 0; at < pairs; ++at) {
      float* two = pair_of<h>(sums, piece * pairs + at);
      two[0] += __uint_as_float(parts[at].x), two[1] += __uint_as_float(parts[at].y);
    }
  }

  // Sums are sent in fours, in the order of y: [warp][four][lane]. If two are left over, these lie closer
  // together.
  [[nodiscard]] __device__ static float& sum_of(Sums& sums, int h, int number) {
    return sums[number % block_j][number / (2 * block_j) * 4 + 2 * h + number / block_j % 2];
  }
  /// The output of a sum, counted from the lane's first.
  [[nodiscard]] __device__ static int output_of(int number) {
    return number / (2 * block_j) * 8 + number / block_j % 2;
  }
  /// The distance in y, in features, from the lane's first sum.
  [[nodiscard]] __device__ static int distance(int number) {
    return output_of(number) * block_j + number % block_j;
  }
  /// The number of the lane's first feature.
  [[nodiscard]] __device__ std::int64_t feature(const YPlace<T>& to) const {
    return to.y - static_cast<const T*>(args_.y) - sample() * args_.y_sample;
  }
  [[nodiscard]] __device__ static bool is_pair(int first) { return first + 4 > half_sums; }
  [[nodiscard]] __device__ static std::uint32_t place(std::uint32_t all, int first) {
    return all + first * 128 + lane() * (is_pair(first) ? 8 : 16);
  }

  /// Calls body(number of the first sum) for each four of a piece.
  template <class Body>
  __device__ static void for_fours(int piece, Body&& body) {
#pragma unroll
    for (int at = 0; at < piece_sums; at += 4) body(piece * piece_sums + at);
  }

  template <int h>
  __device__ void send(Sums& sums, int piece) const {
    const std::uint32_t to = ptx::cluster_address(collected_, rank_ ^ 1);
    const std::uint32_t barrier = ptx::cluster_address(received_barriers_ + piece * 8, rank_ ^ 1);
    for_fours(piece, [&](int first) {
      const auto sum = [&](int e) { return sum_of(sums, h, first + e); };
      if (is_pair(first))
        ptx::store_async_floats(place(to, first), sum(0), sum(1), barrier);
      else
        ptx::store_async_floats(place(to, first), sum(0), sum(1), sum(2), sum(3), barrier);
    });
  }

  /// Adds a piece that the other block has sent, if there is one.
  template <int h>
  __device__ void receive(Sums& sums, int piece) const {
    if (args_.cut.splits == 1) return;
    uint4 parts[(piece_sums + 3) / 4];
    const auto part = [&](int first) -> uint4& { return parts[first % piece_sums / 4]; };
    ptx::barrier_wait(received_barriers_ + piece * 8, 0);
    for_fours(piece, [&](int first) { part(first) = load(first); });
    for_fours(piece, [&](int first) {
      sum_of(sums, h, first) += __uint_as_float(part(first).x);
      sum_of(sums, h, first + 1) += __uint_as_float(part(first).y);
      if (is_pair(first)) return;
      sum_of(sums, h, first + 2) += __uint_as_float(part(first).z);
      sum_of(sums, h, first + 3) += __uint_as_float(part(first).w);
    });
  }
  [[nodiscard]] __device__ uint4 load(int first) const {
    if (!is_pair(first)) return ptx::load_shared_16(place(collected_, first));
    const uint2 pair = ptx::load_shared_8(place(collected_, first));
    return {pair.x, pair.y, 0, 0};
  }

  /// Rounds sums as they are complete, and stores them.
  template <int h, bool has_bias>
  __device__ void round_and_store(Sums& sums, const YPlace<T>& to) const {
    constexpr int features = shape.lane_features();
    float bias[half_sums];
    if constexpr (has_bias)
#pragma unroll
      for (int first = 0; first < half_sums; first += features) load_bias(bias + first, first, to);
    for_pieces([&](int piece) {
      receive<h>(sums, piece);
#pragma unroll
      for (int at = 0; at < piece_sums; at += features) {
        const int first = piece * piece_sums + at;
        T rounded[features];
#pragma unroll
        for (int e = 0; e < features; ++e) {
          const float sum = sum_of(sums, h, first + e);
          rounded[e] = static_cast<T>(has_bias ? sum + bias[first + e] : sum);
        }
        std::uint32_t words[features / 2];
        memcpy(words, rounded, sizeof(words));
        ptx::store_words_if(output_of(first) < to.there, to.y + distance(first), words);
      }
    });
  }
  /// Loads the bias for one vector of y. For outputs that do not exist it reads another place.
  __device__ void load_bias(float* bias, int first, const YPlace<T>& to) const {
    constexpr int features = shape.lane_features();
    using Vector =
        std::conditional_t<features == 8, uint4, std::conditional_t<features == 4, uint2, unsigned>>;
    const std::int64_t at = output_of(first) < to.there ? feature(to) + distance(first) : 0;
    const Vector vector = __ldcg(reinterpret_cast<const Vector*>(static_cast<const T*>(args_.bias) + at));
    T values[features];
    memcpy(values, &vector, sizeof(values));
#pragma unroll
    for (int e = 0; e < features; ++e) bias[e] = static_cast<float>(values[e]);
  }

  /// Activations need more code. So each lane puts its sums back to where they were collected, and takes them
  /// from there through a loop.
  template <int h>
  __device__ void activate_and_store(Sums& sums, const YPlace<T>& to) const {
    float bias[half_sums];
#pragma unroll
    for (int number = 0; number < half_sums; ++number) {
      bias[number] = -0.0f;  // adding it changes no sum
      if (args_.bias != nullptr && output_of(number) < to.there)
        bias[number] =
            static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature(to) + distance(number)));
    }
    __syncwarp();  // lanes have read lent sums, which lie in another order
    for_pieces([&](int piece) {
      receive<h>(sums, piece);
      for_fours(piece, [&](int first) {
        const auto sum = [&](int e) { return sum_of(sums, h, first + e) + bias[first + e]; };
        if (is_pair(first))
          ptx::store_shared_floats(place(collected_, first), sum(0), sum(1));
        else
          ptx::store_shared_floats(place(collected_, first), sum(0), sum(1), sum(2), sum(3));
      });
    });
    constexpr int count = block_j == 1 ? 2 : 4;  // neighbours in y
#pragma unroll 1
    for (int first = 0; first < half_sums; first += count) {
      float values[count];
      if constexpr (count == 4) {
        const uint4 four = load(first);
        values[0] = __uint_as_float(four.x), values[1] = __uint_as_float(four.y);
        values[2] = __uint_as_float(four.z), values[3] = __uint_as_float(four.w);
      } else {
        const uint2 pair = ptx::load_shared_8(place(collected_, first / 4 * 4) + first % 4 * 4);
        values[0] = __uint_as_float(pair.x), values[1] = __uint_as_float(pair.y);
      }
      activate_all(values, args_.activation);
      store(to.y + distance(first), values, to.there - output_of(first));
    }
  }
  template <int count>
  __device__ void store(T* to, const float (&values)[count], int outputs_left) const {
    if (outputs_left <= 0) return;
    T rounded[count];
#pragma unroll
    for (int e = 0; e < count; ++e) rounded[e] = static_cast<T>(values[e]);
    if (args_.y_vectors) {
      std::uint32_t words[count / 2];
      memcpy(words, rounded, sizeof(words));
      ptx::store_words(to, words);
    } else {
#pragma unroll
      for (int e = 0; e < count; ++e)
        if (e < outputs_left * block_j) to[e] = rounded[e];
    }
  }

  const Arguments& args_;
  int rank_, warpgroup_, warp_;
  int half_;                 ///< the half that the warpgroup collects
  std::uint32_t lent_;       ///< the lane's place among the sums that the first warpgroup lends
  std::uint32_t collected_;  ///< the warp's place among received sums, or else among those lent to it
  std::uint32_t received_barriers_;
  std::uint32_t lending_barriers_;  ///< for racecheck
};

#endif

}  // namespace kronsparse::cuda::sums_stay
