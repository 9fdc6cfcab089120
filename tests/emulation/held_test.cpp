// The kernel for small batches whose x stays in registers, compiled for the CPU, on problems whose results
// are exact: every shape, and tiles that come to places used before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "held_run.hpp"
#include "small_batch_cases.hpp"

namespace kronsparse::emulation {
namespace {

std::string text_of(const cuda::held::Cut& cut) {
  return std::to_string(cut.tiles) + " tiles, " + std::to_string(cut.k_blocks) + " blocks of outputs, " +
         std::to_string(cut.sample_blocks) + " of samples";
}

CutCases<cuda::held::Cut, HeldCut> cases(cuda::held::choices, run_held, text_of);

/// Sums as long as the shape's, or shorter by what makes whole rows of x.
ProductCase case_of(DType dtype, const cuda::held::Shape& shape, std::int64_t terms_less, Picker& pick) {
  const std::int64_t outputs[] = {1, 8, 13, 23, 40};
  const std::int64_t batches[] = {1, 7, 16, 20, 33, 64};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  problem.chain = Pattern{1 + static_cast<std::int64_t>(pick.next(2)), pick.of(outputs),
                          shape.terms() - terms_less * (cuda::held::row_elements / shape.d), shape.d};
  problem.batch = pick.of(batches);
  pick_operation(problem, pick);
  pick_surroundings(one, pick);
  return one;
}

TEST(Held, EveryShape) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::held::Shape& shape : cuda::held::shapes) {
      Picker pick(static_cast<std::uint64_t>(shape.d * 10) + static_cast<std::uint64_t>(dtype));
      for (int at = 0; at < (quick ? 1 : 8); ++at) {
        const ProductCase one =
            case_of(dtype, shape, at % 3 == 0 ? 0 : static_cast<std::int64_t>(pick.next(12)), pick);
        cases.run(one, pick.next(1000));
      }
    }
}

/// Weights that come to where x was, and to where sums were; aligned and not.
TEST(Held, ManyTiles) {
  Picker pick(5);
  for (const cuda::held::Shape& shape : cuda::held::shapes)
    for (const int tiles : {2, 3, 4, 5, 9}) {
      if (quick && tiles != 5) continue;
      ProductCase one = case_of(DType::f16, shape, 0, pick);
      one.problem.chain = Pattern{1, tiles * cuda::held::tile_outputs - 3, shape.terms(), shape.d};
      one.problem.operation = Operation::multiply;
      one.problem.batch = 19;
      one.x_offset = tiles % 2 == 0 ? 3 : 0;
      cases.run(one, pick.next(1000), [&](const cuda::held::Cut& cut) { return cut.tiles == tiles; });
    }
}

/// Blocks that ask for others' weights: on a GPU as large as a few more than these.
TEST(Held, FirstBlocksAskForAll) {
  Picker pick(6);
  for (const cuda::held::Shape& shape : cuda::held::shapes) {
    ProductCase one = case_of(DType::f16, shape, 0, pick);
    one.problem.chain = Pattern{2, 45, shape.terms(), shape.d};
    one.problem.operation = Operation::multiply;
    one.problem.batch = 30;
    for (cuda::held::Cut cut : {cuda::held::Cut{shape, 2, 3, 2, 5, 2}, cuda::held::Cut{shape, 3, 2, 2, 1, 1}})
      run_held(one, cut);
  }
}

/// Rows of x and y that are longer than what is in them.
TEST(Held, StridedRows) {
  Picker pick(7);
  cases.run_each({"f16 batch_first B=19 2x20x64x16 cols_stride=2184 rows_stride=700",
                  "bf16 batch_first B=9 1x33x128x8 +bias cols_stride=1032 rows_stride=2115",
                  "f16 batch_first B=64 1x16x256x4 cols_stride=4096 rows_stride=64"},
                 pick);
}

/// Cases are picked, and cuts for them: this says that nothing is left out.
/// Run by itself (a filter) it has nothing to look at.
TEST(HeldCoverage, EveryWay) {
  if (quick || cases.runs().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::pair<DType, int>> shapes;
  std::set<int> sample_blocks, tiles;
  std::set<std::pair<bool, bool>> boxes;  // and whether places are used again
  std::set<bool> y_vectors, ordinary;
  for (const HeldCut& how : cases.runs()) {
    shapes.emplace(how.dtype, how.cut.shape.d);
    sample_blocks.insert(how.cut.sample_blocks);
    tiles.insert(std::min(how.cut.tiles, 5));
    boxes.emplace(how.boxes, how.cut.tiles > cuda::held::slots);
    y_vectors.insert(how.y_vectors);
    ordinary.insert(how.is_ordinary);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::held::shapes.size());
  EXPECT_EQ(tiles.size(), 5U);
  for (const int count : {1, 2, 3, 4}) EXPECT_TRUE(sample_blocks.contains(count)) << count;
  EXPECT_EQ(boxes.size(), 4U);
  EXPECT_EQ(y_vectors.size(), 2U);
  EXPECT_EQ(ordinary.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
