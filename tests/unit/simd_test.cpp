// The simd family's own order of things. What it computes is in the conformance tests, but for patterns too
// large for those.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cpu/simd/weights.hpp"
#include "kronsparse/kronsparse.hpp"

namespace kronsparse {
namespace {

/// What a panel stands for: its first j and its first lane.
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
    const Problem problem = Problem::parse(text);
    const auto bits = [&](std::uint64_t n) {
      const float value = static_cast<float>(n * 2654435761U % 5) - 2.0F;
      return problem.dtype == DType::f16 ? std::bit_cast<std::uint16_t>(Half(value))
                                         : std::bit_cast<std::uint16_t>(BFloat16(value));
    };
    const auto filled = [&](std::int64_t count, std::uint64_t first) {
      std::vector<std::uint16_t> all(static_cast<std::size_t>(count));
      for (std::size_t e = 0; e < all.size(); ++e) all[e] = bits(first + e);
      return all;
    };
    const auto values = filled(problem.pattern.nnz(), 1);
    const auto x = filled(problem.batch * problem.pattern.cols(), 7);
    const auto product = [&](const std::string& implementation) {
      std::vector<std::uint16_t> y(static_cast<std::size_t>(problem.batch * problem.pattern.rows()), 0xffff);
      Plan(problem, values.data(), {}, implementation).run({.x = x.data(), .y = y.data()});
      return y;
    };
    const auto expected = product("reference");
    for (const Candidate& candidate : candidates(problem)) {
      if (!candidate.refusal.empty() || candidate.implementation == "reference") continue;
      EXPECT_TRUE(product(candidate.implementation) == expected) << candidate.implementation << " " << text;
    }
  }
}

}  // namespace
}  // namespace kronsparse
