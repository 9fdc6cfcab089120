// The kernel `gradient-mma`: the gradient of the values on tensor cores from sm_80 on (mma.sync).
//
// g and x stream through a ring of stages in shared memory as they lie in memory (tiles.cuh). Lanes load them
// as operands, and the sums, (outputs k, inputs l) for each j, stay in registers until the batch has passed.
//
// A lane's part of an operand is words of two samples of one row and one j. If memory is contiguous along the
// samples (columns) or the rows (rows), ldmatrix loads them, transposed for the latter. In runs, neighbours
// are j: a lane reads a vector of j for each of four samples and sorts pairs of samples with byte
// permutations, which gives the operands of as many products as the vector has j. Which sample has which
// place in a product is free as long as g and x agree. Lanes that read together take neighbouring samples,
// whose pitch puts them into different banks.
//
// The blocks of a cluster split the batch and add up their sums through distributed shared memory, in the
// order of their ranks: two runs give the same bits.
#pragma once

#include "cuda/gradient/mma/tiles.cuh"

namespace kronsparse::cuda {

template <Arithmetic A, GradientShape S>
struct GradientTraits {
  static constexpr Arithmetic arithmetic = A;
  static constexpr GradientShape shape = S;
  static constexpr int products = S.vector;
  static constexpr int m_tiles = S.m / 16;
  static constexpr int n_tiles = S.n / 8;
  /// Neighbours in shared memory are j.
  static constexpr bool runs = S.form == GradientForm::runs;
  static_assert(A == Arithmetic::f16 || A == Arithmetic::bf16);
  static_assert(S.m % 16 == 0 && S.n % 16 == 0);
  static_assert(S.vector == 1 || S.vector == 2 || S.vector == 4 || S.vector == 8,
                "one load from shared memory");
  static_assert(runs || S.vector == 1);
  static_assert(S.row_j % S.vector == 0);
  static_assert(products * m_tiles * n_tiles * 4 * S.threads <= 128 * 256, "half of the registers are sums'");
};

namespace gradient {

/// The part of a block's tile that a warp computes, and the lane's place in it.
struct WarpPlace {
  int j, m, n;  ///< first of each
  int g, t;     ///< lane = 4g + t, as in the description of fragments
};

template <class Traits>
__device__ inline WarpPlace warp_place(const GradientArguments& p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int in_j = warp % (p.warps_m * p.warps_n);
  return {warp / (p.warps_m * p.warps_n) * Traits::products, in_j / p.warps_n * Traits::shape.m,
          in_j % p.warps_n * Traits::shape.n, lane / 4, lane % 4};
}

template <class Traits>
using Sums = float[Traits::products][Traits::m_tiles][Traits::n_tiles][4];  // (j, 16 k, 8 l, 4 sums)

template <class Traits>
__device__ inline void multiply(float (&sums)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (Traits::arithmetic == Arithmetic::bf16)
    ptx::mma_bf16(sums, a, b0, b1);
  else
    ptx::mma_f16(sums, a, b0, b1);
}

/// 8 rows of an operand for `Vector` products: samples t, t + 4 and t + 8, t + 12 of a step, as two words.
template <int Vector>
using Piece = std::uint32_t[Vector][2];

template <int Vector>
__device__ inline void load_vector(std::uint32_t from, std::uint32_t (&words)[(Vector + 1) / 2]) {
  if constexpr (Vector == 8) {
    const uint4 v = ptx::load_shared_16(from);
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
  } else if constexpr (Vector == 4) {
    const uint2 v = ptx::load_shared_8(from);
    words[0] = v.x;
    words[1] = v.y;
  } else if constexpr (Vector == 2) {
    words[0] = ptx::load_shared_4(from);
  } else {
    words[0] = ptx::load_shared_2(from);
  }
}

template <int Vector>
__device__ inline void load_piece(std::uint32_t from, int four_samples, Piece<Vector>& piece) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t first[(Vector + 1) / 2], second[(Vector + 1) / 2];
    load_vector<Vector>(from + 2 * half * four_samples, first);
    load_vector<Vector>(from + (2 * half + 1) * four_samples, second);
#pragma unroll
    for (int j = 0; j < Vector; ++j)
      piece[j][half] = __byte_perm(first[j / 2], second[j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
  }
}

/// Multiplies a step of runs. `g` and `x` are the lane's places in the first of its samples.
template <class Traits>
__device__ inline void multiply_runs(const GradientArguments& p, std::uint32_t g, std::uint32_t x,
                                     Sums<Traits>& sums) {
  constexpr int vector = Traits::products;
  const int eight_rows = 16 * (Traits::shape.row_j != 0 ? Traits::shape.row_j : p.out.block_j);
  Piece<vector> a[2 * Traits::m_tiles];  // (8 k)
#pragma unroll
  for (int at = 0; at < 2 * Traits::m_tiles; ++at)
    load_piece<vector>(g + at * eight_rows, 4 * p.g.pitch, a[at]);
#pragma unroll
  for (int n = 0; n < Traits::n_tiles; ++n) {
    Piece<vector> b;
    load_piece<vector>(x + n * eight_rows, 4 * p.x.pitch, b);
#pragma unroll
    for (int j = 0; j < vector; ++j)
#pragma unroll
      for (int m = 0; m < Traits::m_tiles; ++m)
        multiply<Traits>(sums[j][m][n],
                         uint4{a[2 * m][j][0], a[2 * m + 1][j][0], a[2 * m][j][1], a[2 * m + 1][j][1]},
                         b[j][0], b[j][1]);
  }
}

/// Multiplies a step of rows or columns. Lane 8q + r gives row r of matrix q. Matrices of g go along the rows
/// first and then along the samples, those of x the other way round.
template <class Traits>
__device__ inline void multiply_matrices(const GradientArguments& p, const WarpPlace& at, std::uint32_t g,
                                         std::uint32_t x, int step, Sums<Traits>& sums) {
  constexpr bool columns = Traits::shape.form == GradientForm::columns;
  const int lane = 4 * at.g + at.t;
  const int r = lane % 8, low = lane / 8 % 2, high = lane / 16;
  const auto load = [&](const GradientOperand& operand, std::uint32_t from, int row, int eight_samples) {
    if constexpr (columns) {
      const int unit = step * 2 + eight_samples;
      return ptx::load_matrices(from + (row + r) * operand.pitch + ((unit ^ r) * 16));
    } else {
      return ptx::load_matrices_transposed(
          from + (step * kGradientStep + eight_samples * 8 + r) * operand.pitch + row * 2);
    }
  };
  uint4 a[Traits::m_tiles];  // (16 k)
#pragma unroll
  for (int m = 0; m < Traits::m_tiles; ++m) a[m] = load(p.g, g, at.m + m * 16 + low * 8, high);
#pragma unroll
  for (int n = 0; n < Traits::n_tiles; n += 2) {
    const uint4 b = load(p.x, x, at.n + n * 8 + high * 8, low);
#pragma unroll
    for (int m = 0; m < Traits::m_tiles; ++m) {
      multiply<Traits>(sums[0][m][n], a[m], b.x, b.y);
      multiply<Traits>(sums[0][m][n + 1], a[m], b.z, b.w);
    }
  }
}

/// Multiplies all samples of a stage.
template <class Traits>
__device__ inline void multiply_stage(const GradientArguments& p, const WarpPlace& at, std::uint32_t stage,
                                      Sums<Traits>& sums) {
  const std::uint32_t g = stage, x = stage + p.x_offset;
  const int steps = p.stage_samples / kGradientStep;
  if constexpr (Traits::runs) {
    const int row_bytes = 2 * (Traits::shape.row_j != 0 ? Traits::shape.row_j : p.out.block_j);
    // The samples are t + 4i. So odd samples, whose pairs of units are exchanged, belong to odd lanes.
    const int exchanged = (at.t & p.swizzle) * 16;
    std::uint32_t g_at = g + at.t * p.g.pitch + (((at.m + at.g) * row_bytes + at.j * 2) ^ exchanged);
    std::uint32_t x_at = x + at.t * p.x.pitch + (((at.n + at.g) * row_bytes + at.j * 2) ^ exchanged);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      multiply_runs<Traits>(p, g_at, x_at, sums);
      g_at += kGradientStep * p.g.pitch;
      x_at += kGradientStep * p.x.pitch;
    }
  } else {
#pragma unroll 1
    for (int step = 0; step < steps; ++step) multiply_matrices<Traits>(p, at, g, x, step, sums);
  }
}

__device__ inline void wait_for_stage(int stages) {
  if (stages == 4)
    ptx::wait_copies<2>();
  else
    ptx::wait_copies<1>();
}

/// Sums the block's part of the batch. Copies run `stages - 1` stages ahead.
template <class Traits>
__device__ inline void sum_samples(const GradientArguments& p, const WarpPlace& at, std::uint32_t shared,
                                   Sums<Traits>& sums) {
  const Tile tile = block_tile(p.tiles, p.out);
  Copier<Traits::shape.form> g(p, p.g, tile, tile.k0);
  Copier<Traits::shape.form> x(p, p.x, tile, tile.l0);
  int left = tile.samples;  // samples still to copy
  int to = 0, from = 0;     // stages
  const auto copy = [&] {
    if (left > 0) {
      const std::uint32_t stage = shared + to * p.stage_bytes;
      const int now = min(left, p.stage_samples);
      g.copy(stage, now);
      x.copy(stage + p.x_offset, now);
      left -= now;
    }
    ptx::commit_copies();
    if (++to == p.stages) to = 0;
  };
  for (int ahead = 1; ahead < p.stages; ++ahead) copy();
#pragma unroll 1
  for (int done = 0; done < tile.samples; done += p.stage_samples) {
    wait_for_stage(p.stages);
    __syncthreads();  // everybody's copies have landed, and everybody has read the previous stage
    copy();
    multiply_stage<Traits>(p, at, shared + from * p.stage_bytes, sums);
    if (++from == p.stages) from = 0;
  }
  ptx::wait_copies<0>();
  __syncthreads();
}

/// Puts the sums into shared memory in the order of y: rows k of (l, j), j fastest.
template <class Traits>
__device__ inline void put_sums(const GradientArguments& p, const WarpPlace& at, std::uint32_t shared,
                                const Sums<Traits>& sums) {
  const auto bits = [](float value) { return __float_as_uint(value); };
  constexpr bool runs = Traits::runs;
#pragma unroll
  for (int m = 0; m < Traits::m_tiles; ++m)
#pragma unroll
    for (int n = 0; n < Traits::n_tiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; e += runs ? 1 : 2) {
        const int k = at.m + m * 16 + at.g + e / 2 * 8;
        const int l = at.n + n * 8 + 2 * at.t + e % 2;
        const std::uint32_t to = shared + k * p.out.pitch + (l * p.out.block_j + at.j) * 4;
        if constexpr (!runs) {
          ptx::store_shared_8(to, bits(sums[0][m][n][e]), bits(sums[0][m][n][e + 1]));
        } else if constexpr (Traits::products == 1) {
          ptx::store_shared_4(to, bits(sums[0][m][n][e]));
        } else if constexpr (Traits::products == 2) {
          ptx::store_shared_8(to, bits(sums[0][m][n][e]), bits(sums[1][m][n][e]));
        } else {
#pragma unroll
          for (int j = 0; j < Traits::products; j += 4)
            ptx::store_shared_16(to + 4 * j, bits(sums[j][m][n][e]), bits(sums[j + 1][m][n][e]),
                                 bits(sums[j + 2][m][n][e]), bits(sums[j + 3][m][n][e]));
        }
      }
}

}  // namespace gradient

template <class Traits>
__global__ void __launch_bounds__(Traits::shape.threads, 1)
    gradient_mma(const __grid_constant__ GradientArguments p) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  const std::uint32_t shared = ptx::shared_address(shared_memory);
  if (p.overlaps) {
    ptx::let_later_kernels_start();
    ptx::wait_for_earlier_kernels();
  }
  const gradient::WarpPlace at = gradient::warp_place<Traits>(p);
  gradient::Sums<Traits> sums = {};
  gradient::sum_samples<Traits>(p, at, shared, sums);
  gradient::put_sums<Traits>(p, at, shared, sums);
  if (p.out.splits == 1)
    __syncthreads();
  else
    ptx::cluster_barrier();
  gradient::store_sums<Traits>(p.out, gradient::block_tile(p.tiles, p.out), shared,
                               static_cast<int>(blockDim.x) / 32);
  if (p.out.splits != 1) ptx::cluster_barrier();  // nobody reads this block's shared memory any more
}

}  // namespace kronsparse::cuda
