// Runs weights-stay on the CPU, on problems whose results are exact: every shape, and every number of passes.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "small_batch/cut_cases.hpp"
#include "small_batch/weights_stay_run.hpp"

namespace kronsparse::emulation {
namespace {

std::string text_of(const cuda::weights_stay::Cut& cut) {
  return std::to_string(cut.shape.fragments) + " fragments, " + std::to_string(cut.passes) + " passes, " +
         std::to_string(cut.sample_blocks) + " blocks of samples";
}

CutCases<cuda::weights_stay::Cut, WeightsStayCut> cases(cuda::weights_stay::choices, run_weights_stay,
                                                        text_of);

/// Sums as long as the shape's, or shorter by the terms of `terms_less` rows of x.
ProductCase case_of(DType dtype, const cuda::weights_stay::Shape& shape, std::int64_t terms_less,
                    Picker& pick) {
  const std::int64_t outputs[] = {1, 9, 16, 23};
  const std::int64_t batches[] = {1, 7, 8, 20, 33, 64};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  const std::int64_t row_terms = shape.d < 64 ? 64 / shape.d : 1;
  problem.chain = Pattern{1 + static_cast<std::int64_t>(pick.next(2)), pick.of(outputs),
                          shape.terms() - terms_less * row_terms, shape.d};
  problem.batch = pick.of(batches);
  pick_operation(problem, pick);
  pick_surroundings(one, pick);
  return one;
}

TEST(WeightsStay, EveryShape) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::weights_stay::Shape& shape : cuda::weights_stay::shapes) {
      Picker pick(static_cast<std::uint64_t>(shape.d * 100 + shape.fragments) +
                  static_cast<std::uint64_t>(dtype));
      for (int at = 0; at < (quick ? 1 : 6); ++at) {
        const ProductCase one =
            case_of(dtype, shape, at % 3 == 0 ? 0 : static_cast<std::int64_t>(pick.next(12)), pick);
        cases.run(one, pick.next(1000),
                  [&](const cuda::weights_stay::Cut& cut) { return cut.shape == shape; });
      }
    }
}

/// Buffers that are filled again and again, aligned and not.
TEST(WeightsStay, ManyPasses) {
  Picker pick(5);
  for (const cuda::weights_stay::Shape& shape : cuda::weights_stay::shapes)
    for (const int offset : {0, 3}) {
      if (quick && offset != 0) continue;
      ProductCase one = case_of(DType::f16, shape, 0, pick);
      const Pattern picked = one.problem.pattern();
      one.problem.chain = Pattern{1, picked.b, picked.c, picked.d};
      one.problem.batch = 45;
      one.x_offset = offset;
      cases.run(one, pick.next(1000), [&](const cuda::weights_stay::Cut& cut) {
        return cut.shape == shape && cut.passes == (offset == 0 ? 6 : 3);
      });
    }
}

/// Rows of x and y with gaps between them.
TEST(WeightsStay, StridedRows) {
  Picker pick(6);
  cases.run_each({"f16 batch_first B=19 2x20x64x16 cols_stride=2184 rows_stride=700",
                  "bf16 batch_first B=9 1x33x16x64 +bias cols_stride=1032 rows_stride=2115",
                  "f16 batch_first B=64 1x16x256x4 cols_stride=4096 rows_stride=64"},
                 pick);
}

/// Cases are picked, and cuts for them. This test checks that nothing is left out. Run alone (by a filter) it
/// has nothing to look at.
TEST(WeightsStayCoverage, EveryWay) {
  if (quick || cases.runs().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int, int>> shapes;
  std::set<int> passes, sample_blocks;
  std::set<std::pair<bool, bool>> boxes;  // and whether buffers are filled again
  std::set<bool> y_vectors, plain;
  for (const WeightsStayCut& how : cases.runs()) {
    shapes.emplace(how.dtype, how.cut.shape.d, how.cut.shape.fragments);
    passes.insert(how.cut.passes);
    sample_blocks.insert(how.cut.sample_blocks);
    boxes.emplace(how.boxes, how.cut.passes > how.cut.buffers());
    y_vectors.insert(how.y_vectors);
    plain.insert(how.is_plain);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::weights_stay::shapes.size());
  for (const int count : {1, 2, 3, 4, 6, 8}) EXPECT_TRUE(passes.contains(count)) << count;
  for (const int count : {1, 2, 3, 4, 8}) EXPECT_TRUE(sample_blocks.contains(count)) << count;
  EXPECT_EQ(boxes.size(), 4U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(plain.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
