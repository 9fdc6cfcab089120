// Runs the packing kernel's threads on the CPU. For every order they write the same as packing element by
// element.
#include "cuda/packing/packing.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda/large_batch/gemm/search.hpp"
#include "cuda/large_batch/mma/search.hpp"
#include "cuda/large_batch/wgmma/search.hpp"
#include "cuda/small_batch/direct/search.hpp"
#include "cuda/small_batch/sums_stay/search.hpp"
#include "cuda/small_batch/weights_stay/search.hpp"
#include "cuda/small_batch/x_stays/mma/cut.cuh"
#include "cuda/small_batch/x_stays/wgmma/search.hpp"

namespace kronsparse::cuda {
namespace {

GpuFacts h200() {
  GpuFacts facts;
  facts.compute_capability = 90;
  facts.multiprocessors = 132;
  facts.shared_bytes = 227 << 10;
  facts.l2_bytes = std::size_t{50} << 20;
  facts.clock_hz = 1.98e9;
  facts.memory_rate = 4.26e12;
  return facts;
}

/// Values with random bits.
std::vector<std::byte> values_of(const Problem& problem) {
  std::vector<std::byte> values(static_cast<std::size_t>(problem.pattern().nnz()) * size_of(problem.dtype));
  std::mt19937 random(7);
  for (std::size_t at = 0; at + 4 <= values.size(); at += 4) {
    // Floats stay finite: the remainder of an infinity or a NaN does not matter.
    const auto bits = static_cast<std::uint32_t>(random()) & 0xbfffffffu;
    std::memcpy(values.data() + at, &bits, 4);
  }
  return values;
}

/// Packs all items of a task, into memory that holds something else.
std::vector<std::byte> packed_by(PackTask task, const std::vector<std::byte>& values, std::size_t bytes) {
  // Vectors are loaded byte by byte here, so addresses do not matter.
  std::vector<std::byte> packed(bytes, std::byte{0x5a});
  task.values = values.data();
  task.packed = packed.data();
  // The work of three threads.
  for (unsigned thread = 0; thread < 3; ++thread)
    if (task.is_wide)
      packing::pack_items<std::uint64_t>(task, thread, 3);
    else
      packing::pack_items<std::uint32_t>(task, thread, 3);
  return packed;
}

/// The forms and other properties of the tasks that came up.
struct Seen {
  std::set<int> forms;
  bool repeats = false, rows = false;
};

/// `place_at(index)` says which weight is the packed element `index`.
template <class PlaceAt>
void expect_packed(const Problem& problem, const PackLayout& layout, const PlaceAt& place_at, Seen& seen) {
  const std::vector<std::byte> values = values_of(problem);
  const Product p = product_of(problem);
  const std::size_t element = size_of(problem.dtype);
  const auto bytes = static_cast<std::size_t>(layout.all_units()) * 16;
  std::vector<std::byte> expected(bytes);
  for (std::size_t at = 0; at < bytes / element; ++at) {
    const PackedPlace place = place_at(static_cast<std::int64_t>(at));
    if (place.k >= p.b || place.l >= p.c || place.j >= p.d) continue;
    const bool transposed = is_transposed(problem.operation);
    const std::int64_t from =
        ((place.i * (transposed ? p.c : p.b) + (transposed ? place.l : place.k)) * (transposed ? p.b : p.c) +
         (transposed ? place.k : place.l)) *
            p.d +
        place.j;
    std::memcpy(expected.data() + at * element, values.data() + from * static_cast<std::int64_t>(element),
                element);
  }
  for (const int alignment : {16, 8, 4, 2}) {
    if (alignment < static_cast<int>(element)) continue;
    const PackTask task = pack_task(layout, alignment);
    seen.forms.insert(task.form);
    seen.repeats |= task.repeats > 1;
    seen.rows |= task.has_rows;
    ASSERT_EQ(task.items * task.repeats *
                  static_cast<unsigned>(pack_forms[static_cast<std::size_t>(task.form)].units),
              task.units / (task.splits_floats ? 2 : 1));
    ASSERT_TRUE(packed_by(task, values, bytes) == expected)
        << problem.to_string() << ", values at multiples of " << alignment << ", form " << task.form;
  }
  PackTask wide = pack_task(layout, static_cast<int>(element));
  if (pack_forms[static_cast<std::size_t>(wide.form)].vector_elements() == 1) {
    wide.is_wide = true;
    ASSERT_TRUE(packed_by(wide, values, bytes) == expected) << problem.to_string() << ", with 64 bits";
  }
}

/// Another cut of the same order.
template <class Cut>
Cut alike(const Cut& cut) {
  Cut other;
  take_order(other, packed_order(cut));
  return other;
}

template <class Cut>
void expect_cut_packed(const Problem& problem, const Cut& cut, Seen& seen) {
  const PackLayout layout = pack_layout(problem, cut);
  ASSERT_EQ(layout.all_units() * 16, weight_bytes(cut, product_of(problem)));
  expect_packed(
      problem, layout, [&](std::int64_t index) { return packed_place(cut, index); }, seen);
}

const char* const patterns[] = {"1x64x64x4",  "2x40x48x8",  "3x17x19x4", "1x100x36x16", "2x64x96x1",
                                "1x33x52x1",  "2x24x136x1", "2x17x19x2", "1x48x64x2",   "1x16x32x64",
                                "2x20x30x6",  "1x30x20x12", "1x19x33x3", "2x31x64x24",  "1x9x16x32",
                                "1x64x256x4", "1x13x128x8"};

/// Every pattern, transposed and not, for several batch sizes.
template <class Body>
void for_each_problem(const std::string& words, const Body& body) {
  for (const char* pattern : patterns)
    for (const char* operation : {"", "transposed "})
      for (const char* batch : {"1", "16", "64"})
        body(Problem::parse(operation + words + " B=" + batch + " " + pattern));
}

/// Calls the body for a few of the choices.
template <class Choices, class Body>
void for_some(const Choices& choices, const Body& body) {
  const std::size_t step = std::max<std::size_t>(choices.size() / 3, 1);
  for (std::size_t n = 0; n < choices.size(); n += step) body(choices[n].cut);
}

TEST(Packing, DirectOrders) {
  Seen seen;
  for_each_problem("f16 batch_first", [&](const Problem& problem) {
    const Product p = product_of(problem);
    if ((p.d % 2 != 0 && p.d != 1) || (p.d == 1 && p.c % 4 != 0)) return;
    for_some(direct::choices(problem, h200()),
             [&](const direct::Cut& cut) { expect_cut_packed(problem, cut, seen); });
  });
  EXPECT_GE(seen.forms.size(), 8u);
}

TEST(Packing, ResidentOrders) {
  Seen seen;
  for_each_problem("f16 batch_first", [&](const Problem& problem) {
    const Product p = product_of(problem);
    if (p.c * p.d % 64 != 0 || p.c * p.d > 4096 || p.d < 4 || (p.d & (p.d - 1)) != 0) return;
    for_some(weights_stay::choices(problem, h200()),
             [&](const weights_stay::Cut& cut) { expect_cut_packed(problem, cut, seen); });
  });
  EXPECT_GE(seen.forms.size(), 5u);
}

TEST(Packing, NarrowOrders) {
  Seen seen;
  for_each_problem("bf16 batch_first", [&](const Problem& problem) {
    const std::int64_t d = problem.pattern().d;
    if (d != 1 && d != 2 && d != 4) return;
    for_some(sums_stay::choices(problem, h200()),
             [&](const sums_stay::Cut& cut) { expect_cut_packed(problem, cut, seen); });
  });
  EXPECT_GE(seen.forms.size(), 6u);
}

TEST(Packing, StreamOrders) {
  Seen seen;
  for_each_problem("f16 batch_first", [&](const Problem& problem) {
    expect_cut_packed(problem, x_stays_wgmma::choose(problem, h200()).cut, seen);
  });
  // Cuts that no search chose, and others of the same order.
  const Problem problem = Problem::parse("f16 batch_first B=8 1x300x70x4");
  for (const int rows : {1, 2, 4})
    for (const int warpgroups : {1, 2})
      for (const int cluster : {1, 2}) {
        x_stays_wgmma::Cut cut;
        cut.j_group = 4;
        cut.rows = rows;
        cut.warpgroups = warpgroups;
        cut.cluster = cluster;
        cut.chunks = 2 / cluster;
        cut.run = 2;
        cut.k_blocks = static_cast<int>(divided_up(5 * 4, cut.block_rows()));
        expect_cut_packed(problem, cut, seen);
        const x_stays_wgmma::Cut other = alike(cut);
        EXPECT_TRUE(packed_order(other) == packed_order(cut));
        expect_cut_packed(problem, other, seen);
        ASSERT_EQ(weight_bytes(cut, product_of(problem)), weight_bytes(other, product_of(problem)));
        for (std::int64_t index = 0; index < weight_bytes(cut, product_of(problem)) / 2; index += 37) {
          const PackedPlace a = packed_place(cut, index), b = packed_place(other, index);
          ASSERT_TRUE(a.i == b.i && a.k == b.k && a.l == b.l && a.j == b.j) << rows << warpgroups << cluster;
        }
      }
  EXPECT_GE(seen.forms.size(), 3u);
}

template <class T>
void expect_x_stays_mma_packed(const Problem& problem, const x_stays_mma::Cut& cut, Seen& seen) {
  const PackLayout layout = x_stays_mma::pack_layout<T>(problem, cut);
  constexpr int elements = x_stays_mma::Tile<T>::vector;
  expect_packed(
      problem, layout,
      [&](std::int64_t index) {
        return x_stays_mma::packed_place<T>(cut, index / elements, static_cast<int>(index % elements));
      },
      seen);
}

TEST(Packing, SkinnyOrders) {
  Seen seen;
  std::mt19937 random(3);
  for (const char* dtype : {"f16 batch_first", "f32 batch_first"})
    for_each_problem(dtype, [&](const Problem& problem) {
      if (problem.batch != 16) return;
      const Product p = product_of(problem);
      const bool is_float = problem.dtype == DType::f32;
      const int vector = is_float ? 4 : 8, tile_k = is_float ? 32 : 16, tile_l = is_float ? 4 : 16;
      for (int turn = 0; turn < 3; ++turn) {
        const auto power = [&](unsigned most) { return 1 << random() % most; };
        x_stays_mma::Cut cut;
        cut.j_group = p.d <= 8 ? static_cast<int>(p.d) : turn == 0 ? 1 : vector;
        cut.j_groups = static_cast<int>(divided_up(p.d, cut.j_group));
        cut.cluster = power(3);
        cut.warps_per_row = power(3);
        cut.rows_per_group = power(3);
        cut.groups = 1 + static_cast<int>(random() % 3);
        cut.segments = power(2);
        cut.run = turn != 0 && p.d < vector && vector % p.d == 0 ? vector / static_cast<int>(p.d) : 1;
        const auto rows = divided_up(p.b, tile_k) * cut.j_group;
        cut.k_blocks = static_cast<int>(divided_up(rows, cut.groups * cut.rows_per_group));
        cut.tiles_per_warp = static_cast<int>(
            divided_up(divided_up(p.c, tile_l), cut.cluster * cut.warps_per_row * cut.segments));
        const x_stays_mma::Cut other = alike(cut);
        if (is_float)
          expect_x_stays_mma_packed<float>(problem, cut, seen);
        else
          expect_x_stays_mma_packed<__half>(problem, cut, seen);
        for (std::int64_t at = 0; at < 997; at += 31) {  // compares with another cut of the same order
          const PackedPlace a = is_float ? x_stays_mma::packed_place<float>(cut, at, 1)
                                         : x_stays_mma::packed_place<__half>(cut, at, 5);
          const PackedPlace b = is_float ? x_stays_mma::packed_place<float>(other, at, 1)
                                         : x_stays_mma::packed_place<__half>(other, at, 5);
          ASSERT_TRUE(a.i == b.i && a.k == b.k && a.l == b.l && a.j == b.j) << problem.to_string();
        }
      }
    });
  EXPECT_TRUE(seen.rows) << "rows that have to be divided";
}

/// The inverse of an order's place().
template <class Order>
std::vector<PackedPlace> places_of(const Order& order) {
  std::vector<PackedPlace> places(static_cast<std::size_t>(order.elements()),
                                  {.i = 0, .k = order.b, .l = order.c, .j = order.d});
  for (std::int64_t i = 0; i < order.a; ++i)
    for (std::int64_t k = 0; k < order.b; ++k)
      for (std::int64_t l = 0; l < order.c; ++l)
        for (std::int64_t j = 0; j < order.d; ++j)
          places[static_cast<std::size_t>(order.place(i, k, l, j))] = {i, k, l, j};
  return places;
}

template <class Order>
void expect_order_packed(const Problem& problem, const Order& order, Seen& seen) {
  const std::vector<PackedPlace> places = places_of(order);
  expect_packed(
      problem, pack_layout(problem, order),
      [&](std::int64_t index) { return places[static_cast<std::size_t>(index)]; }, seen);
}

TEST(Packing, OrdersOfTensorCores) {
  Seen seen;
  for (const char* words : {"f16 batch_first", "f16 batch_last", "f32 batch_first", "f32 batch_last"})
    for_each_problem(words, [&](const Problem& problem) {
      expect_order_packed(problem, mma::order_of(problem), seen);
      if (problem.dtype != DType::f16) return;
      expect_order_packed(problem, wgmma_config(problem, h200()).order, seen);
      expect_order_packed(problem, gemm_config(problem, h200()).order, seen);
    });
  EXPECT_GE(seen.forms.size(), 12u);
}

TEST(Packing, FloatsBecomeTwoParts) {
  for (const char* operation : {"", "transposed "})
    for (const char* pattern :
         {"1x64x64x4", "2x17x19x2", "1x33x50x1", "1x64x48x1", "1x20x35x3", "1x16x32x16"}) {
      const Problem problem = Problem::parse(std::string(operation) + "f32 batch_first B=64 " + pattern);
      const WgmmaOrder order = wgmma_config(problem, h200()).order;
      ASSERT_EQ(order.parts, 2);
      const Product p = product_of(problem);
      const std::vector<std::byte> values = values_of(problem);
      const PackLayout layout = pack_layout(problem, order);
      const auto bytes = static_cast<std::size_t>(order.elements()) * 4;
      std::vector<std::byte> expected(bytes);
      for (std::int64_t i = 0; i < p.a; ++i)
        for (std::int64_t k = 0; k < p.b; ++k)
          for (std::int64_t l = 0; l < p.c; ++l)
            for (std::int64_t j = 0; j < p.d; ++j) {
              const bool transposed = is_transposed(problem.operation);
              const std::int64_t from =
                  transposed ? ((i * p.c + l) * p.b + k) * p.d + j : ((i * p.b + k) * p.c + l) * p.d + j;
              std::uint32_t bits = 0;
              std::memcpy(&bits, values.data() + from * 4, 4);
              const std::uint32_t high = tf32_part(bits);
              const float rest = std::bit_cast<float>(bits) - std::bit_cast<float>(high);
              const auto to = static_cast<std::size_t>(order.place(i, k, l, j));
              std::memcpy(expected.data() + to * 4, &high, 4);
              std::memcpy(expected.data() + (to + static_cast<std::size_t>(order.tile_k) * 16) * 4, &rest, 4);
            }
      for (const int alignment : {16, 4})
        EXPECT_TRUE(packed_by(pack_task(layout, alignment), values, bytes) == expected)
            << problem.to_string() << ' ' << alignment;
    }
}

// Large values are packed by few threads, each of which takes several units in turn.
TEST(Packing, ThreadsTakeSeveralUnits) {
  Seen seen;
  const Problem problem = Problem::parse("f16 batch_first B=64 1x1024x2048x1");
  expect_order_packed(problem, gemm_config(problem, h200()).order, seen);
  EXPECT_TRUE(seen.repeats);
}

// One packed copy serves all executors whose orders are equal.
TEST(Packing, EqualOrdersAreTheSamePlaces) {
  int shared = 0;
  const auto look_at = [&](const Problem& problem, const auto& choices) {
    const Product p = product_of(problem);
    for (const auto& choice : choices)
      EXPECT_TRUE(packed_order(alike(choice.cut)) == packed_order(choice.cut));
    for (std::size_t n = 1; n < choices.size(); ++n)
      for (std::size_t other : {n - 1, n / 2}) {
        const auto &one_cut = choices[n].cut, &other_cut = choices[other].cut;
        const bool are_equal = packed_order(one_cut) == packed_order(other_cut);
        ASSERT_EQ(same_order(one_cut, other_cut), are_equal) << problem.to_string();
        if (!are_equal) continue;
        ++shared;
        ASSERT_EQ(weight_bytes(one_cut, p), weight_bytes(other_cut, p));
        for (std::int64_t index = 0; index < weight_bytes(one_cut, p) / 2; index += 37) {
          const PackedPlace a = packed_place(one_cut, index), b = packed_place(other_cut, index);
          ASSERT_TRUE(a.i == b.i && a.k == b.k && a.l == b.l && a.j == b.j) << problem.to_string();
        }
      }
  };
  for (const char* text : {"B=64 1x64x64x4", "B=32 2x40x48x8", "B=64 1x33x52x1", "B=33 1x64x256x4"}) {
    const Problem problem = Problem::parse(std::string("f16 batch_first ") + text);
    look_at(problem, direct::choices(problem, h200()));
    look_at(problem, sums_stay::choices(problem, h200()));
    if (problem.pattern().d < 4) continue;
    look_at(problem, weights_stay::choices(problem, h200()));
  }
  EXPECT_GT(shared, 10);
}

TEST(Packing, ElementsOfFmaKernels) {
  for (const char* operation : {"", "transposed "})
    for (const char* pattern : {"2x70x9x5", "1x3x4x1", "2x130x7x8"}) {
      const Problem problem = Problem::parse(std::string(operation) + "f64 batch_first B=64 " + pattern);
      const Product p = product_of(problem);
      const std::int64_t tiles = divided_up(p.b, 64), groups = divided_up(p.d, 4);
      const WidenTask task = widen_task(problem, tiles, 64, groups, 4);
      std::int64_t at = 0;
      for (std::int64_t i = 0; i < p.a; ++i)
        for (std::int64_t group = 0; group < groups; ++group)
          for (std::int64_t tile = 0; tile < tiles; ++tile)
            for (std::int64_t l = 0; l < p.c; ++l)
              for (std::int64_t j = group * 4; j < group * 4 + 4; ++j)
                for (std::int64_t k = tile * 64; k < tile * 64 + 64; ++k, ++at) {
                  const bool transposed = is_transposed(problem.operation);
                  const std::int64_t from = k >= p.b || j >= p.d ? -1
                                            : transposed         ? ((i * p.c + l) * p.b + k) * p.d + j
                                                                 : ((i * p.b + k) * p.c + l) * p.d + j;
                  ASSERT_EQ(packing::widened_source(task, static_cast<std::uint32_t>(at)), from);
                  ASSERT_EQ(packing::widened_source(task, static_cast<std::uint64_t>(at)), from);
                }
      EXPECT_EQ(static_cast<std::uint64_t>(at), task.elements);
    }
}

}  // namespace
}  // namespace kronsparse::cuda
