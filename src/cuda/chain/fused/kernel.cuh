// The kernel `fused`: a chain of products in one pass over x and y, on tensor cores from sm_80 on (mma.sync).
//
// A tile of samples goes through all products in shared memory (tiles.cuh). Weights are the tensor core's
// left operand: they come in fragment order from L2 to registers, ahead of their use, and each is read once
// per tile. Lines of features are the right operand. The next tile's x is copied meanwhile. A chain that is
// too wide for one block is computed by a cluster: every block has its share of the (i, j) of each product,
// and stores results into the memory of the block that needs them next.
#pragma once

#include "cuda/chain/fused/tiles.cuh"
#include "cuda/device/ptx_sm90.cuh"
#include "cuda/device/tensor_core.cuh"
#include "cuda/large_batch/wgmma/weights.cuh"

// Clusters exist from sm_90 on; the host asks for none before.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KRONSPARSE_HAS_CLUSTERS 1
#else
#define KRONSPARSE_HAS_CLUSTERS 0
#endif

namespace kronsparse::cuda {
namespace fused {

template <Arithmetic kind, Shape shape>
struct Traits {
  static constexpr Arithmetic arithmetic = kind;
  static constexpr bool half = kind == Arithmetic::f16 || kind == Arithmetic::bf16;
  static constexpr int element = half ? 2 : 4;
  static constexpr int samples = shape.samples;
  static constexpr int m_tiles = shape.m_tiles;
  static constexpr int n_tiles = samples < 64 ? samples / 8 : 8;  ///< tiles of 8 samples that a warp computes
  static constexpr int n_groups = samples / (n_tiles * 8);
  /// Steps of weights that are under way. Sums and weights share 128 registers.
  static constexpr int ahead = m_tiles * n_tiles >= 16 ? 1 : 2;
  static constexpr int units = Line{samples, element}.units();
  [[nodiscard]] __device__ static constexpr Line line() { return {samples, element}; }
  static constexpr int unit_elements = 16 / element;
  static constexpr int k_step = 2 * unit_elements;  ///< terms of one product of a tensor core
};

struct Lane {
  int warp, warps, lane, g, t;  ///< lane = 4g + t, as in the description of fragments
};

__device__ inline Lane this_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return {static_cast<int>(threadIdx.x) / 32, static_cast<int>(blockDim.x) / 32, lane, lane / 4, lane % 4};
}

/// Lets all threads of the tile meet; what they wrote before is then visible to all of them.
__device__ inline void meet(const Arguments& p) {
#if KRONSPARSE_HAS_CLUSTERS
  if (p.ranks > 1) {
    ptx::cluster_barrier();
    return;
  }
#endif
  __syncthreads();
}

/// Stores a word into a line of any rank. `at` is where it would be in this block.
__device__ inline void store_word(bool is_cluster, std::uint32_t at, int rank, std::uint32_t word) {
#if KRONSPARSE_HAS_CLUSTERS
  if (is_cluster) {
    ptx::store_cluster_4(ptx::cluster_address(at, static_cast<std::uint32_t>(rank)), word);
    return;
  }
#endif
  ptx::store_shared_4(at, word);
}

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

template <class Traits, int tiles>
using Sums = float[tiles][Traits::n_tiles][4];  // (16 outputs, 8 samples, 4 sums)

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

/// Bytes from the beginning of rows to a unit of a row. Units are swizzled, so that those of eight rows lie
/// in different banks.
__device__ inline int row_unit_at(int row, int pitch, int unit) {
  return row * pitch + (unit ^ (row & 7)) * 16;
}

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

/// Adds the bias. `feature` is that of the item's first output; the next one is `d` further.
template <class Traits, int tiles>
__device__ inline void add_bias(Sums<Traits, tiles>& sums, const void* bias, std::int64_t feature, int d,
                                int outputs, int g) {
#pragma unroll
  for (int m = 0; m < tiles; ++m)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const int output = m * 16 + upper * 8 + g;
      const float value =
          output < outputs ? mma::load_element<Traits>(bias, feature + std::int64_t{output} * d) : 0.0f;
#pragma unroll
      for (int n = 0; n < Traits::n_tiles; ++n) {
        sums[m][n][2 * upper] += value;
        sums[m][n][2 * upper + 1] += value;
      }
    }
}

/// Applies the activation. Its code is long: sums take turns in the registers of one copy of it.
template <class Traits, int tiles>
__device__ inline void activate_sums(Sums<Traits, tiles>& sums, Activation activation) {
  constexpr int at_once = 8, count = tiles * Traits::n_tiles * 4;
  float* const all = &sums[0][0][0];
#pragma unroll 1
  for (int turn = 0; turn < count; turn += at_once) {
    float now[at_once];
#pragma unroll
    for (int e = 0; e < at_once; ++e) now[e] = all[e];
#pragma unroll
    for (int e = 0; e + at_once < count; ++e) all[e] = all[e + at_once];
    activate_all(now, activation);
#pragma unroll
    for (int e = 0; e < at_once; ++e) all[count - at_once + e] = now[e];
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
    // Lane 4g + t holds outputs g and g + 8 of a tile, for samples 2t and 2t + 1.
    if (is_last && p.bias != nullptr)
      add_bias<Traits, tiles>(sums, p.bias, item.w, d, static_cast<int>(item.z >> 24), at.g);
    if (is_last && p.activation != Activation::none) activate_sums<Traits, tiles>(sums, p.activation);
    const std::uint32_t entries = shared + address_of(item.z) + at.g * 4;
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

/// Writes zeros to lines that no product writes: terms that do not exist, up to a step of the tensor core.
template <class Traits>
__device__ inline void clear_padding(const Step& step, int terms, std::uint32_t from) {
  const int padding = step.terms - terms;
  if (padding == 0) return;
  const int count = step.blocks * padding * Traits::units;
  for (int at = static_cast<int>(threadIdx.x); at < count; at += static_cast<int>(blockDim.x)) {
    const int line = at / Traits::units, block = line / padding;
    const Entry entry =
        line_entry(Traits::line(), block * step.terms + terms + line % padding, step.in_shift);
    ptx::store_shared_16((from + address_of(entry)) ^ (at % Traits::units * 16), 0, 0, 0, 0);
  }
}

/// Copies `count` elements, of 16 bytes at most, and zeros after them. Units that begin anywhere are copied
/// by elements.
template <class Traits, bool is_vector>
__device__ inline void copy_unit(std::uint32_t to, const std::byte* from, int count) {
  if constexpr (is_vector) {
    ptx::copy_async_16(to, from, count * Traits::element);
  } else if constexpr (Traits::half) {
    mma::store_elements(to, from, count);
  } else {
#pragma unroll 1
    for (int e = 0; e < 4; ++e)
      ptx::store_shared_4(to + e * 4, e < count ? reinterpret_cast<const std::uint32_t*>(from)[e] : 0u);
  }
}

/// The samples of a tile that exist, from `first` on.
template <class Traits>
__device__ inline int samples_there(const Arguments& p, std::int64_t first) {
  const std::int64_t rest = p.batch - first;
  return rest < Traits::samples ? static_cast<int>(rest) : Traits::samples;
}

/// Copies a tile of x as rows of the rank's features (batch_first). A warp takes a row.
template <class Traits, bool is_vector>
__device__ inline void copy_rows(const Arguments& p, std::int64_t tile, int rank, std::uint32_t to, int pitch,
                                 const Lane& at) {
  const int first = rank * p.x_features;
  const int features = min(p.x_features, p.x_all - first);
  const std::int64_t sample = tile * Traits::samples;
  const int there = samples_there<Traits>(p, sample);
  const std::byte* const x = p.x + (sample * p.x_sample + first) * Traits::element;
  for (int row = at.warp; row < Traits::samples; row += at.warps) {
    // Rows past the batch become zeros; the address must be one that exists.
    const bool exists = row < there;
    const std::byte* const from = x + (exists ? row * p.x_sample * Traits::element : 0) + at.lane * 16;
    const std::uint32_t row_at = to + row * pitch;
#pragma unroll(is_vector ? 4 : 1)
    for (int unit = at.lane; unit * Traits::unit_elements < features; unit += 32) {
      const int count = exists ? min(Traits::unit_elements, features - unit * Traits::unit_elements) : 0;
      copy_unit<Traits, is_vector>(row_at + (unit ^ (row & 7)) * 16, from + (unit - at.lane) * 16, count);
    }
  }
}

/// Copies a tile of x as the lines that the first step reads (batch_last). A warp takes an (i, j).
template <class Traits, bool is_vector>
__device__ inline void copy_lines(const Arguments& p, std::int64_t tile, int rank, std::uint32_t to,
                                  const Lane& at) {
  const Step& step = p.step[0];
  const int terms = p.terms[0];
  const int i_first = rank / step.ranks_j * step.i_count,
            j_first = rank % step.ranks_j * static_cast<int>(step.j_count.value());
  const std::int64_t sample = tile * Traits::samples;
  const int there = samples_there<Traits>(p, sample);
  constexpr int lines = 32 / Traits::units;
  const int unit = at.lane % Traits::units;
  const int in_unit = max(0, min(Traits::unit_elements, there - unit * Traits::unit_elements));
  const std::byte* const x = p.x + sample * Traits::element;
  for (int block = at.warp; block < step.blocks; block += at.warps) {
    const auto i = static_cast<int>(step.j_count.quotient(static_cast<std::uint32_t>(block)));
    const int j = j_first + block - i * static_cast<int>(step.j_count.value());
    const std::int64_t feature = static_cast<std::int64_t>(i_first + i) * terms * step.d + j;
    const std::byte* const from =
        x + (feature * p.x_feature + unit * Traits::unit_elements) * Traits::element;
    const std::int64_t to_next = step.d * p.x_feature * Traits::element;
#pragma unroll(is_vector ? 2 : 1)
    for (int l = at.lane / Traits::units; l < step.terms; l += lines) {
      const int count = l < terms ? in_unit : 0;
      const Entry entry = line_entry(Traits::line(), block * step.terms + l, step.in_shift);
      copy_unit<Traits, is_vector>((to + address_of(entry)) ^ (unit * 16),
                                   count > 0 ? from + l * to_next : p.x, count);
    }
  }
}

/// Makes lines of rows, in the blocks where the first step reads them.
template <class Traits>
__device__ inline void rows_to_lines(const Arguments& p, int rank, int parity, std::uint32_t shared,
                                     const Lane& at) {
  const int features = min(p.x_features, p.x_all - rank * p.x_features);
  const std::uint32_t from = shared + p.staging, to = shared + p.space[0].place.of_tile(parity),
                      table = shared + p.x_table;
  if constexpr (Traits::half) {
    // Each load takes four squares of 8 samples and 8 features.
    constexpr int squares_of_8 = Traits::samples / 8;
    const int squares = (features + 7) / 8 * squares_of_8;
    for (int first = at.warp * 4; first < squares; first += at.warps * 4) {
      const int mine = min(first + at.lane / 8, squares - 1);
      const uint4 words = ptx::load_matrices_transposed(
          from + row_unit_at(mine % squares_of_8 * 8 + at.lane % 8, p.staging_pitch, mine / squares_of_8));
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int square = first + n;
        const int feature = square / squares_of_8 * 8 + at.g;
        if (square >= squares || feature >= features) continue;
        const Entry entry = ptx::load_shared_4(table + feature * 4);
        store_word(p.ranks > 1, ((to + address_of(entry)) ^ (square % squares_of_8 * 16)) + at.t * 4,
                   rank_of(entry), word[n]);
      }
    }
  } else {
    const int quads = (features + 3) / 4;
    for (int one = static_cast<int>(threadIdx.x); one < quads * Traits::samples;
         one += static_cast<int>(blockDim.x)) {
      const int sample = one % Traits::samples, quad = one / Traits::samples;
      const uint4 words = ptx::load_shared_16(from + row_unit_at(sample, p.staging_pitch, quad));
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (quad * 4 + n >= features) continue;
        const Entry entry = ptx::load_shared_4(table + (quad * 4 + n) * 4);
        store_word(p.ranks > 1, (to + address_of(entry)) ^ (sample * 4), rank_of(entry), word[n]);
      }
    }
  }
  clear_padding<Traits>(p.step[0], p.terms[0], to);
}

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

/// Fills the tables: the items of each step, and where each output of a step, and each feature of x, belongs.
template <class Traits>
__device__ inline void fill_tables(const Arguments& p, int rank, std::uint32_t shared) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int s = 0; s < p.steps; ++s) {
    const Step& step = p.step[s];
    const bool in_parts = s + 1 == p.steps && p.parts > 1;
    const int outputs = step.m_groups * step.m_tiles * 16;
    const int of_part = step.groups_of_part * step.m_tiles * 16;
    const int j_count = static_cast<int>(step.j_count.value());
    const int i_first = rank / step.ranks_j * step.i_count, j_first = rank % step.ranks_j * j_count;
    for (int at = thread; at < step.blocks * outputs; at += threads) {
      const int block = at / outputs, k = at - block * outputs;
      const int i = i_first + block / j_count, j = j_first + block % j_count;
      Entry entry = no_entry;
      if (k < step.b) {
        // A step in parts numbers its features within a part.
        const int feature =
            in_parts ? (i * of_part + k % of_part) * step.d + j : (i * step.b + k) * step.d + j;
        entry = entry_of(Traits::line(), p.space[s + 1], feature);
      }
      ptx::store_shared_4(shared + step.table + at * 4, entry);
    }
    for (int at = thread; at < step.blocks * step.m_groups; at += threads) {
      const int in_part = step.blocks * step.groups_of_part;
      const int part = at / in_part, rest = at - part * in_part;
      const int block = rest / step.groups_of_part;
      const int tile = (part * step.groups_of_part + rest % step.groups_of_part) * step.m_tiles;
      const int i = i_first + block / j_count, j = j_first + block % j_count;
      const std::int64_t weights =
          step.weights / 16 +
          ((static_cast<std::int64_t>(i) * step.d + j) * step.tiles + tile) * step.k_steps * 32;
      ptx::store_shared_16(shared + step.items + at * static_cast<int>(sizeof(Item)),
                           static_cast<std::uint32_t>(weights),
                           static_cast<std::uint32_t>(block * step.terms),
                           static_cast<std::uint32_t>(step.table + (block * outputs + tile * 16) * 4) |
                               static_cast<std::uint32_t>(min(step.m_tiles * 16, step.b - tile * 16)) << 24,
                           static_cast<std::uint32_t>((i * step.b + tile * 16) * step.d + j));
    }
  }
  if (!p.samples_first || p.x_rows) return;
  const int first = rank * p.x_features;
  for (int at = thread; at < min(p.x_features, p.x_all - first); at += threads)
    ptx::store_shared_4(shared + p.x_table + at * 4, entry_of(Traits::line(), p.space[0], first + at));
}

template <class Traits, bool is_vector>
__device__ inline void copy_tile(const Arguments& p, std::int64_t tile, int rank, int parity,
                                 std::uint32_t shared, const Lane& at) {
  const std::uint32_t to = shared + p.step[0].in.of_tile(parity);
  if (!p.samples_first)
    copy_lines<Traits, is_vector>(p, tile, rank, to, at);
  else
    copy_rows<Traits, is_vector>(p, tile, rank, p.x_rows ? to : shared + p.staging,
                                 p.x_rows ? p.step[0].rows_pitch : p.staging_pitch, at);
}

/// Begins to copy the x of a tile, if there is one.
template <class Traits>
__device__ inline void copy_x(const Arguments& p, std::int64_t tile, int rank, int parity,
                              std::uint32_t shared, const Lane& at) {
  if (tile < p.tiles) {
    if (p.x_vectors)
      copy_tile<Traits, true>(p, tile, rank, parity, shared, at);
    else
      copy_tile<Traits, false>(p, tile, rank, parity, shared, at);
  }
  ptx::commit_copies();
}

}  // namespace fused

template <class Traits>
__global__ void __launch_bounds__(fused::most_threads, 1)
    multiply_fused(const __grid_constant__ fused::Arguments p) {
  using namespace fused;
  extern __shared__ __align__(1024) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  const Lane at = this_lane();
  const int rank = static_cast<int>(blockIdx.x) % p.ranks;
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(p.ranks);
  fill_tables<Traits>(p, rank, shared);
#if KRONSPARSE_HAS_CLUSTERS
  ptx::let_later_kernels_start();
  ptx::wait_for_earlier_kernels();
#endif
  // No block stores into another before that has begun.
  meet(p);
  const bool ahead = p.x_buffers > 1;
  std::int64_t tile = static_cast<int>(blockIdx.x) / p.ranks;
  int parity = 0;
  copy_x<Traits>(p, tile, rank, parity, shared, at);
  for (; tile < p.tiles; tile += clusters) {
    if (ahead) {
      copy_x<Traits>(p, tile + clusters, rank, parity ^ 1, shared, at);
      ptx::wait_copies<1>();
    } else {
      ptx::wait_copies<0>();
    }
    if (p.samples_first && !p.x_rows) {
      __syncthreads();
      rows_to_lines<Traits>(p, rank, parity, shared, at);
      __syncthreads();
      copy_x<Traits>(p, tile + clusters, rank, parity, shared, at);
    }
    for (int s = 0; s < p.steps; ++s) {
      const bool is_last = s + 1 == p.steps;
      const Place& to = p.space[s + 1].place;
      for (int part = 0; part < (is_last ? p.parts : 1); ++part) {
        if (s == 0 && p.x_rows)
          multiply_step<Traits, RowReader>(p, s, part, parity, shared, at);
        else
          multiply_step<Traits, LineReader>(p, s, part, parity, shared, at);
        if (!is_last) continue;
        meet(p);
        YStore<Traits>(p, tile, rank, part, shared + to.of_tile(parity)).store_all(at);
      }
      if (!is_last) clear_padding<Traits>(p.step[s + 1], p.terms[s + 1], shared + to.of_tile(parity));
    }
    if (p.waits_at_end) meet(p);
    if (!ahead && (!p.samples_first || p.x_rows)) {
      __syncthreads();
      copy_x<Traits>(p, tile + clusters, rank, parity, shared, at);
    } else {
      __syncthreads();
    }
    if (ahead) parity ^= 1;
  }
  ptx::wait_copies<0>();
  // No block ends while another may store into it.
  meet(p);
}

}  // namespace kronsparse::cuda
