// The store of the register tiles of tiles.cuh. Sums go through shared memory, so that a warp writes runs of
// neighbouring j (or samples), and bias and activation are compiled once per kernel, not once per register.
#pragma once

#include "cuda/device/epilogue.cuh"
#include "cuda/large_batch/simt/tiles.cuh"

namespace kronsparse::cuda::simt {

/// The destination of a block's tile, and its epilogue. It waits at the start of shared memory, not in
/// registers, until the sums are there.
template <class T>
struct Target {
  T* start;                    ///< address of row 0, column 0, j 0
  const T* bias;               ///< bias of column 0, j 0; null for none
  std::int64_t row_stride;     ///< between neighbouring rows of y
  std::int64_t column_stride;  ///< neighbouring j are contiguous
  std::int64_t bias_stride;    ///< between neighbouring columns of the bias; neighbouring j are contiguous
  int rows, columns, js;       ///< sizes that exist
  Activation activation;
  bool vectors;  ///< f32: whether four elements are stored at once, along j, or along the contiguous side of
                 ///< the only j
};
inline constexpr std::size_t target_bytes = 64;
static_assert(sizeof(Target<double>) <= target_bytes);

/// The part of `size` from `first` on, at most a tile.
__device__ inline int extent(std::int64_t size, std::int64_t first, int tile) {
  return static_cast<int>(size - first < tile ? size - first : tile);
}

/// Shared memory of one pass, as (j, row, column) or, with RowsInside, (column, row).
template <class Tile, bool RowsInside>
struct Staging {
  using Sum = typename Tile::Sum;
  static constexpr int R = Tile::pass_rows, N = Tile::N;
  static_assert(!RowsInside || Tile::J == 1);

  // Lanes that write one vector each are 4 rows (or columns) apart. A skew of two vectors (four, for four
  // lanes side by side) for each 4 rows sends them to different banks.
  static constexpr int skew = RowsInside ? 16 : 8;
  static constexpr int plane = RowsInside ? N * R + N / 4 * skew
                                          : R * N + R / 4 * skew +
                                                (Tile::J == 1 ? 0
                                                              : 32 / (Tile::J > 4   ? 8
                                                                      : Tile::J > 2 ? 4
                                                                                    : 2));
  static constexpr std::size_t bytes = sizeof(Sum) * plane * Tile::J;

  __device__ static int at(int j, int row, int column) {
    return RowsInside ? column * R + column / 4 * skew + row : j * plane + row * N + row / 4 * skew + column;
  }
  /// The tile's row that is row `row` of this pass.
  __device__ static int tile_row(int pass, int row) {
    constexpr int group = Tile::lanes_m * 4;
    return row / group * (group * Tile::passes) + pass * group + row % group;
  }

  /// Puts this thread's vector of rows of this pass (`pass` is a constant after unrolling).
  __device__ static void put(Sum* staging, const Sum (&sums)[Tile::TM][Tile::TN], int pass,
                             const Place<Tile>& place) {
    const int row = place.warp_m * (Tile::lanes_m * 4) + place.lane_m * 4;
    const int column = place.column();
    if constexpr (RowsInside) {
#pragma unroll
      for (int n = 0; n < Tile::TN; ++n) {
        const int to =
            n < Tile::quads_n * 4 ? column + n / 4 * Tile::lanes_n * 4 + n % 4 : place.pair_column() + n % 4;
        Run<Sum, 4> run;
#pragma unroll
        for (int r = 0; r < 4; ++r) run.value[r] = sums[pass * 4 + r][n];
        *reinterpret_cast<Run<Sum, 4>*>(staging + at(0, row, to)) = run;
      }
    } else {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        Sum* line = staging + at(place.j, row, 0) + r * N;
#pragma unroll
        for (int q = 0; q < Tile::quads_n; ++q) {
          Run<Sum, 4> run;
#pragma unroll
          for (int s = 0; s < 4; ++s) run.value[s] = sums[pass * 4 + r][q * 4 + s];
          *reinterpret_cast<Run<Sum, 4>*>(line + column + q * Tile::lanes_n * 4) = run;
        }
        if constexpr (Tile::TN % 4 != 0)
          *reinterpret_cast<Run<Sum, 2>*>(line + place.pair_column()) = {sums[pass * 4 + r][Tile::TN - 2],
                                                                         sums[pass * 4 + r][Tile::TN - 1]};
      }
    }
  }
};

/// Bias, activation and rounding of one element.
template <bool Activated, class T, class Sum>
__device__ inline T finish(Sum sum, Sum bias, Activation activation) {
  sum = plus(sum, bias);
  if constexpr (Activated && std::is_floating_point_v<Sum>) sum = activate(sum, activation);
  return narrow<T>(sum);
}

/// Stores a pass whose rows lie apart and whose (column, j) are neighbours. Threads keep their column and
/// walk over rows first, first + every, ... `read(offset)` is the finished sum at that offset of the staging
/// memory.
template <class Tile, int Width, bool Activated, class Read>
__device__ inline void store_rows(const Target<typename Tile::T>& target, int pass, int first, int every,
                                  const Read& read) {
  using S = Staging<Tile, false>;
  using T = typename Tile::T;
  using Sum = typename Tile::Sum;
  // Vectors lie along j, or along columns if there is one j.
  constexpr int j_width = Tile::J == 1 ? 1 : Width, column_width = Tile::J == 1 ? Width : 1;
  constexpr int js = Tile::J / j_width;
  constexpr int lanes = Tile::N / column_width * js;
  constexpr int row_lanes = lanes < Tile::threads ? Tile::threads / lanes : 1;
  const int thread = static_cast<int>(threadIdx.x);
  const int row_lane = lanes < Tile::threads ? thread / lanes : 0;
  if (row_lane >= row_lanes) return;  // threads left over

  for (int lane = lanes < Tile::threads ? thread % lanes : thread; lane < lanes; lane += Tile::threads) {
    const int j = lane % js * j_width, column = lane / js * column_width;
    if (j >= target.js || column >= target.columns) continue;
    Sum bias[Width] = {};
    if (target.bias != nullptr) {
#pragma unroll
      for (int v = 0; v < Width; ++v)
        bias[v] = widen(
            target.bias[(column + (Tile::J == 1 ? v : 0)) * target.bias_stride + j + (Tile::J == 1 ? 0 : v)]);
    }
    T* const to = target.start + column * target.column_stride + j;
#pragma unroll(Activated ? 1 : 4)
    for (int row = first + row_lane * every; row < S::R; row += row_lanes * every) {
      const int tile_row = S::tile_row(pass, row);
      if (tile_row >= target.rows) break;
      T* const at = to + tile_row * target.row_stride;
      if constexpr (Width == 1) {
        *at = finish<Activated, T>(read(S::at(j, row, column)), bias[0], target.activation);
      } else {
        Run<T, Width> run;
#pragma unroll
        for (int v = 0; v < Width; ++v)
          run.value[v] = finish<Activated, T>(
              read(S::at(j + (Tile::J == 1 ? 0 : v), row, column) + (Tile::J == 1 ? v : 0)), bias[v],
              target.activation);
        *reinterpret_cast<Run<T, Width>*>(at) = run;
      }
    }
  }
}

/// Stores a pass whose rows are neighbours (samples, batch_last).
template <class Tile, int Width, bool Activated>
__device__ inline void store_columns(const Target<typename Tile::T>& target, int pass,
                                     const typename Tile::Sum* staging) {
  using S = Staging<Tile, true>;
  using T = typename Tile::T;
  constexpr int lanes = S::R / Width;
  static_assert(Tile::threads % lanes == 0);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread % lanes * Width, tile_row = S::tile_row(pass, row);
  if (tile_row >= target.rows) return;
  T* const to = target.start + tile_row * target.row_stride;
#pragma unroll(Activated ? 1 : 4)
  for (int column = thread / lanes; column < Tile::N; column += Tile::threads / lanes) {
    if (column >= target.columns) break;
    typename Tile::Sum bias{};
    if (target.bias != nullptr) bias = widen(target.bias[column * target.bias_stride]);
    T* const at = to + column * target.column_stride;
    Run<T, Width> run;
#pragma unroll
    for (int v = 0; v < Width; ++v)
      run.value[v] = finish<Activated, T>(staging[S::at(0, row, column) + v], bias, target.activation);
    if (Width == 1 || tile_row + Width > target.rows) {
#pragma unroll
      for (int v = 0; v < Width; ++v)
        if (tile_row + v < target.rows) at[v] = run.value[v];
    } else {
      *reinterpret_cast<Run<T, Width>*>(at) = run;
    }
  }
}

/// Stores all sums of a block. Every thread of the block calls it, after the block has finished with the
/// shared memory at `staging`.
template <class Tile, bool RowsInside>
__device__ inline void store_tile(const typename Tile::Sum (&sums)[Tile::TM][Tile::TN],
                                  typename Tile::Sum* staging, const Target<typename Tile::T>& target) {
  using Sum = typename Tile::Sum;
  constexpr bool has_vectors = std::is_same_v<typename Tile::T, float> && (Tile::J == 1 || Tile::J % 4 == 0);
  constexpr int width = has_vectors ? 4 : 1;
  constexpr bool activates = std::is_floating_point_v<Sum>;
  const Place<Tile> place;
  static_assert(Tile::passes <= 2);
#pragma unroll 1
  for (int pass = 0; pass < Tile::passes; ++pass) {
    // A branch selects the registers, so that the stores are compiled once.
    if (pass == 0) {
      Staging<Tile, RowsInside>::put(staging, sums, 0, place);
    } else {
      __syncthreads();
      Staging<Tile, RowsInside>::put(staging, sums, Tile::passes - 1, place);
    }
    __syncthreads();
    const auto read = [staging](int offset) { return staging[offset]; };
    const bool vectors = has_vectors && target.vectors;
    if constexpr (RowsInside) {
      if (activates && target.activation != Activation::none) {
        store_columns<Tile, 1, activates>(target, pass, staging);
      } else if (vectors) {
        store_columns<Tile, width, false>(target, pass, staging);
      } else {
        store_columns<Tile, 1, false>(target, pass, staging);
      }
    } else {
      if (activates && target.activation != Activation::none) {
        store_rows<Tile, 1, activates>(target, pass, 0, 1, read);
      } else if (vectors) {
        store_rows<Tile, width, false>(target, pass, 0, 1, read);
      } else {
        store_rows<Tile, 1, false>(target, pass, 0, 1, read);
      }
    }
  }
}

}  // namespace kronsparse::cuda::simt
