// Runs gradient-wgmma on the CPU, on problems whose results are exact: every shape, batches split by
// clusters, tails of every dimension.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "cases.hpp"
#include "cuda/gradient/wgmma/search.hpp"
#include "gradient/gradient_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

Cases<GradientWgmmaCut> cases([](const ProductCase& one) { return run_gradient_wgmma(one); });
std::vector<GradientWgmmaCut> forced;

/// Runs each shape on tiles with tails, over several stages of samples, with and without clusters.
TEST(GradientWgmma, EveryShape) {
  int at = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (std::size_t shape = 0; shape < cuda::gradient_wgmma_shapes.size(); ++shape)
      for (const int multiprocessors : {1, 132}) {
        const cuda::GradientWgmmaShape& kernel = cuda::gradient_wgmma_shapes[shape];
        const bool first = kernel.source != cuda::GradientSource::columns;
        ProductCase one;
        Problem& problem = one.problem;
        problem.operation = Operation::gradient;
        problem.dtype = dtype;
        problem.layout = first ? Layout::batch_first : Layout::batch_last;
        problem.chain =
            Pattern{2, at % 3 == 0 ? 72 : 24, kernel.n > 128 ? 40 : kernel.n + 8,
                    first ? kernel.block_j * (kernel.block_j == 16 ? 1 + at % 2 : 1) : 1 + at % 3};
        problem.batch = multiprocessors == 1 ? 200 : 568;
        if (kernel.block_j * kernel.n > 400)
          problem.chain = Pattern{1, problem.pattern().b, problem.pattern().c, problem.pattern().d};
        one.multiprocessors = multiprocessors;
        one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
        try {
          forced.push_back(run_gradient_wgmma(one, shape));
        } catch (const std::exception& error) {
          ADD_FAILURE() << one.text() << ", shape " << shape << ": " << error.what();
        }
        if (quick) break;
      }
}

TEST(GradientWgmma, AnyProblem) {
  const std::int64_t blocks[] = {1, 2, 3}, rows[] = {8, 16, 24, 48, 64, 72, 136},
                     products[] = {1, 2, 4, 8, 16, 32};
  const std::int64_t odd_rows[] = {1, 5, 16, 33, 70}, last_products[] = {1, 2, 5};
  const std::int64_t first_batches[] = {1, 7, 16, 33, 136, 530, 1000}, last_batches[] = {8, 64, 136, 528};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(dtype) * 2 + static_cast<std::uint64_t>(layout));
      const bool first = layout == Layout::batch_first;
      for (int at = 0; at < (quick ? 3 : 14); ++at) {
        ProductCase one;
        Problem& problem = one.problem;
        problem.operation = Operation::gradient;
        problem.dtype = dtype;
        problem.layout = layout;
        constexpr double most_work = 1.5e6;  // limits the plain loop that results are compared with
        do {
          if (first)
            problem.chain = Pattern{pick.of(blocks), pick.of(rows), pick.of(rows), pick.of(products)};
          else
            problem.chain =
                Pattern{pick.of(blocks), pick.of(odd_rows), pick.of(odd_rows), pick.of(last_products)};
          problem.batch = first ? pick.of(first_batches) : pick.of(last_batches);
        } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) >
                 most_work);
        const auto apart = static_cast<std::int64_t>(8 * pick.next(3));
        problem.cols_stride = (first ? problem.pattern().cols() : problem.batch) + apart;
        problem.rows_stride = (first ? problem.pattern().rows() : problem.batch) + apart;
        const int offsets[] = {0, 0, 8};
        one.x_offset = pick.of(offsets);
        one.g_offset = pick.of(offsets);
        one.y_offset = pick.next(3) == 0 ? 1 : 0;
        const int multiprocessors[] = {1, 4, 132};
        one.multiprocessors = pick.of(multiprocessors);
        one.infinite = pick.next(6) == 0;
        one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
        cases.run(one);
      }
    }
}

TEST(GradientWgmma, LongBatchesInClusters) {
  for (const char* text :
       {"gradient f16 batch_first B=4099 1x16x16x16", "gradient bf16 batch_first B=2100 1x8x8x2",
        "gradient f16 batch_last B=3000 1x16x24x1"})
    for (const Timing timing : {Timing::late, Timing::early}) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.multiprocessors = 132;
      one.timing = timing;
      cases.run(one);
    }
}

TEST(GradientWgmma, ClustersFitTheGpu) {
  const auto most_splits = [](int multiprocessors) {
    ProductCase one;
    one.problem = Problem::parse("gradient f16 batch_first B=25088 1x64x64x1");
    one.multiprocessors = multiprocessors;
    int most = 0;
    for (const auto& config : cuda::gradient_wgmma_configs(one.problem, one.gpu()))
      most = std::max(most, config.splits);
    return most;
  };
  EXPECT_GT(most_splits(132), 8);
  EXPECT_LE(most_splits(60), 8);  // a part of a GPU, where clusters of 16 may find no place
  EXPECT_GT(most_splits(60), 1);
}

/// Cases are picked, and tiles chosen for them. This test checks that nothing is left out. Run alone (by a
/// filter) it has nothing to look at.
TEST(GradientWgmmaCoverage, EveryShapeAndWay) {
  if (quick || cases.cuts().empty() || forced.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, std::size_t>> shapes;
  std::set<int> splits, warpgroups;
  std::set<bool> stores;
  std::vector<GradientWgmmaCut> all = cases.cuts();
  all.insert(all.end(), forced.begin(), forced.end());
  for (const GradientWgmmaCut& cut : all) {
    shapes.emplace(cut.dtype, cut.shape_index);
    splits.insert(cut.splits);
    warpgroups.insert(cut.warpgroups);
    stores.insert(cut.y_vectors);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::gradient_wgmma_shapes.size());
  EXPECT_TRUE(splits.contains(1));
  EXPECT_GT(splits.size(), 3U);
  EXPECT_EQ(warpgroups.size(), 2U);
  EXPECT_EQ(stores.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
