// The path of the operands to the kernel `gradient-mma` (kernel.cuh).
//
// Tensor cores multiply one (i, j) at a time: G (outputs k x samples) by X (samples x inputs l). The sums are
// few and the batch is long, so both operands stream through a ring of stages in shared memory, where they
// lie as in memory:
//   runs       batch_first, d > 1: for each sample a run over rows (k or l) and the block's j.
//   rows       batch_first, d = 1: for each sample a run over rows.
//   columns    batch_last: for each row a run of samples.
// Copies are units of 16 bytes. Rows that do not exist are not copied, because their results are not stored
// either. Samples that do not exist are zeros.
#pragma once

#include <cstdint>

#include "cuda/gradient/store.cuh"

namespace kronsparse::cuda {

enum class GradientForm { runs, rows, columns };

/// The work of a warp. Every shape has its own kernel.
struct GradientShape {
  GradientForm form;
  int vector;           ///< neighbouring j that a lane reads at a time; these are all the warp's j
  int row_j;            ///< j from one row to the next in shared memory, if that is constant; else 0
  int m, n;             ///< outputs k and inputs l
  int threads;          ///< threads of a block, at most
  int least_block = 0;  ///< the least b and c
};

constexpr int kGradientStep = 16;           ///< samples of a product
constexpr int kGradientColumnSamples = 64;  ///< in a stage of columns: rows of 128 bytes

/// g or x. Distances are in bytes of memory; the pitch is in bytes of shared memory.
struct GradientOperand {
  const std::byte* data;
  std::int64_t to_next_i, to_next_row, to_next_j, to_next_sample;
  std::int64_t rows;  ///< b or c
  int tile_rows;      ///< rows of a block's tile
  int pitch;          ///< bytes between samples (runs, rows) or between rows (columns)
  int width;          ///< bytes of a copy: 16, 4, or 2 for addresses that allow no other
  int lanes_log;      ///< 2^lanes_log threads copy a run
};

/// The arguments of a launch.
struct GradientArguments {
  GradientOperand g, x;
  GradientOutput out;
  GradientTiles tiles;
  int warps_m, warps_n;
  int stage_samples, stages;
  int x_offset, stage_bytes;
  int swizzle;    ///< 1: odd samples have the two units of a pair exchanged
  bool overlaps;  ///< whether it overlaps the kernel before (launch.hpp)
};

namespace gradient {

/// Copies the first `elements` of 8, by copies of 2 to 16 bytes, and fills up with zeros.
__device__ inline void copy_unit(int width, std::uint32_t to, const std::byte* from, int elements) {
  if (width == 16) {
    ptx::copy_async_16(to, from, 2 * elements);
  } else if (width == 4 && elements % 2 == 0) {
#pragma unroll
    for (int word = 0; word < 4; ++word)
      ptx::copy_async_4(to + 4 * word, from + 4 * word, 2 * word < elements);
  } else {
    mma::store_elements(to, from, elements);
  }
}

/// Brings the samples of one operand, a stage at a time. A thread copies the same units of every run, so that
/// a copy costs a few additions.
template <GradientForm Form>
class Copier {
 public:
  __device__ Copier(const GradientArguments& p, const GradientOperand& operand, const Tile& tile,
                    std::int64_t row0)
      : p_(p), operand_(operand) {
    const int thread = static_cast<int>(threadIdx.x);
    const int lanes = 1 << operand.lanes_log;
    const int rows = static_cast<int>(min(operand.rows - row0, std::int64_t{operand.tile_rows}));
    unit_ = thread & (lanes - 1);
    run_ = thread >> operand.lanes_log;
    run_step_ = static_cast<int>(blockDim.x) >> operand.lanes_log;
    from_ = operand.data + tile.i * operand.to_next_i + row0 * operand.to_next_row +
            tile.j0 * operand.to_next_j + tile.n0 * operand.to_next_sample;
    if constexpr (columns) {
      runs_ = rows;
      units_ = kGradientColumnSamples / unit_elements;
      from_ += unit_ * unit_bytes;
      to_next_run_ = operand.to_next_row;
    } else {
      runs_ = p.stage_samples;
      to_next_run_ = operand.to_next_sample;
      if (p.out.block_j == p.out.d) {  // all rows and j of a sample are contiguous
        const int elements = rows * p.out.block_j;
        units_ = (elements + unit_elements - 1) / unit_elements;
        last_elements_ = elements - (units_ - 1) * unit_elements;
        from_ += unit_ * unit_bytes;
        to_next_units_ = std::int64_t{lanes} * unit_bytes;
      } else {  // two units of each row; the second may not exist
        const int second =
            static_cast<int>(min(p.out.d - tile.j0, std::int64_t{2 * unit_elements})) - unit_elements;
        elements_ = unit_ % 2 == 0 ? min(unit_elements, unit_elements + second) : max(0, second);
        units_ = 2 * rows;
        from_ += unit_ / 2 * operand.to_next_row + unit_ % 2 * unit_bytes;
        to_next_units_ = lanes / 2 * operand.to_next_row;
      }
    }
    from_ += run_ * to_next_run_;
    to_next_run_ *= run_step_;
  }

  /// Copies the next stage's samples, of which `left` exist, to `to` in shared memory.
  __device__ void copy(std::uint32_t to, int left) {
    if (operand_.width == 16)
      copy_all<true>(to, left);
    else
      copy_all<false>(to, left);
    from_ += p_.stage_samples * operand_.to_next_sample;
  }

 private:
  static constexpr bool columns = Form == GradientForm::columns;
  static constexpr int unit_elements = 8;
  static constexpr int unit_bytes = 16;

  template <bool Wide>
  __device__ void copy_all(std::uint32_t to, int left) const {
    const std::byte* from = from_;
    if constexpr (columns) {
      const int elements = max(0, min(unit_elements, left - unit_ * unit_elements));
#pragma unroll 4
      for (int run = run_; run < runs_; run += run_step_, from += to_next_run_)
        copy_unit(Wide ? 16 : operand_.width, to + run * operand_.pitch + ((unit_ ^ (run & 7)) * unit_bytes),
                  from, elements);
    } else {
#pragma unroll 1
      for (int run = run_; run < runs_; run += run_step_, from += to_next_run_) {
        const std::uint32_t row = to + run * operand_.pitch;
        const int exchanged = run & p_.swizzle;
        const std::byte* unit_from = from;
#pragma unroll 2
        for (int unit = unit_; unit < units_; unit += 1 << operand_.lanes_log, unit_from += to_next_units_) {
          const int elements = unit == units_ - 1 && last_elements_ != 0 ? last_elements_ : elements_;
          copy_unit(Wide ? 16 : operand_.width, row + ((unit ^ exchanged) * unit_bytes), unit_from,
                    run < left ? elements : 0);
        }
      }
    }
  }

  const GradientArguments& p_;
  const GradientOperand& operand_;
  int unit_, run_, run_step_;  ///< the thread's first unit and run, and the step to its next run
  int runs_ = 0, units_ = 0;
  int elements_ = unit_elements;  ///< elements of each unit, except perhaps the last
  int last_elements_ = 0;         ///< elements of the last unit; 0: the same
  const std::byte* from_;
  std::int64_t to_next_run_ = 0, to_next_units_ = 0;
};

}  // namespace gradient
}  // namespace kronsparse::cuda
