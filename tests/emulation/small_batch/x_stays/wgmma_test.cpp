// Runs x-stays-wgmma on the CPU, on problems whose results are exact: every number of samples, clusters,
// weights that fit and weights that do not, every path of x and of y.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "cases.hpp"
#include "picker.hpp"
#include "small_batch/x_stays/wgmma_run.hpp"

namespace kronsparse::emulation {
namespace {

Cases<XStaysWgmmaCut> cases(run_x_stays_wgmma);

ProductCase any_case(DType dtype, Layout layout, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 5};
  const std::int64_t rows[] = {1, 8, 33, 64, 70, 130};
  const std::int64_t terms[] = {1, 8, 12, 50, 64, 100, 200};
  const std::int64_t products[] = {1, 1, 2, 3, 4, 5, 8, 12, 16, 24, 33};
  const std::int64_t batches[] = {1, 2, 3, 8, 9, 17, 33, 40, 64};
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = layout;
  constexpr double most_work = 1.5e6;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), pick.of(rows), pick.of(terms), pick.of(products)};
    problem.batch = pick.of(batches);
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
  problem.bias = pick.next(2) == 0;
  problem.activation = pick.of(activations);
  pick_strides(problem, pick);
  const int offsets[] = {0, 0, 4, 3};
  one.x_offset = pick.of(offsets);
  one.y_offset = pick.of(offsets);
  const int multiprocessors[] = {1, 4, 30, 132};
  one.multiprocessors = pick.of(multiprocessors);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

TEST(XStaysWgmma, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(dtype) * 2 + static_cast<std::uint64_t>(layout));
      const int count = layout == Layout::batch_first ? 40 : 12;
      for (int at = 0; at < (quick ? 6 : count); ++at) cases.run(any_case(dtype, layout, pick));
    }
}

/// Long sums: clusters split them, and weights do not fit, so that stages are filled again.
TEST(XStaysWgmma, LongSums) {
  int at = 0;
  for (const char* text : {"f16 batch_first B=3 1x64x2048x1", "bf16 batch_first B=8 1x128x1500x1",
                           "f16 batch_first B=64 1x64x1024x1", "f16 batch_first B=5 1x60x1024x4",
                           "bf16 batch_first B=20 2x70x520x2 +bias +relu", "f16 batch_first B=64 1x192x512x4",
                           "f16 batch_last B=64 1x64x512x3", "f16 batch_first B=16 1x64x3000x3"})
    for (const int multiprocessors : {2, 132}) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.multiprocessors = multiprocessors;
      one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
      cases.run(one);
      if (quick && at == 4) return;
    }
}

/// Cases are picked, and cuts for them. This test checks that nothing is left out. Run alone (by a filter) it
/// has nothing to look at.
TEST(XStaysWgmmaCoverage, EveryWay) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, int>> samples;
  std::set<int> clusters, warpgroups, x_bytes, y_vectors;
  std::set<bool> boxes, refilled, halves_of_panels;
  for (const XStaysWgmmaCut& how : cases.cuts()) {
    const cuda::x_stays_wgmma::Cut& cut = how.cut;
    samples.emplace(how.dtype, cut.samples);
    clusters.insert(cut.cluster);
    warpgroups.insert(cut.warpgroups);
    boxes.insert(how.boxes);
    if (!how.boxes) x_bytes.insert(how.x_bytes);
    y_vectors.insert(how.y_vector);
    refilled.insert(cut.rows * cut.chunks > cut.stages);
    halves_of_panels.insert(cut.block_j() < cut.j_group);
  }
  EXPECT_EQ(samples.size(), 8U);
  EXPECT_TRUE(clusters.contains(1));
  EXPECT_GT(clusters.size(), 1U);
  EXPECT_GT(warpgroups.size(), 1U);
  EXPECT_EQ(boxes.size(), 2U);
  EXPECT_EQ(x_bytes, (std::set<int>{0, 8, 16}));
  EXPECT_EQ(y_vectors, (std::set<int>{0, 1, 4, 8}));
  EXPECT_EQ(refilled.size(), 2U);
  EXPECT_EQ(halves_of_panels.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
