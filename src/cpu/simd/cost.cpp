#include "cpu/simd/cost.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/simd/drivers.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/turned.hpp"

namespace kronsparse::simd {
namespace {

// Fitted to runs on one Neoverse N1 (docs/notes/cpu.md); other CPUs of today should be within a factor of
// two.
constexpr double seconds_per_run = 2e-7;
constexpr double seconds_per_block = 4e-8;
constexpr double seconds_per_panel = 3.3e-8;
constexpr double seconds_per_tile = 1.8e-8;  // its call, its arguments, the ends of its loops
constexpr double seconds_per_copy = 9e-9;
constexpr double bytes_per_second = 9e9;  // of what is copied, read or written by whole vectors
constexpr double seconds_per_single = 2.8e-9;

/// The work for one block i.
struct Work {
  double flops = 0;    ///< also of the rows and lanes that only fill up tiles and vectors
  double tiles = 0;    ///< calls of the micro-kernel
  double panels = 0;   ///< whose places in the operands are found
  double copies = 0;   ///< runs of x or g, however short, that are copied by a call each
  double vectors = 0;  ///< reals that go from or to their place by whole vectors
  double singles = 0;  ///< reals that go one by one

  void move(double reals, bool by_vectors) { (by_vectors ? vectors : singles) += reals; }
};

double parts(std::int64_t total, std::int64_t part) {
  return std::ceil(static_cast<double>(total) / static_cast<double>(part));
}

/// Lanes of the last panel, where they do not fill it and so leave one by one. Panels have up to `most` times
/// so many lanes.
double lanes_left(std::int64_t total, std::int64_t lanes, std::int64_t most) {
  return total % lanes == 0 ? 0 : static_cast<double>(total % (lanes * most));
}

/// Rows computed for so many, in tiles of `height`: the last tile may be one of four rows, or of one.
double padded_rows(std::int64_t rows, int height) {
  const std::int64_t rest = rows % height;
  return static_cast<double>(rows - rest + (rest <= 1 ? rest : rest <= 4 ? 4 : height));
}

/// Rows of a tile of panels that are `vectors` wide together.
template <class Real>
int tile_height(const KernelSet<Real>& kernels, bool full, std::int64_t vectors) {
  return full ? full_tile_rows : kernels.tile_rows[std::min<std::int64_t>(vectors, kernels.widest_panel) - 1];
}

template <class Real>
Work work_of_rows(const Shape& shape, const KernelSet<Real>& kernels) {
  const bool batch_first = shape.layout == Layout::batch_first;
  const bool half = shape.storage == Storage::f16 || shape.storage == Storage::bf16;
  const std::int64_t d = shape.d * shape.unit;
  const auto depth = static_cast<double>(shape.depth * shape.unit);
  const auto batch = static_cast<double>(shape.batch);
  Work work;
  if (const int group = repeated_group(shape, kernels); group > 0) {
    const double lanes = parts(shape.outs * d, group) * group;
    work.flops = 2 * depth * lanes * padded_rows(shape.batch, full_tile_rows);
    work.tiles =
        parts(shape.batch, full_tile_rows) * std::ceil(lanes / (kernels.widest_full * kernels.lanes));
    work.panels = std::ceil(lanes / (kernels.widest_full * kernels.lanes));
    work.copies = batch * parts(shape.depth, 16);
    work.move(group * depth * batch, true);
    const double singles = lanes_left(shape.outs * d, group, kernels.widest_full * kernels.lanes / group);
    work.move(singles * batch, false);
    work.move((static_cast<double>(d * shape.outs) - singles) * batch, true);
    return work;
  }
  bool is_narrow = false;
  for (const Segments& alike : segments_of(d, kernels.lanes)) {
    const int width = alike.width;
    const auto count = static_cast<double>(alike.count);
    const bool full = width == kernels.lanes;
    const auto vectors = static_cast<std::int64_t>(parts(shape.outs * width, kernels.lanes));
    const auto lanes = static_cast<double>(vectors * kernels.lanes);
    const int height = tile_height(kernels, full, vectors);
    work.flops += count * 2 * depth * lanes * padded_rows(shape.batch, height);
    const double panels = count * parts(vectors, full ? kernels.widest_full : kernels.widest_panel);
    work.panels += panels;
    work.tiles += panels * parts(shape.batch, height);
    const bool in_place = !full && !half && shape.unit == 1 && batch_first;
    if (!in_place) {
      const bool by_vectors = shape.unit == 1 && batch_first;
      work.move(count * width * depth * batch, by_vectors);
      if (!by_vectors) {
        // One or two reals by one call, which takes half as long as one for a run.
        work.copies += count * width * depth * batch / (shape.unit * shape.unit) / 2;
      } else if (full) {
        work.copies += batch * parts(shape.depth, 16);
      } else if (!is_narrow) {  // all narrow segments are copied together
        work.copies += batch * (d < kernels.lanes ? 1.0 : depth);
      }
    }
    is_narrow = !full;
    const bool whole = batch_first && (full || width == d);
    const double singles = whole ? lanes_left(shape.outs * width, kernels.lanes, kernels.widest_panel)
                                 : static_cast<double>(shape.outs * width);
    work.move(count * singles * batch, false);
    work.move(count * (static_cast<double>(shape.outs * width) - singles) * batch, true);
  }
  // Segments that fill a vector and those that do not are two passes over x and y.
  if (batch_first && is_narrow && d > kernels.lanes)
    work.move((depth + static_cast<double>(shape.outs)) * static_cast<double>(d) * batch, true);
  return work;
}

template <class Real>
Work work_of_columns(const Shape& shape, const KernelSet<Real>& kernels) {
  const int height = kernels.tile_rows[kernels.column_panel - 1];
  const auto vectors = static_cast<std::int64_t>(parts(shape.batch * shape.unit, kernels.lanes));
  const auto depth = static_cast<double>(shape.depth * shape.unit);
  const auto lanes = static_cast<double>(vectors * kernels.lanes);
  const auto d = static_cast<double>(shape.d);
  Work work;
  work.flops = d * 2 * depth * lanes * padded_rows(shape.outs, height);
  work.panels = d * parts(shape.outs, height);
  work.tiles = work.panels * parts(vectors, kernels.column_panel);
  // Whole slices of a row by one call; what remains by another.
  const bool rest = shape.unit == 2 || shape.batch % (kernels.column_panel * kernels.lanes) != 0;
  work.copies = d * static_cast<double>(shape.depth) * (rest ? 2 : 1);
  work.vectors =
      d * (depth + static_cast<double>(shape.outs)) * static_cast<double>(shape.batch * shape.unit);
  return work;
}

template <class Real>
Work work_of_gradient(const Shape& shape, const KernelSet<Real>& kernels) {
  const std::int64_t d = shape.d * shape.unit;
  const auto terms = static_cast<double>(shape.batch * shape.unit);
  Work work;
  for (const Segments& alike : segments_of(d, kernels.lanes)) {
    const int width = alike.width;
    const auto count = static_cast<double>(alike.count);
    const bool full = width == kernels.lanes;
    const int rows = full ? full_tile_rows : max_tile_rows;
    const auto vectors = static_cast<std::int64_t>(parts(shape.depth * width, kernels.lanes));
    const double row_tiles = parts(shape.outs, rows);
    work.flops += count * 2 * terms * static_cast<double>(vectors * kernels.lanes) * row_tiles * rows;
    const double panels = count * parts(vectors, kernels.widest_panel);
    const double sample_blocks = parts(shape.batch, gradient_sample_block);
    work.tiles += panels * row_tiles * sample_blocks;
    // x once, g for every unit of panels.
    const double units = parts(vectors, gradient_panels_per_unit * kernels.widest_panel);
    // Found for the copy, for every tile and for the sums' way out; a unit's place is sought, too.
    work.panels += panels * (1 + row_tiles * sample_blocks) + count * units;
    const auto depth = static_cast<double>(shape.depth);
    const auto outs = static_cast<double>(shape.outs);
    const bool batch_first = shape.layout == Layout::batch_first;
    const bool by_vectors = shape.unit == 1 && batch_first && (full || width == d);
    work.move(count * width * terms * (depth + outs * units), by_vectors);
    work.move(count * width * depth * outs, (full || width == d) && shape.depth * width % kernels.lanes == 0);
    if (by_vectors) {
      const bool rest = shape.depth * width % kernels.lanes != 0;
      work.copies += count * (std::floor(depth * width / kernels.lanes) * sample_blocks +
                              static_cast<double>(shape.batch) * (units + (rest ? 1.0 : 0.0)));
    } else {
      const double runs = batch_first ? static_cast<double>(shape.batch) : sample_blocks * width / shape.unit;
      work.copies += count * (depth + outs * units) * runs;
    }
  }
  return work;
}

template <class Real>
Work work_of(const Problem& problem, const KernelSet<Real>& kernels) {
  const Shape shape = shape_of(problem);
  switch (driver_of(problem, kernels.lanes)) {
    case Driver::rows:
      return work_of_rows(shape, kernels);
    case Driver::columns:
      return work_of_columns(shape, kernels);
    case Driver::gradient:
      return work_of_gradient(shape, kernels);
  }
  return {};
}

template <class Real>
double seconds_of(const Work& work, const Problem& problem, const KernelSet<Real>& kernels) {
  const double per_block = seconds_per_block + work.panels * seconds_per_panel +
                           work.copies * seconds_per_copy + work.flops / kernels.flops_per_second +
                           work.tiles * seconds_per_tile + work.vectors * sizeof(Real) / bytes_per_second +
                           work.singles * seconds_per_single;
  return seconds_per_run + static_cast<double>(problem.pattern().a) * per_block;
}

template <class Real>
double seconds_as_it_lies(const Problem& problem, const KernelSet<Real>& kernels) {
  return seconds_of(work_of(problem, kernels), problem, kernels);
}

template <class Real>
double seconds_turned(const Problem& problem, const KernelSet<Real>& kernels) {
  const Shape shape = shape_of(turned(problem));
  Work work = work_of_columns(shape, kernels);
  if (columns_may_lie(shape, kernels)) {
    // No copies, and a call for all samples of a block.
    work.copies = 0;
    work.tiles = 0.4 * work.tiles;
    work.vectors = static_cast<double>(shape.d * (shape.outs + shape.depth / 2) * shape.batch);
  }
  return seconds_of(work, problem, kernels) + turning_seconds(problem);
}

}  // namespace

template <class Real>
bool is_faster_turned(const Problem& problem, const KernelSet<Real>& kernels) {
  return can_be_turned(problem) && seconds_turned(problem, kernels) < seconds_as_it_lies(problem, kernels);
}
template bool is_faster_turned<float>(const Problem&, const KernelSet<float>&);
template bool is_faster_turned<double>(const Problem&, const KernelSet<double>&);

template <class Real>
double seconds_alone(const Problem& problem, const KernelSet<Real>& kernels) {
  const double as_it_lies = seconds_as_it_lies(problem, kernels);
  return can_be_turned(problem) ? std::min(as_it_lies, seconds_turned(problem, kernels)) : as_it_lies;
}
template double seconds_alone<float>(const Problem&, const KernelSet<float>&);
template double seconds_alone<double>(const Problem&, const KernelSet<double>&);

}  // namespace kronsparse::simd
