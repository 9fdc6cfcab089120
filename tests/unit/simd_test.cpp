// The simd family's own order of things. What it computes is in the conformance tests, but for patterns too
// large for those.

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cpu/simd/kernel_set.hpp"
#include "cpu/simd/weights.hpp"
#include "exact.hpp"

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
