// Runs sums-stay on the CPU, on problems whose results are exact: every shape, clusters that split sums,
// stages that are filled again.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "small_batch/cut_cases.hpp"
#include "small_batch/sums_stay_run.hpp"

namespace kronsparse::emulation {
namespace {

std::string text_of(const cuda::sums_stay::Cut& cut) {
  return std::to_string(cut.shape.outputs) + " outputs, splits " + std::to_string(cut.splits) +
         ", warpgroups " + std::to_string(cut.warpgroups) + ", stages " + std::to_string(cut.x_stages) +
         " and " + std::to_string(cut.weight_stages) + " of " + std::to_string(cut.stage_slabs);
}

CutCases<cuda::sums_stay::Cut, SumsStayCut> cases(cuda::sums_stay::choices, run_sums_stay, text_of);

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t rows[] = {1, 7, 8, 33, 64, 70};
  const std::int64_t terms[] = {128, 136, 200, 264, 512};
  const std::int64_t products[] = {1, 2, 4};
  ProductCase one = small_batch_case(dtype, pick, rows, products, terms);
  Problem& problem = one.problem;
  auto& x_stride = is_transposed(problem.operation) ? problem.rows_stride : problem.cols_stride;
  x_stride = (x_stride + 7) / 8 * 8;  // as the copy engine takes it
  return one;
}

TEST(SumsStay, EveryShape) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::sums_stay::Shape& shape : cuda::sums_stay::shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      one.problem.chain = Pattern{1, shape.outputs + 3, 3 * shape.slab_terms() + 8, shape.block_j};
      one.problem.batch = pick.next(2) == 0 ? 64 : 40;
      one.problem.bias = true;
      one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
      cases.run(one, pick.next(1000), [&](const cuda::sums_stay::Cut& cut) { return cut.shape == shape; });
      if (quick) break;
    }
}

/// Every way to share l: two warpgroups, two blocks, or both, by few slabs and by many.
TEST(SumsStay, EverySharing) {
  Picker pick(5);
  for (const cuda::sums_stay::Shape& shape : cuda::sums_stay::shapes)
    for (const auto& [splits, warpgroups] : {std::pair{1, 2}, {2, 1}, {2, 2}})
      for (const bool is_long : {false, true}) {
        ProductCase one;
        const int least = warpgroups == 1 ? splits : splits * 8 / shape.slab_steps();  // slabs
        const std::int64_t extra[] = {0, 3, 8};
        const std::int64_t batches[] = {64, 64, 40, 8};
        one.problem.dtype = pick.next(2) == 0 ? DType::f16 : DType::bf16;
        one.problem.chain =
            Pattern{1, shape.outputs + pick.of(extra),
                    (is_long ? 3 * least + 1 : least) * shape.slab_terms() - 8, shape.block_j};
        one.problem.batch = pick.of(batches);
        pick_operation(one.problem, pick);
        one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
        cases.run(one, pick.next(1000), [&](const cuda::sums_stay::Cut& cut) {
          return cut.shape == shape && cut.splits == splits && cut.warpgroups == warpgroups;
        });
        if (quick) return;
      }
}

TEST(SumsStay, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    for (int at = 0; at < (quick ? 8 : 60); ++at) cases.run(any_case(dtype, pick), pick.next(1000));
  }
}

/// Long sums: clusters split them, and stages are filled again and again.
TEST(SumsStay, LongSums) {
  Picker pick(7);
  for (const char* text : {"f16 batch_first B=64 1x32x2048x1", "bf16 batch_first B=8 1x40x2000x1",
                           "f16 batch_first B=64 1x48x1024x2 +bias", "f16 batch_first B=33 1x40x512x4",
                           "bf16 batch_first B=64 1x70x520x4 +bias +relu"})
    for (int at = 0; at < (quick ? 1 : 6); ++at) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.timing = at % 2 == 0 ? Timing::late : Timing::early;
      cases.run(one, pick.next(1000));
    }
}

/// Cases are picked, and cuts for them. This test checks that nothing is left out. Run alone (by a filter) it
/// has nothing to look at.
TEST(SumsStayCoverage, EveryWay) {
  if (quick || cases.runs().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int>> shapes;
  std::set<int> stage_slabs;
  std::set<bool> boxes, joined, y_vectors, plain;
  std::set<std::tuple<int, int, bool>> shared;  // splits, warpgroups, stored directly
  std::set<std::pair<bool, bool>> refilled;     // stages of x, of weights
  for (const SumsStayCut& how : cases.runs()) {
    const cuda::sums_stay::Cut& cut = how.cut;
    shapes.emplace(how.dtype, cut.shape.block_j, cut.shape.outputs);
    stage_slabs.insert(cut.stage_slabs);
    boxes.insert(how.boxes);
    y_vectors.insert(how.y_vectors);
    if (how.boxes) joined.insert(cut.joins_boxes);
    plain.insert(how.is_plain);
    shared.emplace(cut.splits, cut.warpgroups, how.y_direct);
    refilled.insert({cut.fillings() > cut.x_stages, cut.fillings() > cut.weight_stages});
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::sums_stay::shapes.size());
  EXPECT_EQ(stage_slabs, (std::set<int>{1, 2, 4}));
  EXPECT_EQ(boxes.size(), 2U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(joined.size(), 2U);
  EXPECT_EQ(plain.size(), 2U);
  EXPECT_EQ(shared.size(), 6U);
  EXPECT_EQ(refilled.size(), 4U);
}

}  // namespace
}  // namespace kronsparse::emulation
