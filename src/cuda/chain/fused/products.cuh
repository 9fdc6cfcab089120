// The products of the kernel `fused`: weights from L2, lines or rows from shared memory, sums to the lines of
// the next product.
#pragma once

#include "cuda/chain/fused/block.cuh"
#include "cuda/device/sums.cuh"
#include "cuda/large_batch/wgmma/weights.cuh"

namespace kronsparse::cuda::fused {

/// A float as a TF32 number and a remainder. Infinities and NaNs have no remainder, and must not meet that of
/// another number: zero times infinity is not zero.
struct Split {
  std::uint32_t high, low, finite_high;
};
__device__ inline Split split(std::uint32_t bits) {
  const std::uint32_t high = tf32_part(bits);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  return {high, is_finite ? __float_as_uint(__uint_as_float(bits) - __uint_as_float(high)) : 0u,
          is_finite ? high : 0u};
}

/// The weights of a warp's items, step by step.
template <class Traits, int tiles>
class WeightReader {
 public:
  /// `items`: their place in shared memory. The warp takes every `warps`th.
  __device__ WeightReader(const Arguments& p, const Step& step, std::uint32_t items, int count,
                          const Lane& at)
      : first_(reinterpret_cast<const uint4*>(p.weights) + at.lane),
        items_(items),
        count_(count),
        stride_(at.warps),
        k_steps_(step.k_steps),
        number_(at.warp) {
    find();
  }

  /// Loads one step of weights: a fragment of each tile. Nothing after the last item.
  __device__ void load(uint4 (&to)[tiles]) {
    if (number_ < count_) {
      to[0] = at_[0];
#pragma unroll
      for (int m = 1; m < tiles; ++m) to[m] = at_[offset_[m]];
    }
    at_ += 32;
    if (++k_ == k_steps_) {
      k_ = 0;
      number_ += stride_;
      find();
    }
  }

 private:
  __device__ void find() {
    if (number_ >= count_) return;
    const uint4 item = ptx::load_shared_16(items_ + number_ / Traits::n_groups * sizeof(Item));
    at_ = first_ + item.x;
    // Tiles that do not exist have the weights of the last one; nobody reads their sums.
    const int last = (static_cast<int>(item.z >> 24) - 1) / 16;
#pragma unroll
    for (int m = 1; m < tiles; ++m) offset_[m] = min(m, last) * k_steps_ * 32;
  }

  const uint4* first_;
  std::uint32_t items_;
  int count_, stride_, k_steps_;
  int number_, k_ = 0;
  const uint4* at_ = nullptr;
  int offset_[tiles];
};

/// Adds the products of one step of terms. `b` are the fragments of 16 samples: two of 8.
template <class Traits, int tiles>
__device__ inline void multiply(Sums<Traits, tiles>& sums, const uint4 (&a)[tiles], int n, const uint4& b) {
  if constexpr (Traits::half) {
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      if constexpr (Traits::arithmetic == Arithmetic::bf16) {
        ptx::mma_bf16(sums[m][n], a[m], b.x, b.y);
        ptx::mma_bf16(sums[m][n + 1], a[m], b.z, b.w);
      } else {
        ptx::mma_f16(sums[m][n], a[m], b.x, b.y);
        ptx::mma_f16(sums[m][n + 1], a[m], b.z, b.w);
      }
    }
  } else if constexpr (Traits::arithmetic == Arithmetic::tf32) {
    const uint4 rounded{ptx::round_to_tf32(b.x), ptx::round_to_tf32(b.y), ptx::round_to_tf32(b.z),
                        ptx::round_to_tf32(b.w)};
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      const uint4 left{ptx::round_to_tf32(a[m].x), ptx::round_to_tf32(a[m].y), ptx::round_to_tf32(a[m].z),
                       ptx::round_to_tf32(a[m].w)};
      ptx::mma_tf32(sums[m][n], left, rounded.x, rounded.y);
      ptx::mma_tf32(sums[m][n + 1], left, rounded.z, rounded.w);
    }
  } else {
    const Split x = split(b.x), y = split(b.y), z = split(b.z), w = split(b.w);
#pragma unroll
    for (int m = 0; m < tiles; ++m) {
      const Split a0 = split(a[m].x), a1 = split(a[m].y), a2 = split(a[m].z), a3 = split(a[m].w);
      const uint4 low{a0.low, a1.low, a2.low, a3.low};
      const uint4 finite{a0.finite_high, a1.finite_high, a2.finite_high, a3.finite_high};
      const uint4 high{a0.high, a1.high, a2.high, a3.high};
      // The tensor core cuts off the last bits of each sum. It adds up these terms alone; plain additions,
      // which round, add them to the others.
      float first[4]{}, second[4]{};
      ptx::mma_tf32(first, low, x.finite_high, y.finite_high);
      ptx::mma_tf32(second, low, z.finite_high, w.finite_high);
      ptx::mma_tf32(first, finite, x.low, y.low);
      ptx::mma_tf32(second, finite, z.low, w.low);
      ptx::mma_tf32(first, high, x.high, y.high);
      ptx::mma_tf32(second, high, z.high, w.high);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[m][n][e] += first[e];
        sums[m][n + 1][e] += second[e];
      }
    }
  }
}

/// Reads right operands from lines of features. For half types the tensor core's loads transpose them.
template <class Traits>
class LineReader {
 public:
  __device__ LineReader(const Step& step, std::uint32_t from, const Lane& at)
      : from_(from),
        shift_(step.in_shift),
        lane_line_(Traits::half ? at.lane % 16 : at.t),
        lane_place_(Traits::half ? at.lane / 16 * 16 : at.g * 4) {}

  __device__ void begin(int line, int first_sample) {
    line_ = line + lane_line_;
    place_ = lane_place_ ^ first_sample * Traits::element;
  }
  __device__ void begin_step() {
    now_ = (from_ + address_of(line_entry(Traits::line(), line_, shift_))) ^ place_;
    if constexpr (!Traits::half)
      upper_ = (from_ + address_of(line_entry(Traits::line(), line_ + 4, shift_))) ^ place_;
    line_ += Traits::k_step;
  }
  /// The fragments of samples 8n to 8n + 15 of the item.
  [[nodiscard]] __device__ uint4 load(int n) const {
    if constexpr (Traits::half) {
      return ptx::load_matrices_transposed(now_ ^ n * 16);
    } else {
      return {ptx::load_shared_4(now_ ^ n * 32), ptx::load_shared_4(upper_ ^ n * 32),
              ptx::load_shared_4(now_ ^ (n + 1) * 32), ptx::load_shared_4(upper_ ^ (n + 1) * 32)};
    }
  }

 private:
  std::uint32_t from_;
  int shift_, lane_line_, lane_place_;
  int line_ = 0, place_ = 0;
  std::uint32_t now_ = 0, upper_ = 0;
};

/// Reads right operands from rows of features, which is how x lies in batch_first. d is 1.
template <class Traits>
class RowReader {
 public:
  __device__ RowReader(const Step& step, std::uint32_t from, const Lane& at)
      : from_(from),
        pitch_(step.rows_pitch),
        lane_row_(at.lane % 8 + at.lane / 16 * 8),
        lane_unit_(at.lane / 8 % 2) {}

  __device__ void begin(int feature, int first_sample) {
    row_ = from_ + (first_sample + lane_row_) * pitch_;
    unit_ = feature / Traits::unit_elements + lane_unit_;
  }
  __device__ void begin_step() {
    now_ = row_ + (unit_ ^ (lane_row_ & 7)) * 16;
    unit_ += 2;
  }
  [[nodiscard]] __device__ uint4 load(int n) const { return ptx::load_matrices(now_ + n * 8 * pitch_); }

 private:
  std::uint32_t from_;
  int pitch_, lane_row_, lane_unit_;
  std::uint32_t row_ = 0, now_ = 0;
  int unit_ = 0;
};

/// Exchanges words among four lanes: word n of lane t becomes word t of lane n.
__device__ inline void transpose_in_four(std::uint32_t (&words)[4], int t) {
#pragma unroll
  for (int by = 1; by <= 2; by *= 2) {
    const bool is_upper = (t & by) != 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if ((n & by) != 0) continue;
      // The lower lane of a pair gives its upper word and gets the other's lower one.
      const std::uint32_t given = is_upper ? words[n] : words[n + by];
      const std::uint32_t got = __shfl_xor_sync(0xffffffffu, given, by);
      (is_upper ? words[n] : words[n + by]) = got;
    }
  }
}

/// Multiplies sums by the powers of two that their outputs' entries have.
template <class Traits, int tiles>
__device__ inline void scale_sums(Sums<Traits, tiles>& sums, std::uint32_t entries) {
#pragma unroll
  for (int m = 0; m < tiles; ++m)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const Entry entry = ptx::load_shared_4(entries + (m * 16 + upper * 8) * 4);
      const float by = __uint_as_float(entry >> 24 << 23);
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        sums[m][n][2 * upper] *= by;
        sums[m][n][2 * upper + 1] *= by;
      }
    }
}

/// Stores the sums of one output. `to` is the place of the item's first samples in the line, in this block.
template <class Traits>
__device__ inline void store_sums(const float (&sums)[Traits::n_tiles][4], int upper, std::uint32_t to,
                                  bool exists, bool is_cluster, int rank, const Lane& at) {
#if KRONSPARSE_HAS_CLUSTERS
  if (is_cluster) {
    // Other blocks are far away: the wider a store, the better.
    to = ptx::cluster_address(to, exists ? static_cast<std::uint32_t>(rank) : 0u);
    if constexpr (Traits::half && Traits::n_tiles % 4 == 0) {
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; n += 4) {
        std::uint32_t words[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
          words[e] = mma::pack_pair<Traits>(sums[n + e][2 * upper], sums[n + e][2 * upper + 1]);
        transpose_in_four(words, at.t);
        if (exists) ptx::store_cluster_16(to ^ (n + at.t) * 16, words[0], words[1], words[2], words[3]);
      }
    } else if (exists) {
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        if constexpr (Traits::half)
          ptx::store_cluster_4((to ^ n * 16) + at.t * 4,
                               mma::pack_pair<Traits>(sums[n][2 * upper], sums[n][2 * upper + 1]));
        else
          ptx::store_cluster_floats((to ^ n * 32) ^ at.t * 8, sums[n][2 * upper], sums[n][2 * upper + 1]);
      }
    }
    return;
  }
#endif
  if (!exists) return;
#pragma unroll
  for (int n = 0; n < Traits::n_tiles; ++n) {
    if constexpr (Traits::half)
      ptx::store_shared_4((to + at.t * 4) ^ n * 16,
                          mma::pack_pair<Traits>(sums[n][2 * upper], sums[n][2 * upper + 1]));
    else
      ptx::store_shared_floats((to ^ at.t * 8) ^ n * 32, sums[n][2 * upper], sums[n][2 * upper + 1]);
  }
}

/// Computes a step of the chain for a tile, or a part of the last one. Threads meet after the first weights
/// are asked for and before x is read.
template <class Traits, template <class> class Reader, int tiles>
__device__ __forceinline__ void multiply_items(const Arguments& p, int number_of_step, int part, int parity,
                                               std::uint32_t shared, const Lane& at) {
  const Step& step = p.step[number_of_step];
  const bool is_last = number_of_step + 1 == p.steps;
  const int of_part = step.blocks * step.groups_of_part;
  const int count = of_part * Traits::n_groups;
  const std::uint32_t items = shared + step.items + part * of_part * static_cast<int>(sizeof(Item));
  const std::uint32_t out = shared + p.space[number_of_step + 1].place.of_tile(parity);
  const int k_steps = step.k_steps, d = step.d, repeats = step.repeats;
  WeightReader<Traits, tiles> weights(p, step, items, count, at);
  uint4 queue[Traits::ahead][tiles]{};
#pragma unroll
  for (int n = 0; n < Traits::ahead; ++n) weights.load(queue[n]);
  meet(p);
  Reader<Traits> x(step, shared + step.in.of_tile(parity), at);
  for (int number = at.warp; number < count; number += at.warps) {
    const uint4 item = ptx::load_shared_16(items + number / Traits::n_groups * sizeof(Item));
    const int first_sample = number % Traits::n_groups * Traits::n_tiles * 8;
    Sums<Traits, tiles> sums{};
    x.begin(static_cast<int>(item.y), first_sample);
#pragma unroll 1
    for (int k = 0; k < k_steps; ++k) {
      uint4 now[tiles];
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        now[m] = queue[0][m];
#pragma unroll
        for (int n = 0; n + 1 < Traits::ahead; ++n) queue[n][m] = queue[n + 1][m];
      }
      weights.load(queue[Traits::ahead - 1]);
      if ((k & (repeats - 1)) == 0) x.begin_step();
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; n += 2) multiply<Traits, tiles>(sums, now, n, x.load(n));
    }
    const std::uint32_t entries = shared + address_of(item.z) + at.g * 4;
    if (step.exponents >= 0) scale_sums<Traits, tiles>(sums, entries);
    if (is_last && p.bias != nullptr)
#pragma unroll
      for (int m = 0; m < tiles; ++m)
        add_bias<Traits>(sums[m], p.bias, item.w + std::int64_t{m} * 16 * d, d,
                         static_cast<int>(item.z >> 24) - m * 16, at.g);
    if (is_last && p.activation != Activation::none) activate_sums<Traits, tiles>(sums, p.activation);
#pragma unroll
    for (int m = 0; m < tiles; ++m)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const Entry entry = ptx::load_shared_4(entries + (m * 16 + upper * 8) * 4);
        store_sums<Traits>(sums[m], upper, (out + address_of(entry)) ^ (first_sample * Traits::element),
                           entry != no_entry, p.ranks > 1, rank_of(entry), at);
      }
  }
}

/// The same, by the code for as many tiles as the step's items have.
template <class Traits, template <class> class Reader>
__device__ __forceinline__ void multiply_step(const Arguments& p, int step, int part, int parity,
                                              std::uint32_t shared, const Lane& at) {
  switch (p.step[step].m_tiles) {
    case 1:
      return multiply_items<Traits, Reader, 1>(p, step, part, parity, shared, at);
    case 2:
      return multiply_items<Traits, Reader, 2>(p, step, part, parity, shared, at);
    default:
      if constexpr (Traits::m_tiles > 2)
        multiply_items<Traits, Reader, Traits::m_tiles>(p, step, part, parity, shared, at);
  }
}

}  // namespace kronsparse::cuda::fused
