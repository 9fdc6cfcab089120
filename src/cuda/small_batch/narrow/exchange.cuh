// The small-batch kernel `narrow`: two blocks that split l add up their sums, from registers to y.
//
// A lane has sums of two samples, 8 apart. Each block ends up with one of them and sends the sums of the
// other away. So the first warpgroup, the keeper, collects one half of the block's sums, and the second, the
// sender, collects the other half. Warpgroups lend each other the half that they do not collect. Nothing is
// sorted on the way: lanes with the same number have the same samples and outputs in every warpgroup and in
// both blocks, and a lane ends up with neighbours in y. (More than two blocks, whose shares are not halves,
// exchange rows of samples: store.cuh.)
//
// Sending takes longest, at some 20 bytes per clock. So the sender sends before it lends, and sends a piece
// as soon as it is added up; the keeper stores one piece while the next is on its way.
#pragma once

#include <type_traits>

#include "cuda/device/epilogue.cuh"
#include "cuda/small_batch/narrow/tiles.cuh"

namespace kronsparse::cuda::narrow {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Which of a lane's two samples its first sums belong to: the one that the block keeps, so that both blocks
/// run the same code. If wgmma reads x itself, the order is fixed.
template <int block_j>
__device__ inline int first_half(const Arguments& args, const BlockPlace& place) {
  return block_j > 1 && args.cut.exchanges() ? place.rank : 0;
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
        base_(base),
        received_(base + layout.received + warp_ * shape.warp_half_bytes() + lane() * 16),
        lent_(lent_place(0)),
        received_barriers_(stages.received),
        lending_barriers_(stages.lending) {}

  /// The place in y of the lane's first output. `there` counts the block's outputs that exist from that one
  /// on, for the lane's sample.
  [[nodiscard]] __device__ YPlace<T> y_place(const BlockPlace& place) const {
    const int k = place.k + lane() % 4 * 2;
    const std::int64_t there = max(min(args_.b - k, std::int64_t{outputs}), std::int64_t{0});
    return {
        static_cast<T*>(args_.y) + sample() * args_.y_sample + (place.i * args_.b + k) * args_.d + place.j,
        sample() < args_.batch ? static_cast<int>(there) : 0};
  }

  /// Called by all warpgroups, after their products.
  __device__ void run(Sums& sums, const YPlace<T>& to) const {
    if (warp_ * 16 >= args_.cut.rows) {  // these warps have no samples, in any warpgroup and in both blocks
      if (args_.cut.warpgroups > 1) products_are_done<false>(warpgroup_);
      return;
    }
    if constexpr (block_j > 1) {
      share_out<0>(sums, to);
    } else {
      if (rank_ == 0)
        share_out<0>(sums, to);
      else
        share_out<1>(sums, to);
    }
  }

 private:
  static constexpr Shape shape{block_j, outputs};
  static constexpr int half_sums = shape.half_sums(), piece_sums = shape.piece_sums();
  static constexpr int pieces = shape.pieces();
  static constexpr bool has_others = shape.max_warpgroups() > 2;  ///< warpgroups beside the keeper and the
                                                                  ///< sender

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// The sample that the lane ends up with.
  [[nodiscard]] __device__ int sample() const { return warp_ * 16 + lane() / 4 + 8 * rank_; }
  [[nodiscard]] __device__ std::uint32_t lent_place(int half) const {
    return base_ + args_.lending.places[half][warp_] + lane() * 8;
  }
  [[nodiscard]] __device__ std::uint32_t of_warpgroup(int warpgroup) const {
    return warpgroup * args_.lending.lender_bytes;
  }

  [[nodiscard]] __device__ std::uint32_t lending_barrier(int four, int number) const {
    return lending_barriers_ + (four * 4 + number) * 8;
  }

  /// Waits or signals that the products that read these stages are done, those of one warpgroup or of all;
  /// only then may sums be lent there. The numbers of barriers are constants: for a variable the compiler
  /// would reserve all barriers.
  template <bool waits>
  __device__ void products_are_done(int warpgroup) const {
    const auto meet = [&](int number) {
      if constexpr (waits)
        ptx::barrier_of(number, args_.lending.done_threads);
      else
        ptx::barrier_signal(number, args_.lending.done_threads);
    };
    if constexpr (for_racecheck) {
      const std::uint32_t barrier = lending_barrier(2, lends_in_own_stages() ? warpgroup : 0);
      ptx::barrier_arrive(barrier);
      if (waits) ptx::barrier_wait(barrier, 0);
    } else if (!lends_in_own_stages())
      meet(sums_are_there);
    else if (warpgroup == 0)
      meet(own_products_are_done);
    else if (!has_others || warpgroup == 1)
      meet(own_products_are_done + 1);
    else if (warpgroup == 2)
      meet(own_products_are_done + 2);
    else
      meet(own_products_are_done + 3);
  }
  [[nodiscard]] __device__ bool lends_in_own_stages() const { return args_.lending.done_threads == 128; }

  /// Signals that this thread's sums are lent, to the warpgroup that waits at barrier `number`.
  template <int number>
  __device__ void tell() const {
    if constexpr (for_racecheck)
      ptx::barrier_arrive(lending_barrier(number == lent_to_keeper, warp_));
    else
      ptx::barrier_signal(number, args_.lending.meeting_threads);
  }
  template <int number>
  __device__ void wait_for_lent() const {
    if constexpr (for_racecheck)
      ptx::barrier_wait(lending_barrier(number == lent_to_keeper, warp_), 0);
    else
      ptx::barrier_of(number, args_.lending.meeting_threads);
  }

  /// Adds up sums in the order of warpgroups and of blocks, whoever does it (the first two may change
  /// places). So results do not depend on who is ready first.
  ///
  /// Nobody waits for the other block at the end. The other block stores into this one what the keeper here
  /// waits for, so this block is still there. The other block reads nothing from here, and the sums under way
  /// to it have already left the registers.
  template <int kept>
  __device__ void share_out(Sums& sums, const YPlace<T>& to) const {
    constexpr int sent = 1 - kept;
    const int warpgroups = args_.cut.warpgroups;
    if (warpgroup_ == 0) {
      if (warpgroups == 1) {
        for_pieces([&](int piece) { send<sent>(sums, piece); });
      } else {
        products_are_done<true>(0);
        lend<sent>(sums, lent_);
        tell<lent_to_sender>();
        wait_for_lent<lent_to_keeper>();
        for_pieces([&](int piece) { add_lent<kept>(sums, lent_ + of_warpgroup(1), piece); });
        add_of_others<kept>(sums, 1);
      }
      if (args_.y_direct && args_.bias == nullptr)
        receive_and_store<kept, false>(sums, to);
      else if (args_.y_direct)
        receive_and_store<kept, true>(sums, to);
      else
        receive_and_activate<kept>(sums, to);
    } else if (!has_others || warpgroup_ == 1) {
      // It lends only after everything is sent.
      if (!lends_in_own_stages()) products_are_done<false>(1);
      wait_for_lent<lent_to_sender>();
      if (!has_others || warpgroups == 2) {
        for_pieces([&](int piece) {
          add_lent<sent>(sums, lent_, piece);
          send<sent>(sums, piece);
        });
      } else {
        for_pieces([&](int piece) { add_lent<sent>(sums, lent_, piece); });
        add_of_others<sent>(sums, 0);
        for_pieces([&](int piece) { send<sent>(sums, piece); });
      }
      if (lends_in_own_stages()) products_are_done<true>(1);
      lend<kept>(sums, lent_ + of_warpgroup(1));
      tell<lent_to_keeper>();
    } else {
      products_are_done<true>(warpgroup_);
      lend<sent>(sums, lent_ + of_warpgroup(warpgroup_));
      tell<lent_to_sender>();
      lend<kept>(sums, lent_place(1) + of_warpgroup(warpgroup_));
      tell<lent_to_keeper>();
    }
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

  template <int h>
  __device__ static void lend(Sums& sums, std::uint32_t to) {
#pragma unroll
    for (int pair = 0; pair < half_sums / 2; ++pair) {
      const float* two = pair_of<h>(sums, pair);
      ptx::store_shared_floats(to + pair * 256, two[0], two[1]);
    }
  }
  /// All loads are issued before the first is used.
  template <int h>
  __device__ static void add_lent(Sums& sums, std::uint32_t from, int piece) {
    constexpr int pairs = piece_sums / 2;
    uint2 parts[pairs];
#pragma unroll
    for (int at = 0; at < pairs; ++at) parts[at] = ptx::load_shared_8(from + (piece * pairs + at) * 256);
#pragma unroll
    for (int at = 0; at < pairs; ++at) {
      float* two = pair_of<h>(sums, piece * pairs + at);
      two[0] += __uint_as_float(parts[at].x), two[1] += __uint_as_float(parts[at].y);
    }
  }
  /// The same for the third and the fourth warpgroup, which lend both halves.
  template <int h>
  __device__ void add_of_others(Sums& sums, int half) const {
    if constexpr (has_others)
#pragma unroll 1
      for (int w = 2; w < args_.cut.warpgroups; ++w)
        for_pieces([&](int piece) { add_lent<h>(sums, lent_place(half) + of_warpgroup(w), piece); });
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
  [[nodiscard]] __device__ std::int64_t distance(int number) const {
    const std::int64_t d = block_j < 8 ? block_j : args_.d;  // if a block has some of more j, block_j is at
                                                             // least 8
    return output_of(number) * d + number % block_j;
  }
  /// The number of the lane's first feature.
  [[nodiscard]] __device__ std::int64_t feature(const YPlace<T>& to) const {
    return to.y - static_cast<const T*>(args_.y) - sample() * args_.y_sample;
  }
  [[nodiscard]] __device__ static bool is_pair(int first) { return first + 4 > half_sums; }
  [[nodiscard]] __device__ static std::uint32_t place(std::uint32_t all, int first) {
    return all + first * 128 - (is_pair(first) ? lane() * 8 : 0);
  }

  /// Calls body(number of the first sum) for each four of a piece.
  template <class Body>
  __device__ static void for_fours(int piece, Body&& body) {
#pragma unroll
    for (int at = 0; at < piece_sums; at += 4) body(piece * piece_sums + at);
  }

  template <int h>
  __device__ void send(Sums& sums, int piece) const {
    const std::uint32_t to = ptx::cluster_address(received_, rank_ ^ 1);
    const std::uint32_t barrier = ptx::cluster_address(received_barriers_ + piece * 8, rank_ ^ 1);
    for_fours(piece, [&](int first) {
      const auto sum = [&](int e) { return sum_of(sums, h, first + e); };
      if (is_pair(first))
        ptx::store_async_floats(place(to, first), sum(0), sum(1), barrier);
      else
        ptx::store_async_floats(place(to, first), sum(0), sum(1), sum(2), sum(3), barrier);
    });
  }

  /// Adds a piece that the other block has sent.
  template <int h>
  __device__ void receive(Sums& sums, int piece) const {
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
    if (!is_pair(first)) return ptx::load_shared_16(place(received_, first));
    const uint2 pair = ptx::load_shared_8(place(received_, first));
    return {pair.x, pair.y, 0, 0};
  }

  /// Rounds sums as they are received, and stores them.
  template <int h, bool has_bias>
  __device__ void receive_and_store(Sums& sums, const YPlace<T>& to) const {
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

  /// Activations need more code. So each lane puts its sums back to where they were received, and takes them
  /// from there through a loop.
  template <int h>
  __device__ void receive_and_activate(Sums& sums, const YPlace<T>& to) const {
    float bias[half_sums];
#pragma unroll
    for (int number = 0; number < half_sums; ++number) {
      bias[number] = -0.0f;  // adding it changes no sum
      if (args_.bias != nullptr && output_of(number) < to.there)
        bias[number] =
            static_cast<float>(__ldcg(static_cast<const T*>(args_.bias) + feature(to) + distance(number)));
    }
    for_pieces([&](int piece) {
      receive<h>(sums, piece);
      for_fours(piece, [&](int first) {
        const auto sum = [&](int e) { return sum_of(sums, h, first + e) + bias[first + e]; };
        if (is_pair(first))
          ptx::store_shared_floats(place(received_, first), sum(0), sum(1));
        else
          ptx::store_shared_floats(place(received_, first), sum(0), sum(1), sum(2), sum(3));
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
        const uint2 pair = ptx::load_shared_8(place(received_, first / 4 * 4) + first % 4 * 4);
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
  std::uint32_t base_;
  std::uint32_t received_;  ///< the lane's place among received sums
  std::uint32_t lent_;      ///< the place that the same lane of the first warpgroup lends in
  std::uint32_t received_barriers_;
  std::uint32_t lending_barriers_;  ///< for racecheck
};

#endif

}  // namespace kronsparse::cuda::narrow
