// The simd family's own order of things. What it computes is in the conformance tests, but for patterns too
// large for those.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cpu/scratch.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/weights.hpp"
#include "cpu/turned.hpp"
#include "exact.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// A panel: its first j and its first lane.
using Place = std::pair<std::int64_t, std::int64_t>;

std::vector<Place> places(const simd::Panels& panels) {
  std::vector<Place> all;
  for (std::int64_t p = 0; p < panels.size(); ++p)
    all.emplace_back(panels[p].segment.first, panels[p].first_lane);
  return all;
}

// d = 44 on vectors of 8: five segments of 8 and one of 4. 7 outputs are 7 vectors of a full segment, in
// panels of 4 and 3, and 4 vectors of the narrow one.
TEST(Panels, SegmentsOneAfterTheOther) {
  const simd::Panels panels(simd::segments_of(44, 8), 7, 8, 4);
  const std::vector<Place> expected{{0, 0},  {0, 32},  {8, 0},  {8, 32},  {16, 0}, {16, 32},
                                    {24, 0}, {24, 32}, {32, 0}, {32, 32}, {40, 0}};
  EXPECT_EQ(places(panels), expected);
}

TEST(Panels, SegmentsInTurns) {
  simd::Panels panels(simd::segments_of(44, 8), 7, 8, 4);
  std::set<std::int64_t> packed_before;
  for (std::int64_t p = 0; p < panels.size(); ++p) packed_before.insert(panels[p].offset);
  panels.take_together(2);
  const std::vector<Place> expected{{0, 0},   {8, 0},   {0, 32}, {8, 32},  {16, 0}, {24, 0},
                                    {16, 32}, {24, 32}, {32, 0}, {32, 32}, {40, 0}};
  EXPECT_EQ(places(panels), expected);
  std::set<std::int64_t> packed;
  for (std::int64_t p = 0; p < panels.size(); ++p) packed.insert(panels[p].offset);
  EXPECT_EQ(packed, packed_before);
}

// More weights than L2 holds, or than it has room for, in an odd number of segments among others: tasks have
// another order then. On every instruction set this CPU has, and on tiles. Small integers: everything is
// exact.
TEST(Simd, WeightsThatDoNotFitL2) {
  for (const char* text : {"f16 batch_first B=27 1x256x64x48", "bf16 batch_first B=50 2x300x64x32 +relu",
                           "bf16 batch_first B=70 5x48x48x32"}) {
    expect_exact(Problem::parse(text));
  }
}

// Samples as lanes: a last slice that overlaps the one before, or has none before it; neighbouring j computed
// together, the last of them fewer; sums that wait while x is read some terms at a time; all of these.
TEST(Columns, ExactInParts) {
  for (const char* text : {"f32 batch_last B=113 2x50x2x5", "bf16 batch_last B=67 3x9x47x4",
                           "f16 batch_last B=29 2x7x10x5 +relu", "f32 batch_last B=330 1x7x700x3",
                           "bf16 batch_last B=777 1x20x600x1 +relu", "f16 batch_last B=90 1x20x2300x5",
                           "bf16 batch_last B=93 2x13x756x7", "f32 batch_last B=70 2x11x2100x3"}) {
    expect_exact(Problem::parse(text));
  }
}

/// y of a problem in 16-bit storage, by plain loops or with samples turned into columns. Small integers:
/// everything is exact.
std::vector<std::uint16_t> product(const Problem& problem, bool is_turned) {
  const bool is_half = problem.dtype == DType::f16;
  const auto stored = [=](std::int64_t number) {
    const auto real = static_cast<float>(number);
    return is_half ? Half(real).bits : BFloat16(real).bits;
  };
  const auto numbers = [&](std::int64_t count, std::int64_t factor) {
    std::vector<std::uint16_t> all;
    for (std::int64_t e = 0; e < count; ++e) all.push_back(stored(e * factor % 31 % 3 - 1));
    return all;
  };
  const std::vector<std::uint16_t> x = numbers(problem.batch * problem.x_stride(), 7);
  const std::vector<std::uint16_t> values = numbers(problem.pattern().nnz(), 11);
  const std::vector<std::uint16_t> bias = numbers(problem.out_features(), 13);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(problem.batch * problem.y_stride()), 0x7fff);
  const Operands operands{.x = x.data(), .y = y.data(), .bias = problem.bias ? bias.data() : nullptr};
  if (!is_turned) {
    Plan(problem, values.data(), {}, "reference").run(operands);
    return y;
  }
  const auto executor = make_turned(problem, 1e-3, [](const Problem& part) {
    return simd::make_columns(part, *simd::isa_baseline.f32, "test", true);
  });
  auto packed = make_aligned<std::byte>(executor->order().bytes);
  executor->pack(values.data(), packed.get(), nullptr);
  executor->run(operands, {packed.get()});
  return y;
}

// Fewer samples or features than are turned at once, and numbers of them that eight does not divide; blocks
// of samples, of i and of j whose last is smaller; few outputs, whose x is read as it lies, and many;
// strides.
TEST(Turned, IsTheSameProduct) {
  for (const char* text :
       {"bf16 batch_first B=5 2x2x2x1", "bf16 batch_first B=33 1x2x3x1", "f16 batch_first B=37 3x3x5x9 +bias",
        "bf16 batch_first B=421 7x4x4x3 +bias +relu", "f16 batch_first B=401 2x33x65x10 +bias +relu",
        "bf16 batch_first B=41 1x850x20x37 +bias", "bf16 batch_first B=50 2x3x2912x3",
        "transposed f16 batch_first B=200 3x20x7x5", "bf16 batch_first B=70 301x9x30x1",
        "bf16 batch_first B=40 3x5x11x7 cols_stride=240 rows_stride=109"}) {
    const Problem problem = Problem::parse(text);
    EXPECT_EQ(product(problem, true), product(problem, false)) << text;
  }
}

TEST(Turned, TakesProductsOfHalvesInRows) {
  EXPECT_TRUE(can_be_turned(Problem::parse("bf16 batch_first B=32 1x2x3x5")));
  EXPECT_FALSE(can_be_turned(Problem::parse("bf16 batch_first B=31 1x2x3x5")));
  EXPECT_FALSE(can_be_turned(Problem::parse("bf16 batch_last B=32 1x2x3x5")));
  EXPECT_FALSE(can_be_turned(Problem::parse("f32 batch_first B=32 1x2x3x5")));
  EXPECT_FALSE(can_be_turned(Problem::parse("gradient f16 batch_first B=32 1x2x3x5")));
}

// Lines of three rows, two each, then those of what follows, one each: two at a time, all in four calls.
TEST(Prefetch, GoesOnToWhatFollows) {
  const std::vector<char> memory(1000);
  simd::Prefetch rows{{memory.data(), 3, 100, 200}};
  rows.later = {memory.data() + 600, 2, 64, 100};
  rows.spread_over_calls(4);
  EXPECT_EQ(rows.lines_per_call, 2);
  rows.advance();
  EXPECT_EQ(rows.row, memory.data() + 200);
  rows.advance();
  rows.advance();
  EXPECT_EQ(rows.row, memory.data() + 600);
  EXPECT_EQ(rows.rows, 2);
  rows.advance();
  EXPECT_EQ(rows.rows, 0);
  EXPECT_EQ(rows.later.rows, 0);
}

}  // namespace
}  // namespace kronsparse
