// The functions that one instruction set provides for blocks of rank 1, as a table. ISA files see this, so it
// holds no inline functions: see cpu/simd/kernel_set.hpp.
#pragma once

#include <cstdint>

#include "cpu/simd/kernel_set.hpp"

namespace kronsparse::factorization {

inline constexpr int most_lanes = 8;

/// Elements of blocks in an array of complex or real numbers: where the first of each block is, and how far
/// neighbours along the shorter and the longer side of a block are apart.
template <class Real>
struct BlocksIn {
  Real* values;
  std::int64_t first[most_lanes];
  std::int64_t short_stride;
  std::int64_t long_stride;
};

/// What the singular value goes to.
enum class Centre : std::uint8_t { short_side, long_side, both };

/// Blocks, one in each lane, element (i, t) being near to u[i]·p[t]. What is told of further lanes counts as
/// nothing.
template <class Real>
struct RankOneTask {
  int blocks;  ///< at least 1, at most the lanes
  std::int64_t short_side, long_side;
  BlocksIn<const Real> whole;
  BlocksIn<Real> shorts;  ///< for u; null values: only the bound is wanted
  BlocksIn<Real> longs;   ///< for p
  Centre centre;
  double* memory;  ///< doubles_of_rank_one() of them, aligned to 64 bytes
};

/// Functions that return the sum of the blocks' squared distances, or less by rounding.
struct RankOneKernels {
  const simd::Isa* base;
  int lanes;
  double (*f32)(const RankOneTask<float>&);
  double (*f64)(const RankOneTask<double>&);
  double (*complex64)(const RankOneTask<float>&);
  double (*complex128)(const RankOneTask<double>&);
};

#if defined(__x86_64__)
extern const RankOneKernels rank_one_avx512;
extern const RankOneKernels rank_one_avx2;
#endif
extern const RankOneKernels rank_one_baseline;

/// Columns of a block that lie together in memory: a panel, all rows of which stay in L1.
inline constexpr std::int64_t panel_cols = 8;

}  // namespace kronsparse::factorization
