// Samples as tile rows. For one block i and one segment of j, lane (k, j) of a
// panel accumulates sum_l w[k,l,j] · x[n, l, j]; the group x[n, l, first..first+G)
// is loaded as it lies in X, and what leaves the registers are runs of Y.
//
// Segments narrower than a vector read X in place where storage allows. Those
// that fill the vector load as much of x as of the weights, so their x is copied
// first, a cache-sized block at a time, into the order the kernel walks; so is x
// in 16-bit or complex storage, in rows that collide in L1, and the rows of a
// small batch_last matrix. Where the instruction set prefers it, groups of all j
// are repeated in that copy until they fill vectors, and Y leaves in whole ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/run_operands.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/parallel.hpp"
#include "cpu/simd/weights.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::simd {

/// All segments of one kind: those as wide as a vector, or those narrower.
template <class Real>
class RowsPart {
 public:
  RowsPart(const Problem& problem, const KernelSet<Real>& kernels, const std::vector<Segments>& segments);

  void pack(const void* values, std::byte* packed) const {
    pack_rows(problem_, shape_, panels_, panel_lanes_, values, reinterpret_cast<Real*>(packed));
  }
  [[nodiscard]] std::size_t packed_bytes() const { return packed_size_ * sizeof(Real); }
  /// The unit that panels are counted in: together with the factor it says in which order they are packed.
  [[nodiscard]] int panel_lanes() const { return panel_lanes_; }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return static_cast<std::size_t>(copy_size_ + sums_size_) * sizeof(Real);
  }
  [[nodiscard]] std::int64_t tasks() const { return block_groups() * row_blocks() * units_.count; }
  /// The weights among the operands are this part's.
  void run(const RunOperands& operands, std::int64_t first_task, std::int64_t last_task,
           std::byte* scratch) const;

 private:
  /// Segments whose x is copied together, and the panels one task takes of them.
  struct Unit {
    std::int64_t first_j;  ///< reals
    std::int64_t width;    ///< reals
    std::int64_t first_panel;
    std::int64_t last_panel;
  };
  /// All units: the same number of segments each, but for the last, and of those the same number of panels.
  struct Units {
    std::int64_t first_j = 0;   ///< of all segments
    std::int64_t end_j = 0;     ///< of all segments
    std::int64_t width = 0;     ///< reals of a unit
    std::int64_t panels = 0;    ///< of all segments
    std::int64_t per_copy = 0;  ///< panels of the segments copied together
    std::int64_t per_task = 0;  ///< panels that a task takes of them
    std::int64_t tasks_per_copy = 0;
    std::int64_t count = 0;

    void set_per_task(std::int64_t panels_of_task);
    [[nodiscard]] Unit operator[](std::int64_t index) const;
  };
  struct Task {
    Unit unit;
    std::int64_t first_block;  ///< blocks i
    std::int64_t last_block;
    std::int64_t first_row;
    std::int64_t rows;
  };
  /// Terms [first, last) of a sum.
  struct Depth {
    std::int64_t first;
    std::int64_t last;
  };
  /// The place of one segment's x.
  struct Source {
    const Real* data;  ///< of the first row and the first term brought
    std::int64_t tile_stride;
    std::int64_t row_stride;
    std::int64_t step;
  };

  /// Whether the rows of a tile, as far apart as in X, would push each other out of L1.
  [[nodiscard]] bool rows_collide() const;
  void choose_blocks(const std::vector<Segments>& segments);
  void choose_units(const std::vector<Segments>& segments);
  [[nodiscard]] std::int64_t row_blocks() const { return (shape_.batch + row_block_ - 1) / row_block_; }
  [[nodiscard]] std::int64_t block_groups() const { return (shape_.a + block_group_ - 1) / block_group_; }
  [[nodiscard]] int tile_rows(const Panel& panel) const {
    return full_ ? full_tile_rows : kernels_.tile_rows[panel.vectors - 1];
  }
  /// The kernel for a panel and this many rows.
  [[nodiscard]] typename KernelSet<Real>::Tile tile_of(const Panel& panel, int rows) const;
  [[nodiscard]] Task task_at(std::int64_t index) const;
  /// Whether Y waits to be sent: where groups fill vectors, so that as much comes from L2 as can.
  [[nodiscard]] bool sends() const { return stream_ && full_ && kernels_.send != nullptr; }
  [[nodiscard]] Prefetch prefetch_of(const Operands& operands, const Task& task) const;
  void run_block(const RunOperands& operands, const Task& task, std::int64_t i, std::byte* scratch,
                 Prefetch& prefetch, Outbox<Real>& outbox) const;
  void copy_x(const void* x, const Task& task, std::int64_t i, Depth depth, Real* copy) const;
  [[nodiscard]] Source source_of(const void* x, const Task& task, std::int64_t i, const Segment& segment,
                                 std::int64_t terms, const Real* copy) const;
  void run_panel(const RunOperands& operands, const Task& task, const Panel& panel, const Source& source,
                 std::int64_t source_first, Depth depth, std::int64_t i, Real* sums, Prefetch& prefetch,
                 Outbox<Real>& outbox) const;
  void gather_bias(const void* bias, const Panel& panel, std::int64_t i, Real* gathered) const;

  Problem problem_;
  const KernelSet<Real>& kernels_;
  Shape shape_;
  std::int64_t d_;      ///< reals
  std::int64_t depth_;  ///< reals
  bool repeated_;       ///< groups of all j, repeated until they fill vectors
  bool full_;           ///< groups fill vectors, of themselves or repeated
  int group_lanes_;     ///< that a group takes: its width, or with what it is repeated
  int panel_lanes_;     ///< that panels are counted in: a vector, or a repeated group
  bool in_place_;
  Panels panels_;
  std::int64_t widest_;  ///< lanes of the widest panel
  Units units_;
  bool weights_stay_ = false;     ///< tasks of the same weights follow each other, not those of the same rows
  std::int64_t block_group_ = 1;  ///< blocks i per task
  std::int64_t row_block_ = 0;
  std::int64_t depth_block_ = 0;  ///< terms summed in registers before sums go to memory
  std::int64_t copy_depth_ = 0;   ///< terms whose x is copied at once
  std::int64_t copy_row_ = 0;     ///< reals between copied rows of narrow segments
  std::int64_t copy_size_ = 0;
  std::int64_t sums_size_ = 0;
  bool stream_ = false;
  /// Blocks i write parts of the same lines of Y, which therefore cannot be written around the caches.
  bool blocks_share_lines_ = false;
  std::size_t packed_size_ = 0;
};

}  // namespace kronsparse::simd
