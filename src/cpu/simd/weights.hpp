// Shapes in reals, and the packing of values into the order kernels read them.
//
// Complex numbers are computed as reals twice as wide, by one of two embeddings
// that keep the interleaved (re, im) storage of Y:
//   rows:    depth index (l, q), lane index (j, p):  y[k,(j,p)] = sum x'[(l,q),(j,p)] w'[k,(l,q),(j,p)]
//            with x' = re x or im x (by q) whatever p, and w' = (re, im) or (-im, re)
//   columns: depth index (l, q), column index (n, p): the rows of x and of i·x,
//            with w' = re w, im w
#pragma once

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
[[nodiscard]] std::vector<Segment> segments_of(std::int64_t d_reals, int lanes);

/// Some vectors of one segment's lanes (k, j), lane = k·width + (j - first).
struct Panel {
  int segment;
  int vectors;
  int lanes_valid;
  std::int64_t first_lane;
  std::int64_t offset;  ///< of its packed data, in reals per unit of depth
};
/// Panels of `outs` outputs over all segments; no panel is wider than `widest`
/// vectors and those of a segment differ by at most one vector.
[[nodiscard]] std::vector<Panel> panels_of(const std::vector<Segment>& segments, std::int64_t outs, int lanes,
                                           int widest);
/// Reals per unit of depth that all panels together take.
[[nodiscard]] std::int64_t packed_width(const std::vector<Panel>& panels, int lanes);

/// Packs for the row driver: [i][panel][depth·unit][vectors·lanes].
template <class Real>
void pack_rows(const Problem& problem, const Shape& shape, const std::vector<Segment>& segments,
               const std::vector<Panel>& panels, int lanes, const void* values, Real* packed);

/// Packs for the column driver: [i][j][k-panel][depth·unit][tile_rows].
template <class Real>
void pack_columns(const Problem& problem, const Shape& shape, int tile_rows, const void* values,
                  Real* packed);

}  // namespace kronsparse::simd
