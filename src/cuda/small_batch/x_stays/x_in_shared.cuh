// The path of a small batch's x to shared memory, for kernels that read 16 bytes of neighbouring terms of one
// sample and one j.
//
// Neighbours in memory are j. So threads read whole vectors of j and transpose them in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/device/ptx_sm90.cuh"

namespace kronsparse::cuda {

/// The terms of a block's x in the order in which they are multiplied: position p holds the term l_at(p).
template <class T>
struct TermOrder {
  static constexpr int vector = 16 / sizeof(T);  ///< terms in 16 bytes

  int positions = 0;  ///< a multiple of `vector`
  int run = 1;        ///< neighbouring l in the 16 bytes of x that a thread reads at once

  [[nodiscard]] __host__ __device__ int vectors() const { return positions / vector; }
  /// A vector holds the l that one thread gathers. This order makes the loads of neighbouring threads
  /// contiguous.
  [[nodiscard]] __host__ __device__ int l_at(int p) const {
    return run * (p % vector / run * vectors() + p / vector) + p % run;
  }
};

/// The places of x in memory and in shared memory.
struct XPlace {
  std::int64_t sample = 0, feature = 0, d = 0;  ///< strides in memory; features of one l
  int j_group = 1;
  int shared_j = 0, shared_sample = 0, shared_vector = 0;  ///< strides in shared memory, in bytes
  int bytes = 0;  ///< bytes of one load: 16; 8 if d = 1; or 0 for one element
};

/// The `vector` terms l of one j, taken from the 16-byte vectors that hold those of `j_count` neighbouring j.
template <class T, int j_count>
__device__ inline uint4 transposed(const uint4 (&in)[j_count], int j) {
  const auto word = [&in](int w) {
    const uint4& v = in[w / 4];
    return w % 4 == 0 ? v.x : w % 4 == 1 ? v.y : w % 4 == 2 ? v.z : v.w;
  };
  std::uint32_t result[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      result[w] = word(w * j_count + j);
    } else {
      const int low = 2 * w * j_count + j, high = low + j_count;  // flat places of l = 2w and 2w + 1
      const std::uint32_t selector = (low % 2 ? 0x0032u : 0x0010u) | (high % 2 ? 0x7600u : 0x5400u);
      result[w] = __byte_perm(word(low / 2), word(high / 2), selector);
    }
  }
  return {result[0], result[1], result[2], result[3]};
}

/// Brings `samples` of x, from its first term on, to shared memory. Terms from l_end on and j from j_end on
/// become zeros. A thread has `in_flight` loads of 16 bytes under way.
///
/// Loads are not marked constant: with programmatic launches the kernel that writes x may still run when this
/// one begins.
template <class T, int in_flight>
class XStager {
 public:
  __device__ XStager(const XPlace& place, const TermOrder<T>& order, const T* x, std::uint32_t shared,
                     int threads, int samples, int l_end, int j_end)
      : place_(place),
        order_(order),
        x_(x),
        shared_(shared),
        threads_(threads),
        samples_(samples),
        l_end_(l_end),
        j_end_(j_end) {}

  __device__ void stage() const {
    if (place_.bytes == 0)
      stage_elements();
    else if (place_.bytes == 8)
      stage_copies<8>();
    else if (order_.run == vector)
      stage_copies<16>();
    else if (order_.run * 2 == vector)
      stage_vectors<2>();
    else if (order_.run * 4 == vector)
      stage_vectors<4>();
    else if constexpr (vector == 8)
      stage_vectors<8>();
  }

 private:
  static constexpr int vector = TermOrder<T>::vector;

  __device__ std::uint32_t at(int j, int sample, int column) const {
    return shared_ + j * place_.shared_j + sample * place_.shared_sample + column * place_.shared_vector;
  }

  /// Spreads `count` pieces of every sample over the threads, neighbouring pieces to neighbouring threads.
  /// The body takes `at_once` samples, `step` apart.
  template <int at_once, class Body>
  __device__ void for_samples_and_pieces(int count, Body&& body) const {
    const int threads_log2 = 31 - __clz(threads_);
    const int width_log2 = min(threads_log2, count <= 4 ? 2 : 32 - __clz(count - 1));
    const int width = 1 << width_log2, step = 1 << (threads_log2 - width_log2);
    const int thread = static_cast<int>(threadIdx.x);
    for (int sample = thread >> width_log2; sample < samples_; sample += at_once * step)
      for (int piece = thread & (width - 1); piece < count; piece += width) body(sample, step, piece);
  }

  // d = 1: shared memory has the same order as memory. A thread makes several copies at once, because its
  // instructions wait for each other, not for memory.
  template <int bytes>
  __device__ void stage_copies() const {
    constexpr int at_once = 4, pieces = 16 / bytes, terms = bytes / static_cast<int>(sizeof(T));
    for_samples_and_pieces<at_once>(order_.vectors() * pieces, [&](int first_sample, int step, int piece) {
      const bool inside = piece * terms < l_end_;
      const T* from = x_ + first_sample * place_.sample + (inside ? piece * terms : 0);
      std::uint32_t to = at(0, first_sample, piece / pieces) + piece % pieces * bytes;
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (first_sample + u * step < samples_) ptx::copy_async<bytes>(to, from, inside ? bytes : 0);
        from += step * place_.sample;
        to += step * place_.shared_sample;
      }
    });
    ptx::commit_copies();
    ptx::wait_copies<0>();
  }

  // Reads whole vectors of neighbouring j and transposes them in registers.
  template <int j_count>
  __device__ void stage_vectors() const {
    constexpr int at_once = in_flight / j_count;
    // 1 if there are two vectors of j, 0 if there is one. 3 if there are four (f32, 16 j): two threads then
    // bring each, the same values to the same place.
    const int second_j = place_.j_group / j_count - 1;
    const int l_step = order_.vectors() * (vector / j_count);
    for_samples_and_pieces<at_once>(order_.vectors() << second_j, [&](int first_sample, int step, int piece) {
      const int j = (piece & second_j) * j_count, column = piece >> second_j;
      uint4 in[at_once][j_count];  // (samples, vectors)
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int sample = first_sample + u * step;
        int l = column * (vector / j_count);
        const T* from = x_ + sample * place_.sample + l * place_.d + j;
#pragma unroll
        for (int v = 0; v < j_count; ++v, l += l_step, from += l_step * place_.d) {
          in[u][v] = {0, 0, 0, 0};
          if (l < l_end_ && j < j_end_ && sample < samples_)
            in[u][v] = __ldcg(reinterpret_cast<const uint4*>(from));
        }
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const int sample = first_sample + u * step;
        if (sample < samples_)
#pragma unroll
          for (int jj = 0; jj < j_count; ++jj) {
            const uint4 v = transposed<T>(in[u], jj);
            ptx::store_shared_16(at(j + jj, sample, column), v.x, v.y, v.z, v.w);
          }
      }
    });
  }

  // For any stride and alignment: one element at a time. Lanes go along the contiguous direction.
  __device__ void stage_elements() const {
    const int j_group = place_.j_group;
    if (place_.feature == 1) {
      for_samples_and_pieces<1>(order_.vectors() * j_group, [&](int sample, int, int piece) {
        gather(sample, piece % j_group, piece / j_group);
      });
    } else {
      const int width = samples_ > 16 ? 32 : samples_ > 8 ? 16 : samples_ > 4 ? 8 : 4;
      for (int piece = threadIdx.x / width; piece < order_.vectors() * j_group; piece += threads_ / width)
        for (int sample = threadIdx.x % width; sample < samples_; sample += width)
          gather(sample, piece % j_group, piece / j_group);
    }
  }

  __device__ void gather(int sample, int j, int column) const {
    using Bits = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned>;
    const T* from = x_ + sample * place_.sample + j * place_.feature;
    const int run = order_.run, run_log2 = __ffs(run) - 1;
    union {
      Bits element[vector];
      uint4 bits;
    } out;
#pragma unroll
    for (int e = 0; e < vector; ++e) {
      const int l = (((e >> run_log2) * order_.vectors() + column) << run_log2) + (e & (run - 1));  // l_at
      out.element[e] = 0;
      if (l < l_end_ && j < j_end_)
        out.element[e] = __ldcg(reinterpret_cast<const Bits*>(from + l * place_.d * place_.feature));
    }
    ptx::store_shared_16(at(j, sample, column), out.bits.x, out.bits.y, out.bits.z, out.bits.w);
  }

  const XPlace& place_;
  const TermOrder<T> order_;
  const T* x_;
  std::uint32_t shared_;
  int threads_;  ///< the first of the block that share the work: a power of two
  int samples_, l_end_, j_end_;
};

}  // namespace kronsparse::cuda
