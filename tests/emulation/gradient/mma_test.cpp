// Runs gradient-mma on the CPU, on problems whose results are exact: every shape, every width of copies,
// batches split by clusters, tails of every dimension.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "cases.hpp"
#include "cuda/gradient/mma/search.hpp"
#include "gradient/gradient_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

Cases<GradientCut> cases(run_gradient);

ProductCase any_case(DType dtype, Layout layout, Picker& pick) {
  const bool first = layout == Layout::batch_first;
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t rows[] = {1, 5, 16, 24, 33, 48, 64, 70, 130};
  const std::int64_t first_products[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 32, 40};
  const std::int64_t last_products[] = {1, 2, 5, 16};
  const std::int64_t batches[] = {0, 1, 7, 16, 33, 64, 136, 260, 520, 1000, 2100};
  ProductCase one;
  Problem& problem = one.problem;
  problem.operation = Operation::gradient;
  problem.dtype = dtype;
  problem.layout = layout;
  constexpr double most_work = 1.5e6;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), pick.of(rows), pick.of(rows),
                            first ? pick.of(first_products) : pick.of(last_products)};
    problem.batch = pick.of(batches);
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
  pick_strides(problem, pick);
  const int offsets[] = {0, 0, 2, 3};
  one.x_offset = pick.of(offsets);
  one.g_offset = pick.of(offsets);
  one.y_offset = pick.next(3) == 0 ? 1 : 0;
  const int multiprocessors[] = {1, 4, 30, 132};
  one.multiprocessors = pick.of(multiprocessors);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

TEST(Gradient, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(dtype) * 2 + static_cast<std::uint64_t>(layout));
      const int count = layout == Layout::batch_first ? 30 : 12;
      for (int at = 0; at < (quick ? 6 : count); ++at) cases.run(any_case(dtype, layout, pick));
    }
}

/// Runs each shape with copies of whole units, several warps in every direction, tiles with tails; alone (as
/// before Hopper) and in clusters.
TEST(Gradient, EveryShape) {
  int at = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const char* text :
         {"batch_first B=150 1x40x72x16", "batch_first B=150 1x40x72x32", "batch_first B=150 1x40x72x24",
          "batch_first B=150 1x40x136x8", "batch_first B=33 1x512x512x4", "batch_first B=150 1x72x72x4",
          "batch_first B=150 1x72x72x12", "batch_first B=150 1x136x72x2", "batch_first B=150 1x136x40x6",
          "batch_first B=150 1x72x136x3", "batch_first B=150 1x72x136x1", "batch_last B=152 1x72x136x2"})
      for (const int multiprocessors : {1, 132}) {
        ProductCase one;
        one.problem = Problem::parse("gradient " + std::string(name(dtype)) + " " + text);
        one.multiprocessors = multiprocessors;
        one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
        cases.run(one);
      }
}

TEST(Gradient, LongBatchesInClusters) {
  for (const char* text :
       {"gradient f16 batch_first B=4099 1x16x16x16", "gradient bf16 batch_first B=2100 1x5x7x2",
        "gradient f16 batch_last B=2100 1x16x24x1", "gradient bf16 batch_first B=2051 1x48x48x1"})
    for (const Timing timing : {Timing::late, Timing::early}) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.multiprocessors = 132;
      one.timing = timing;
      cases.run(one);
    }
}

/// Cases are picked, and tiles chosen for them. This test checks that nothing is left out. Run alone (by a
/// filter) it has nothing to look at.
TEST(GradientCoverage, EveryShapeAndWay) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  using Form = cuda::GradientForm;
  std::set<std::tuple<DType, std::size_t>> shapes;
  std::set<std::tuple<Form, int>> widths;
  std::set<std::tuple<Form, bool>> stores;
  std::set<int> splits, warps, stages;
  for (const GradientCut& cut : cases.cuts()) {
    const Form form = cuda::gradient_shapes[cut.shape_index].form;
    shapes.emplace(cut.dtype, cut.shape_index);
    widths.emplace(form, cut.g_width);
    widths.emplace(form, cut.x_width);
    stores.emplace(form, cut.y_vectors);
    splits.insert(cut.splits);
    warps.insert(cut.warps);
    stages.insert(cut.stages);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::gradient_shapes.size());
  EXPECT_EQ(widths.size(), 9U);
  EXPECT_EQ(stores.size(), 6U);
  EXPECT_TRUE(splits.contains(1));
  EXPECT_GT(*splits.rbegin(), 8);  // clusters that have to be asked for
  EXPECT_GT(splits.size(), 4U);
  EXPECT_GT(warps.size(), 4U);
  EXPECT_EQ(stages.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
