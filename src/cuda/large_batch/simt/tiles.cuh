// Blocks of threads that multiply small matrices on the FMA units: elements, copies into shared memory,
// register tiles. The kernels of large_batch/simt and gradient/simt are made of these.
//
// One block takes `J` neighbouring j, and computes for each an (M, N) tile as a sum over a depth. An operand
// lies in shared memory as (j, depth, row). Each warp works on one j and sees a plain product, while accesses
// to global memory are contiguous over j. With rows of J >= 8 floats every access there consists of whole
// 32-byte sectors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/device/ptx.cuh"

namespace kronsparse::cuda::simt {

// --- Elements ---------------------------------------------------------------

/// Laid out as std::complex: aligned like its real part.
template <class Real>
struct Complex {
  Real re, im;
};

template <class T>
struct RealOf {
  using type = T;
};
template <class Real>
struct RealOf<Complex<Real>> {
  using type = Real;
};

/// The type of an element's sums.
template <class T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<__half> {
  using type = float;
};
template <>
struct SumOf<__nv_bfloat16> {
  using type = float;
};

template <class T>
inline constexpr bool is_half_type = sizeof(T) == 2;

template <class T>
__device__ inline typename SumOf<T>::type widen(T value) {
  return value;
}
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T, class Sum>
__device__ inline T narrow(Sum value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

__device__ inline void multiply_add(float& sum, float a, float b) { sum = fmaf(a, b, sum); }
__device__ inline void multiply_add(double& sum, double a, double b) { sum = fma(a, b, sum); }
template <class Real>
__device__ inline void multiply_add(Complex<Real>& sum, Complex<Real> a, Complex<Real> b) {
  sum.re = fma(a.re, b.re, sum.re);
  sum.im = fma(a.re, b.im, sum.im);
  sum.re = fma(-a.im, b.im, sum.re);
  sum.im = fma(a.im, b.re, sum.im);
}

__device__ inline float plus(float a, float b) { return a + b; }
__device__ inline double plus(double a, double b) { return a + b; }
template <class Real>
__device__ inline Complex<Real> plus(Complex<Real> a, Complex<Real> b) {
  return {a.re + b.re, a.im + b.im};
}

template <class T>
__host__ __device__ inline T conjugate(T value) {
  return value;
}
template <class Real>
__host__ __device__ inline Complex<Real> conjugate(Complex<Real> value) {
  return {value.re, -value.im};
}

// --- Copies from global to shared memory ------------------------------------

// sm_75 has no asynchronous copies. The emulation has, and is no architecture.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define KRONSPARSE_SIMT_COPIES 1
#else
#define KRONSPARSE_SIMT_COPIES 0
#endif

/// Starts a copy of Bytes (4, 8 or 16, both sides aligned to it). The first `valid` bytes are read; the
/// others become zero. L2 fetches 128 bytes, because the next step or a neighbouring block needs the rest of
/// the line soon.
template <int Bytes>
__device__ inline void copy_async(void* shared, const void* global, int valid) {
#if KRONSPARSE_SIMT_COPIES
  ptx::copy_async_of_line<Bytes>(ptx::shared_address(shared), global, valid);
#else
  for (int byte = 0; byte < Bytes; byte += 4)
    *reinterpret_cast<std::uint32_t*>(static_cast<char*>(shared) + byte) =
        byte < valid ? *reinterpret_cast<const std::uint32_t*>(static_cast<const char*>(global) + byte) : 0;
#endif
}

/// Ends the group of copies started since the last call; groups may be empty.
__device__ inline void close_copy_group() {
#if KRONSPARSE_SIMT_COPIES
  ptx::commit_copies();
#endif
}

/// Waits until at most `Open` of this thread's newest groups are under way.
template <int Open>
__device__ inline void wait_for_copies() {
#if KRONSPARSE_SIMT_COPIES
  ptx::wait_copies<Open>();
#endif
}

/// Waits for all groups but the newest stages - 2.
__device__ inline void wait_for_stage(int stages) {
  if (stages == 2) {
    wait_for_copies<0>();
  } else if (stages == 3) {
    wait_for_copies<1>();
  } else {
    wait_for_copies<2>();
  }
}

/// Copies one element, aligned as an element only; zero if not `valid`.
template <class T>
__device__ inline void copy_element(T* shared, const T* global, bool valid) {
  constexpr int part = alignof(T) < 8 ? 4 : 8;
#pragma unroll
  for (int byte = 0; byte < static_cast<int>(sizeof(T)); byte += part)
    copy_async<part>(reinterpret_cast<char*>(shared) + byte, reinterpret_cast<const char*>(global) + byte,
                     valid ? part : 0);
}

/// Calls load(chunk, stage) ahead of compute(chunk, stage) for every chunk. All but one of the `stages`
/// buffers are being filled. When it returns, the block has finished with the buffers.
template <class Load, class Compute>
__device__ inline void run_pipeline(int chunks, int stages, const Load& load, const Compute& compute) {
  for (int stage = 0; stage < stages - 1; ++stage) {
    if (stage < chunks) load(stage, stage);
    close_copy_group();
  }
  int stage = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    wait_for_stage(stages);
    __syncthreads();  // the chunk is there for all, and everybody has left the buffer that is filled next
    if (chunk + stages - 1 < chunks) load(chunk + stages - 1, (stage == 0 ? stages : stage) - 1);
    close_copy_group();
    compute(chunk, stage);
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  __syncthreads();  // no copy is under way: the last groups were empty
}

/// Returns the remainder and leaves the quotient; in 32 bits if they suffice, which takes a tenth of the
/// time.
__device__ inline std::uint32_t take_digit(std::uint64_t& number, std::uint32_t base) {
  if (number >> 32 == 0) {
    const auto low = static_cast<std::uint32_t>(number);
    number = low / base;
    return low % base;
  }
  const auto digit = static_cast<std::uint32_t>(number % base);
  number /= base;
  return digit;
}

// --- An operand --------------------------------------------------------------

/// How Threads threads bring (Rows, Depth) elements of each of J products into shared memory, as (j, depth,
/// row). Element (row, depth, j) lies row·row_stride + depth·depth_stride + j from the start of the operand.
///
/// AlongDepth: neighbours in memory are (depth, j), so lanes take those and scatter them. Four lanes with
/// neighbouring depths of one row would meet in the same bank, because rows of 16-byte aligned vectors are a
/// multiple of 4 words apart. So the four rows of a vector are permuted: row r lies at r ^ (depth % 4).
/// Readers know the depth at compile time and pay nothing for it. Otherwise neighbours in memory are (row,
/// j).
template <class T_, int Rows_, int Depth_, int J_, int Threads_, bool AlongDepth_>
struct Operand {
  using T = T_;
  using Sum = typename SumOf<T>::type;
  static constexpr int Rows = Rows_, Depth = Depth_, J = J_, Threads = Threads_;
  static constexpr bool AlongDepth = AlongDepth_;

  static constexpr int j_lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(J)));
  static constexpr int pitch = Rows + (AlongDepth ? 4 : 0);
  // Planes of neighbouring j start in different banks.
  static constexpr int plane_skew = J == 1 ? 0 : AlongDepth ? (j_lanes == 2 ? 8 : 4) : 32 / j_lanes;
  static constexpr int plane = Depth * pitch + plane_skew;
  static constexpr int elements = J * plane;

  static constexpr bool has_vectors = std::is_same_v<T, float> && J == 1 && !AlongDepth;

  // AlongDepth: a warp takes (j_lanes, depth_lanes, row_lanes) elements, with rows 4 apart; depth_blocks
  // warps lie side by side, the others below.
  static constexpr int depth_lanes = j_lanes > 4 ? 32 / j_lanes : 8;
  static constexpr int row_lanes = 32 / (j_lanes * depth_lanes);
  static constexpr int depth_blocks = Depth < depth_lanes ? 1 : Depth / depth_lanes;
  static constexpr int warp_rows = Threads / 32 / depth_blocks;
  static constexpr int row_step = warp_rows * row_lanes;
  static constexpr int steps = (Rows + row_step - 1) / row_step;

  static_assert(Rows % 4 == 0 && J <= 8);
  static_assert(!AlongDepth || (Depth % depth_lanes == 0 && Threads / 32 % depth_blocks == 0));
  static_assert(!AlongDepth || row_lanes == 1 || warp_rows % 4 == 0);

  /// The place of row `row` of a vector of four at this depth.
  __device__ static constexpr int permuted(int row, int depth) {
    return AlongDepth ? row ^ (depth & 3) : row;
  }
};

/// One thread's part in loading an operand. It steps through the depth.
template <class O>
struct OperandLoader {
  using T = typename O::T;
  using Sum = typename O::Sum;

  const T* source = nullptr;  ///< this thread's first element in the next chunk
  std::int64_t row_stride = 0, depth_stride = 0;
  int row = 0, depth = 0;  ///< place of that element
  int shared = 0;          ///< its place in the buffer
  int rows = 0;            ///< rows that exist from there on; none for lanes without a j
  bool vectors = false;    ///< whether four rows are copied at a time, 16-byte aligned

  __device__ OperandLoader(const T* start, std::int64_t row_stride_, std::int64_t depth_stride_,
                           std::int64_t rows_, int js, bool vectors_)
      : row_stride(row_stride_), depth_stride(depth_stride_), vectors(O::has_vectors && vectors_) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int j = thread % O::j_lanes;
    if constexpr (O::AlongDepth) {
      const int warp_row = warp / O::depth_blocks;
      depth = warp % O::depth_blocks * O::depth_lanes + lane / O::j_lanes % O::depth_lanes;
      row = warp_row / 4 * (4 * O::row_lanes) + warp_row % 4 + lane / (O::j_lanes * O::depth_lanes) * 4;
      if constexpr (O::row_lanes == 1) row = warp_row;
    } else {
      const int width = vectors ? 4 : 1;
      row = thread / O::j_lanes * width % O::Rows;
      depth = thread / O::j_lanes * width / O::Rows;
    }
    shared = j * O::plane + depth * O::pitch + (O::row_step % 4 == 0 ? O::permuted(row, depth) : row);
    rows = j < js ? static_cast<int>(rows_ < O::Rows ? rows_ : O::Rows) - row : 0;
    source = start + row * row_stride + depth * depth_stride + j;
  }

  /// Starts the copies of the next chunk, `left` deep. Depths after it become zero.
  __device__ void load(Sum* buffer, int left) {
    if (O::j_lanes != O::J && static_cast<int>(threadIdx.x) % O::j_lanes >= O::J) return;
    if constexpr (O::AlongDepth) {
      load_along_depth(buffer, left);
    } else {
      if (vectors) {
        load_along_rows<O::has_vectors ? 4 : 1>(buffer, left);
      } else {
        load_along_rows<1>(buffer, left);
      }
    }
    source += O::Depth * depth_stride;
  }

 private:
  // No branches here: elements that do not exist are copied as zero bytes, which writes zeros.

  __device__ void load_along_depth(Sum* buffer, int left) {
    const int limit = depth < left ? rows : 0;
    const std::int64_t stride = O::row_step * row_stride;
    const T* from = source;
    copy_many<O::steps>([&](int step, auto&& copy) {
      const int skip = step * O::row_step;
      // If row_step is a multiple of 4, the permutation commutes with it.
      const int place = O::row_step % 4 == 0 ? shared + skip : shared - row + O::permuted(row + skip, depth);
      if (O::Rows % O::row_step == 0 || row + skip < O::Rows)
        copy(buffer + place, from + step * stride, skip < limit);
    });
  }

  template <int Width>
  __device__ void load_along_rows(Sum* buffer, int left) {
    constexpr int lanes = O::Threads / O::j_lanes * Width;  // elements of one j in a step
    constexpr int row_lanes = lanes < O::Rows ? lanes : O::Rows;
    constexpr int depth_lanes = lanes / row_lanes;
    constexpr int row_steps = O::Rows / row_lanes, depth_steps = O::Depth / depth_lanes;
    static_assert(lanes % row_lanes == 0 && O::Rows % row_lanes == 0 && O::Depth % depth_lanes == 0);
    copy_many<row_steps * depth_steps>([&](int step, auto&& copy) {
      const int skip = step % row_steps * row_lanes;
      const int at_depth = depth + step / row_steps * depth_lanes;
      const T* from = source + step / row_steps * (depth_lanes * depth_stride) +
                      step % row_steps * (row_lanes * row_stride);
      Sum* to = buffer + shared + step / row_steps * (depth_lanes * O::pitch) + step % row_steps * row_lanes;
      const int limit = at_depth < left ? rows : 0;
      if constexpr (Width == 1) {
        copy(to, from, skip < limit);
      } else {
        const int count = limit - skip < 0 ? 0 : limit - skip < Width ? limit - skip : Width;
        copy_async<16>(to, from, count * static_cast<int>(sizeof(T)));
      }
    });
  }

  /// Calls place(step, copy) for every step. Half types are widened on the way, which no asynchronous copy
  /// can do: all are read before the first is stored.
  template <int Count, class Place>
  __device__ void copy_many(const Place& place) {
    if constexpr (is_half_type<T>) {
      Sum value[Count];
#pragma unroll
      for (int step = 0; step < Count; ++step) {
        value[step] = 0;
        place(step, [&](Sum*, const T* from, bool valid) {
          if (valid) value[step] = widen(*from);
        });
      }
#pragma unroll
      for (int step = 0; step < Count; ++step)
        place(step, [&](Sum* to, const T*, bool) { *to = value[step]; });
    } else {
#pragma unroll
      for (int step = 0; step < Count; ++step)
        place(step, [](Sum* to, const T* from, bool valid) { copy_element(to, from, valid); });
    }
  }
};

// --- Register tiles -----------------------------------------------------------

/// J products of (M, N) by J·WarpsM·WarpsN warps. Each thread has (TM, TN) sums.
template <class T_, int J_, int WarpsM_, int WarpsN_, int TM_, int TN_>
struct Tile {
  using T = T_;
  using Sum = typename SumOf<T>::type;
  static constexpr int J = J_, WarpsM = WarpsM_, WarpsN = WarpsN_, TM = TM_, TN = TN_;
  static constexpr int lanes_m = 4, lanes_n = 8;
  static constexpr int M = WarpsM * lanes_m * TM, N = WarpsN * lanes_n * TN;
  static constexpr int threads = 32 * J * WarpsM * WarpsN;
  /// A thread's columns: vectors of four, lanes_n·4 apart, then a pair if TN % 4.
  static constexpr int quads_n = TN / 4;
  /// A pass is the part that goes through shared memory at once on its way out: a vector of rows per thread.
  static constexpr int passes = TM / 4;
  static constexpr int pass_rows = M / passes;

  static_assert(TM % 4 == 0 && TN % 2 == 0 && threads <= 1024);
};

/// A thread's place in its block's tiles.
template <class Tile>
struct Place {
  int j, warp_m, warp_n, lane_m, lane_n;

  __device__ Place() {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    j = warp / (Tile::WarpsM * Tile::WarpsN);
    warp_m = warp / Tile::WarpsN % Tile::WarpsM;
    warp_n = warp % Tile::WarpsN;
    // Bits of m and n alternate: a 16-byte load from shared memory takes half the cycles if lanes that differ
    // in bit 0, or in bit 1, read the same address.
    lane_m = (lane & 1) | (lane >> 1 & 2);
    lane_n = (lane >> 1 & 1) | (lane >> 2 & 6);
  }
  /// The row and column of the thread's first element in its vectors.
  __device__ int row() const { return warp_m * (Tile::lanes_m * Tile::TM) + lane_m * 4; }
  __device__ int column() const { return warp_n * (Tile::lanes_n * Tile::TN) + lane_n * 4; }
  __device__ int pair_column() const {
    return warp_n * (Tile::lanes_n * Tile::TN) + Tile::quads_n * Tile::lanes_n * 4 + lane_n * 2;
  }
};

template <class Sum, int Count>
struct alignas(Count * sizeof(Sum) < 16 ? Count * sizeof(Sum) : 16) Run {
  Sum value[Count];
};

/// Adds the products of a chunk: Left::Depth columns of the left operand times rows of the right one, at this
/// thread's own j and place. (The pair of columns is read if TN % 4 says that there is one.)
template <class Tile, class Left, class Right>
__device__ inline void add_products(typename Tile::Sum (&sums)[Tile::TM][Tile::TN],
                                    const typename Tile::Sum* left, const typename Tile::Sum* right,
                                    const typename Tile::Sum* right_pair) {
  using Sum = typename Tile::Sum;
  // With wide sums, or the addresses of two operands, no registers are left for reading ahead.
  constexpr int ahead = sizeof(Sum) == 4 && Right::read_ahead ? 1 : 0;
  Sum a[ahead + 1][Tile::TM], b[ahead + 1][Tile::TN];
  const auto read = [&](int depth) {
    const int to = depth % (ahead + 1);
#pragma unroll
    for (int q = 0; q < Tile::TM / 4; ++q) {
      const auto run =
          *reinterpret_cast<const Run<Sum, 4>*>(left + depth * Left::pitch + q * Tile::lanes_m * 4);
#pragma unroll
      for (int r = 0; r < 4; ++r) a[to][q * 4 + Left::permuted(r, depth)] = run.value[r];
    }
#pragma unroll
    for (int q = 0; q < Tile::quads_n; ++q) {
      const auto run =
          *reinterpret_cast<const Run<Sum, 4>*>(right + depth * Right::pitch + q * Tile::lanes_n * 4);
#pragma unroll
      for (int r = 0; r < 4; ++r) b[to][q * 4 + Right::permuted(r, depth)] = run.value[r];
    }
    if constexpr (Tile::TN % 4 != 0) {
      const auto run = *reinterpret_cast<const Run<Sum, 2>*>(right_pair + depth * Right::pitch);
      b[to][Tile::TN - 2] = run.value[0];
      b[to][Tile::TN - 1] = run.value[1];
    }
  };
  if constexpr (ahead == 1) read(0);
#pragma unroll
  for (int depth = 0; depth < Left::Depth; ++depth) {
    if constexpr (ahead == 0) read(depth);
    if (ahead == 1 && depth + 1 < Left::Depth) read(depth + 1);
#pragma unroll
    for (int m = 0; m < Tile::TM; ++m) {
#pragma unroll
      for (int n = 0; n < Tile::TN; ++n)
        multiply_add(sums[m][n], a[depth % (ahead + 1)][m],
                     Right::conjugated ? conjugate(b[depth % (ahead + 1)][n]) : b[depth % (ahead + 1)][n]);
    }
  }
}

}  // namespace kronsparse::cuda::simt
