// Runs direct on the CPU, on problems whose results are exact: every shape, and every way to cut a block into
// warps.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "small_batch/cut_cases.hpp"
#include "small_batch/direct_run.hpp"

namespace kronsparse::emulation {
namespace {

std::string text_of(const cuda::direct::Cut& cut) {
  const std::string shape = std::to_string(cut.shape.block_j) + " j, loads of " +
                            std::to_string(cut.shape.load) + ", " + std::to_string(cut.shape.tiles) +
                            " tiles by " + std::to_string(cut.shape.outputs) + ", " +
                            std::to_string(cut.shape.at_once) + " steps at once";
  return shape + ", " + std::to_string(cut.steps) + " steps, warps " + std::to_string(cut.rows) + " x " +
         std::to_string(cut.l_warps) + " x " + std::to_string(cut.sample_warps);
}

CutCases<cuda::direct::Cut, DirectCut> cases(cuda::direct::choices, run_direct, text_of);
CutCases<cuda::direct::Cut, DirectCut> as_given(cuda::direct::choices_as_given, run_direct, text_of);

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t rows[] = {1, 7, 16, 33, 64};
  const std::int64_t products[] = {1, 1, 2, 4, 6, 8, 12, 16, 24, 34};
  return small_batch_case(dtype, pick, rows, products);
}

TEST(Direct, EveryShape) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::direct::Shape& shape : cuda::direct::shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      // Loads of several terms need d = block_j; for loads of one term d is 3 times that.
      const std::int64_t d = shape.terms() > 1 ? shape.block_j : 3 * shape.block_j;
      one.problem.chain = Pattern{2, 37, shape.terms() == 8 ? 104 : 100, d};
      one.problem.batch = shape.tiles * 8 - 3;
      one.problem.bias = true;
      one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
      auto& of_shape = shape.as_given ? as_given : cases;
      of_shape.run(one, pick.next(1000), [&](const cuda::direct::Cut& cut) { return cut.shape == shape; });
      if (quick) break;
    }
}

TEST(Direct, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    int left = quick ? 8 : 80;
    while (left > 0) {
      const ProductCase one = any_case(dtype, pick);
      if (cuda::direct::choices(one.problem, one.gpu()).empty()) continue;  // the stride of x is odd
      cases.run(one, pick.next(1000));
      --left;
    }
  }
}

/// Weights as given, also for transposed products, where they lie in another order.
TEST(Direct, AnyProblemAsGiven) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype) + 20);
    int left = quick ? 8 : 80;
    while (left > 0) {
      const ProductCase one = any_case(dtype, pick);
      if (cuda::direct::choices_as_given(one.problem, one.gpu()).empty()) continue;
      as_given.run(one, pick.next(1000));
      --left;
    }
  }
}

/// Sums whose parts many warps have.
TEST(Direct, LongSums) {
  Picker pick(7);
  for (const char* text : {"f16 batch_first B=8 1x20x256x8 +bias", "bf16 batch_first B=16 1x40x512x4",
                           "f16 batch_first B=5 2x17x1000x2 +bias +relu", "f16 batch_first B=20 1x16x256x6",
                           "bf16 batch_first B=3 2x19x1000x1 +bias", "f16 batch_first B=40 1x24x500x1"})
    for (int at = 0; at < (quick ? 1 : 8); ++at) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.timing = at % 2 == 0 ? Timing::late : Timing::early;
      for (auto* of : {&cases, &as_given})
        of->run(one, pick.next(1000), [](const cuda::direct::Cut& cut) { return cut.l_warps >= 8; });
    }
}

/// Steps that go around the registers of x more than once and end at each of them; l in a number of parts
/// that is not a power of two.
TEST(Direct, StepsGoAround) {
  Picker pick(9);
  for (const int steps : {5, 6, 7, 8, 10}) {
    ProductCase one;
    one.problem = Problem::parse("f16 batch_first B=9 1x20x" + std::to_string(steps * 32 - 4) + "x1 +bias");
    one.timing = steps % 2 == 0 ? Timing::late : Timing::early;
    cases.run(one, pick.next(1000),
              [=](const cuda::direct::Cut& cut) { return cut.steps == steps && cut.shape.at_once == 4; });
    as_given.run(one, pick.next(1000),
                 [=](const cuda::direct::Cut& cut) { return cut.steps == steps && cut.shape.at_once == 4; });
    if (steps % 5 == 0)
      cases.run(one, pick.next(1000), [](const cuda::direct::Cut& cut) { return cut.l_warps == 5; });
  }
}

/// Cases are picked, and cuts for them. This test checks that nothing is left out. Run alone (by a filter) it
/// has nothing to look at.
TEST(DirectCoverage, EveryWay) {
  if (quick || cases.runs().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int, int, int, int, bool>> shapes;
  std::set<int> rows, l_warps, sample_warps, parities;
  std::set<std::pair<int, int>> ends;  // steps at once, and the place of the last among them, after going
                                       // around
  std::set<bool> x_vectors, y_vectors;
  std::set<std::pair<bool, bool>> ways_out;  // plain; sums of several warps are added up
  std::vector<DirectCut> runs = cases.runs();
  runs.insert(runs.end(), as_given.runs().begin(), as_given.runs().end());
  for (const DirectCut& how : runs) {
    const cuda::direct::Cut& cut = how.cut;
    shapes.emplace(how.dtype, cut.shape.block_j, cut.shape.load, cut.shape.tiles, cut.shape.outputs,
                   cut.shape.at_once, cut.shape.as_given);
    rows.insert(cut.rows);
    l_warps.insert(cut.l_warps);
    sample_warps.insert(cut.sample_warps);
    parities.insert(cut.steps == 1 ? 1 : 2 + cut.steps % 2);
    const int at_once = cut.shape.at_once;
    if (cut.steps > at_once) ends.emplace(at_once, cut.steps % at_once);
    x_vectors.insert(how.x_vectors);
    y_vectors.insert(how.y_vectors);
    ways_out.emplace(how.is_plain, cut.l_warps > 1);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::direct::shapes.size());
  EXPECT_EQ(rows, (std::set<int>{1, 2, 4, 8}));
  for (const int parts : {1, 2, 3, 4, 5, 7, 8, 16}) EXPECT_TRUE(l_warps.contains(parts)) << parts;
  EXPECT_EQ(sample_warps, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(parities, (std::set<int>{1, 2, 3}));
  EXPECT_EQ(ends, (std::set<std::pair<int, int>>{{1, 0}, {2, 0}, {2, 1}, {4, 0}, {4, 1}, {4, 2}, {4, 3}}));
  EXPECT_EQ(x_vectors.size(), 2U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(ways_out.size(), 4U);
}

}  // namespace
}  // namespace kronsparse::emulation
