// Shapes in reals, and the packing of values into the order kernels read them.
//
// Complex numbers are computed as reals twice as wide, by one of two embeddings
// that keep the interleaved (re, im) storage of Y:
//   rows:    depth index (l, q), lane index (j, p):  y[k,(j,p)] = sum x'[(l,q),(j,p)] w'[k,(l,q),(j,p)]
//            with x' = re x or im x (by q) whatever p, and w' = (re, im) or (-im, re)
//   columns: depth index (l, q), column index (n, p): the rows of x and of i·x,
//            with w' = re w, im w
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/parallel.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::simd {

/// The product as computed: transposition resolved, sizes per (i, j).
struct Shape {
  std::int64_t a;
  std::int64_t outs;   ///< outputs per (i, j): b, or c when transposed
  std::int64_t depth;  ///< inputs per (i, j): c, or b when transposed
  std::int64_t d;
  std::int64_t batch;
  std::int64_t x_stride;  ///< elements
  std::int64_t y_stride;
  int unit;  ///< reals per element: 2 for complex numbers
  Storage storage;
  Act activation;
  Layout layout;
};
[[nodiscard]] Shape shape_of(const Problem& problem);

/// The product of sizes as a number of elements to allocate; std::bad_alloc where it exceeds 63 bits.
[[nodiscard]] std::size_t count_of(std::initializer_list<std::int64_t> sizes);

/// Bytes of one stored element.
[[nodiscard]] std::size_t element_bytes(const Problem& problem);

/// A run of 2^s neighbouring j: any d is a sum of such runs, the full vector
/// width as often as it fits, then the binary digits of what remains.
struct Segment {
  std::int64_t first;  ///< first j, in reals
  int width;           ///< G, a power of two, at most a vector
};
/// Neighbouring segments of one width, and nothing stored for each: d has no bound.
struct Segments {
  std::int64_t first;  ///< first j of the first, in reals
  int width;
  std::int64_t count;
};
/// One entry for each width, the widest first.
[[nodiscard]] std::vector<Segments> segments_of(std::int64_t d_reals, int lanes);

/// The reals of a group of all j that is copied over and over until it fills one vector or three: for d = 2,
/// 3 and 6, on instruction sets that prefer it. 0 where segments are faster: the copy must be worth its
/// while. What it spares are products' places for pairs (d = 2), or stores of Y by pieces (d = 3, 6); a group
/// of three vectors takes three times as much of x from L2.
template <class Real>
[[nodiscard]] int repeated_group(const Shape& shape, const KernelSet<Real>& kernels) {
  if (kernels.repeat == nullptr || shape.unit != 1 || shape.layout != Layout::batch_first) return 0;
  const bool is_worth_it = shape.d == 2   ? shape.outs >= 32
                           : shape.d == 3 ? shape.depth / 3 <= shape.outs
                                          : shape.d == 6 && shape.depth <= 192;
  if (!is_worth_it || shape.batch < full_tile_rows) return 0;
  return (shape.d % 3 == 0 ? 3 : 1) * kernels.lanes;
}

/// Whether a driver of columns reads rows of X as they lie, provided that they are short: where a slice of
/// them all stays in L1, and outputs are so few that a copy would save little of their widening.
template <class Real>
[[nodiscard]] bool columns_may_lie(const Shape& shape, const KernelSet<Real>& kernels) {
  constexpr std::int64_t most_panels = 2, most_lines = 256;
  return kernels.columns_in_place != nullptr &&
         (shape.storage == Storage::f16 || shape.storage == Storage::bf16) && shape.depth <= most_lines &&
         shape.outs <= most_panels * kernels.tile_rows[kernels.column_panel - 1];
}

/// Some vectors of one segment's lanes (k, j), lane = k·width + (j - first).
struct Panel {
  Segment segment;
  int vectors;  ///< or repeated groups
  int lanes_valid;
  std::int64_t first_lane;
  std::int64_t offset;  ///< of its packed data, in reals per unit of depth
};

/// Panels of `outs` outputs over all segments; no panel is wider than `widest`
/// vectors, and the first ones of a segment have at most one vector more than the
/// others. Computed when asked for: where sums are short, a table would be larger
/// than the weights.
class Panels {
 public:
  /// Segments of one width, which are cut alike.
  struct Group {
    Segments segments;
    std::int64_t first_panel;
    std::int64_t offset;  ///< of the first panel
    std::int64_t lanes;   ///< of a segment that stand for outputs
    std::int64_t width;   ///< of a segment, in whole vectors
    std::int64_t panels_per_segment;
    int fewest_vectors;
    std::int64_t wider_panels;  ///< that have a vector more
  };

  Panels(const std::vector<Segments>& segments, std::int64_t outs, int lanes, int widest);

  /// From now on so many neighbouring segments take turns: the first panel of each, then the second. Where
  /// panels are packed does not change.
  void take_together(std::int64_t segments) noexcept { together_ = segments; }

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] Panel operator[](std::int64_t index) const noexcept;
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }
  /// Reals per unit of depth that all panels together take.
  [[nodiscard]] std::int64_t packed_width() const noexcept { return packed_width_; }

 private:
  int lanes_;
  std::int64_t together_ = 1;  ///< segments
  std::vector<Group> groups_;  ///< as many as there are widths
  std::int64_t size_ = 0;
  std::int64_t packed_width_ = 0;
};

inline Panel Panels::operator[](std::int64_t index) const noexcept {
  std::size_t last = groups_.size() - 1;
  while (index < groups_[last].first_panel) --last;
  const Group& group = groups_[last];
  const std::int64_t whole = together_ * group.panels_per_segment;
  const std::int64_t set = (index - group.first_panel) / whole;
  const std::int64_t in_set = index - group.first_panel - set * whole;
  const std::int64_t set_segments = std::min(together_, group.segments.count - set * together_);
  const std::int64_t segment = set * together_ + in_set % set_segments;
  const std::int64_t within = in_set / set_segments;
  const std::int64_t first_vector = within * group.fewest_vectors + std::min(within, group.wider_panels);
  Panel panel{};
  panel.segment = {group.segments.first + segment * group.segments.width, group.segments.width};
  panel.vectors = group.fewest_vectors + (within < group.wider_panels ? 1 : 0);
  panel.first_lane = first_vector * lanes_;
  panel.lanes_valid = static_cast<int>(std::min<std::int64_t>(
      static_cast<std::int64_t>(panel.vectors) * lanes_, group.lanes - panel.first_lane));
  panel.offset = group.offset + segment * group.width + panel.first_lane;
  return panel;
}

/// Packs for the row driver: [i][panel][depth·unit][vectors·lanes].
template <class Real>
void pack_rows(const Problem& problem, const Shape& shape, const Panels& panels, int lanes,
               const void* values, Real* packed);

/// Packs for the column driver: [i][j][k-panel][depth·unit][tile_rows].
template <class Real>
void pack_columns(const Problem& problem, const Shape& shape, int tile_rows, const void* values,
                  Real* packed);

}  // namespace kronsparse::simd
