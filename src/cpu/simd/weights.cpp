#include "cpu/simd/weights.hpp"

#include <algorithm>
#include <new>

#include "core/checked.hpp"
#include "cpu/simd/values.hpp"
#include "cpu/threads.hpp"

namespace kronsparse::simd {

Shape shape_of(const Problem& problem) {
  const Pattern& p = problem.pattern();
  const bool transposed =
      problem.operation == Operation::transposed || problem.operation == Operation::adjoint;
  Shape shape{};
  shape.a = p.a;
  shape.outs = transposed ? p.c : p.b;
  shape.depth = transposed ? p.b : p.c;
  shape.d = p.d;
  shape.batch = problem.batch;
  shape.x_stride = problem.x_stride();
  shape.y_stride = problem.y_stride();
  shape.unit = is_complex(problem.dtype) ? 2 : 1;
  shape.storage = is_complex(problem.dtype)      ? Storage::complex
                  : problem.dtype == DType::f16  ? Storage::f16
                  : problem.dtype == DType::bf16 ? Storage::bf16
                                                 : Storage::same;
  shape.activation = static_cast<Act>(problem.activation);
  shape.layout = problem.layout;
  return shape;
}
static_assert(static_cast<int>(Act::none) == static_cast<int>(Activation::none) &&
              static_cast<int>(Act::relu) == static_cast<int>(Activation::relu) &&
              static_cast<int>(Act::gelu) == static_cast<int>(Activation::gelu) &&
              static_cast<int>(Act::gelu_tanh) == static_cast<int>(Activation::gelu_tanh) &&
              static_cast<int>(Act::silu) == static_cast<int>(Activation::silu));

std::size_t count_of(std::initializer_list<std::int64_t> sizes) {
  const std::optional<std::int64_t> count = checked_product(sizes);
  if (!count) throw std::bad_alloc();
  return static_cast<std::size_t>(*count);
}

std::size_t element_bytes(const Problem& problem) { return size_of(problem.dtype); }

std::vector<Segments> segments_of(std::int64_t d_reals, int lanes) {
  std::vector<Segments> all;
  std::int64_t first = 0;
  for (int width = lanes; width > 0; width /= 2) {
    const std::int64_t count = (d_reals - first) / width;
    if (count > 0) all.push_back({first, width, count});
    first += count * width;
  }
  return all;
}

Panels::Panels(const std::vector<Segments>& segments, std::int64_t outs, int lanes, int widest)
    : lanes_(lanes) {
  for (const Segments& alike : segments) {
    const std::int64_t vectors = (outs * alike.width + lanes - 1) / lanes;
    const std::int64_t panels = (vectors + widest - 1) / widest;
    Group group{};
    group.segments = alike;
    group.first_panel = size_;
    group.offset = packed_width_;
    group.lanes = outs * alike.width;
    group.width = vectors * lanes;
    group.panels_per_segment = panels;
    group.fewest_vectors = static_cast<int>(vectors / panels);
    group.wider_panels = vectors % panels;
    groups_.push_back(group);
    size_ += alike.count * panels;
    packed_width_ += alike.count * group.width;
  }
}

namespace {

/// w' of the row embedding: (re, im) for q = 0 and (-im, re) for q = 1, by p.
template <class Real>
Real embedded(std::complex<Real> w, int q, std::int64_t p) {
  if (q == 0) return p == 0 ? w.real() : w.imag();
  return p == 0 ? -w.imag() : w.real();
}

}  // namespace

template <class Real>
void pack_rows(const Problem& problem, const Shape& shape, const Panels& panels, int lanes,
               const void* values, Real* packed) {
  const std::int64_t depth_reals = shape.depth * shape.unit;
  const std::int64_t per_block = panels.packed_width() * depth_reals;
  with_values<Real>(problem, values, [&](auto read) {
    parallel_each(shape.a * panels.size(), threads_to_pack(shape.a * per_block), [&](std::int64_t task) {
      const std::int64_t i = task / panels.size();
      const Panel panel = panels[task % panels.size()];
      const Segment& segment = panel.segment;
      const int width = panel.vectors * lanes;
      Real* out = packed + i * per_block + panel.offset * depth_reals;
      for (std::int64_t l = 0; l < shape.depth; ++l) {
        for (int q = 0; q < shape.unit; ++q) {
          std::int64_t k = panel.first_lane / segment.width;
          std::int64_t j = segment.first + panel.first_lane % segment.width;
          for (int f = 0; f < width; ++f) {
            Real value = 0;
            if (f < panel.lanes_valid) {
              if constexpr (std::is_same_v<decltype(read(0, 0, 0, 0)), Real>) {
                value = read(i, k, l, j);
              } else {
                value = embedded(read(i, k, l, j / 2), q, j % 2);
              }
            }
            *out++ = value;
            if (++j == segment.first + segment.width) {
              j = segment.first;
              ++k;
            }
          }
        }
      }
    });
  });
}

template <class Real>
void pack_columns(const Problem& problem, const Shape& shape, int tile_rows, const void* values,
                  Real* packed) {
  const std::int64_t k_panels = (shape.outs + tile_rows - 1) / tile_rows;
  const std::int64_t per_product = k_panels * shape.depth * shape.unit * tile_rows;
  with_values<Real>(problem, values, [&](auto read) {
    const std::int64_t products = shape.a * shape.d;
    parallel_each(products, threads_to_pack(products * per_product), [&](std::int64_t task) {
      const std::int64_t i = task / shape.d;
      const std::int64_t j = task % shape.d;
      Real* out = packed + task * per_product;
      for (std::int64_t k0 = 0; k0 < shape.outs; k0 += tile_rows) {
        for (std::int64_t l = 0; l < shape.depth; ++l) {
          for (int q = 0; q < shape.unit; ++q) {
            for (std::int64_t k = k0; k < k0 + tile_rows; ++k) {
              Real value = 0;
              if (k < shape.outs) {
                if constexpr (std::is_same_v<decltype(read(0, 0, 0, 0)), Real>) {
                  value = read(i, k, l, j);
                } else {
                  const auto w = read(i, k, l, j);
                  value = q == 0 ? w.real() : w.imag();
                }
              }
              *out++ = value;
            }
          }
        }
      }
    });
  });
}

template void pack_rows<float>(const Problem&, const Shape&, const Panels&, int, const void*, float*);
template void pack_rows<double>(const Problem&, const Shape&, const Panels&, int, const void*, double*);
template void pack_columns<float>(const Problem&, const Shape&, int, const void*, float*);
template void pack_columns<double>(const Problem&, const Shape&, int, const void*, double*);

}  // namespace kronsparse::simd
