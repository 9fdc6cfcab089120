// Runs narrow on the CPU, on problems whose results are exact: every shape, clusters that split sums, stages
// that are filled again.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "small_batch/cut_cases.hpp"
#include "small_batch/narrow_run.hpp"

namespace kronsparse::emulation {
namespace {

std::string text_of(const cuda::narrow::Cut& cut) {
  return std::to_string(cut.shape.outputs) + " outputs, splits " + std::to_string(cut.splits) +
         ", warpgroups " + std::to_string(cut.warpgroups) + ", stages " + std::to_string(cut.x_stages) +
         " and " + std::to_string(cut.weight_stages) + " of " + std::to_string(cut.stage_slabs);
}

CutCases<cuda::narrow::Cut, NarrowCut> cases(cuda::narrow::choices, run_narrow, text_of);

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t rows[] = {1, 7, 8, 33, 64, 70};
  const std::int64_t products[] = {1, 2, 4, 8, 16, 24, 32};
  return small_batch_case(dtype, pick, rows, products);
}

TEST(Narrow, EveryShape) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::narrow::Shape& shape : cuda::narrow::shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      one.problem.chain = Pattern{1, shape.outputs + 3, 3 * shape.slab_terms() + 8, shape.block_j};
      one.problem.batch = pick.next(2) == 0 ? 64 : 40;
      one.problem.bias = true;
      one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
      cases.run(one, pick.next(1000), [&](const cuda::narrow::Cut& cut) { return cut.shape == shape; });
      if (quick) break;
    }
}

/// Sums that two blocks exchange, with every number of warpgroups. Short ones, so that lent sums take the
/// place of all stages; and long ones, so that warpgroups lend in their own stages.
TEST(Narrow, TwoBlocks) {
  Picker pick(5);
  for (const cuda::narrow::Shape& shape : cuda::narrow::shapes)
    for (int warpgroups = 1; warpgroups <= shape.max_warpgroups(); ++warpgroups)
      for (const bool is_long : {false, true}) {
        ProductCase one;
        const int slabs = is_long ? 2 * warpgroups * (warpgroups > 2 ? 8 : 4) / shape.slab_steps() : 0;
        const std::int64_t extra[] = {0, 3, 8};
        const std::int64_t batches[] = {64, 64, 40, 8};
        one.problem.dtype = pick.next(2) == 0 ? DType::f16 : DType::bf16;
        one.problem.chain = Pattern{1, shape.outputs + pick.of(extra),
                                    std::max(slabs, 2 * warpgroups) * shape.slab_terms() - 3, shape.block_j};
        one.problem.batch = pick.of(batches);
        pick_operation(one.problem, pick);
        one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
        cases.run(one, pick.next(1000), [&](const cuda::narrow::Cut& cut) {
          return cut.shape == shape && cut.splits == 2 && cut.warpgroups == warpgroups &&
                 (!is_long || cut.lends_in_own_stages());
        });
        if (quick) return;
      }
}

TEST(Narrow, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    for (int at = 0; at < (quick ? 8 : 60); ++at) cases.run(any_case(dtype, pick), pick.next(1000));
  }
}

/// Long sums: clusters split them, and stages are filled again and again.
TEST(Narrow, LongSums) {
  Picker pick(7);
  for (const char* text : {"f16 batch_first B=64 1x32x2048x1", "bf16 batch_first B=8 1x40x2000x1",
                           "f16 batch_first B=64 1x48x1024x2 +bias", "f16 batch_first B=33 1x40x512x4",
                           "bf16 batch_first B=64 1x70x520x4 +bias +relu", "f16 batch_first B=64 1x32x256x8",
                           "f16 batch_first B=64 1x32x128x16", "bf16 batch_first B=64 1x16x100x32"})
    for (int at = 0; at < (quick ? 1 : 6); ++at) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.timing = at % 2 == 0 ? Timing::late : Timing::early;
      cases.run(one, pick.next(1000));
    }
}

/// Cases are picked, and cuts for them. This test checks that nothing is left out. Run alone (by a filter) it
/// has nothing to look at.
TEST(NarrowCoverage, EveryWay) {
  if (quick || cases.runs().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int>> shapes;
  std::set<int> splits, warpgroups, stage_slabs;
  std::set<bool> boxes, joined, y_vectors, plain, lent;
  std::set<std::tuple<int, bool, bool>> exchanged;  // warpgroups, lent in their own stages, stored directly
  std::set<std::pair<bool, bool>> refilled;         // stages of x, of weights
  std::set<int> parts_of_j;
  for (const NarrowCut& how : cases.runs()) {
    const cuda::narrow::Cut& cut = how.cut;
    shapes.emplace(how.dtype, cut.shape.block_j, cut.shape.outputs);
    splits.insert(cut.splits);
    warpgroups.insert(cut.warpgroups);
    stage_slabs.insert(cut.stage_slabs);
    boxes.insert(how.boxes);
    y_vectors.insert(how.y_vectors);
    if (how.boxes) joined.insert(cut.joins_boxes);
    plain.insert(how.is_plain);
    if (cut.splits > 2) lent.insert(cut.warpgroups > 1);
    if (cut.exchanges())
      exchanged.emplace(cut.warpgroups, cut.warpgroups > 1 && cut.lends_in_own_stages(), how.y_direct);
    refilled.insert({cut.fillings() > cut.x_stages, cut.fillings() > cut.weight_stages});
    if (cut.j_groups > 1) parts_of_j.insert(cut.shape.block_j);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::narrow::shapes.size());
  EXPECT_EQ(splits, (std::set<int>{1, 2, 4, 8}));
  EXPECT_EQ(warpgroups, (std::set<int>{1, 2, 3, 4}));
  EXPECT_EQ(stage_slabs, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(boxes.size(), 2U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(joined.size(), 2U);
  EXPECT_EQ(plain.size(), 2U);
  EXPECT_EQ(lent.size(), 2U);
  EXPECT_EQ(exchanged.size(), 14U);
  EXPECT_EQ(refilled.size(), 4U);
  EXPECT_EQ(parts_of_j, (std::set<int>{8, 16}));
}

}  // namespace
}  // namespace kronsparse::emulation
