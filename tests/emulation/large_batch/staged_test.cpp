// Runs staged on the CPU, on problems whose results are exact: chunks of one and of several levels, of some
// blocks i and of all, addresses that are not multiples of 16 bytes, tails of every dimension. Also checks
// how problems are cut for a GPU of full size.
#include <gtest/gtest.h>

#include <set>

#include "cases.hpp"
#include "cuda/large_batch/staged/search.hpp"
#include "large_batch/staged_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

Cases<StagedCut> cases(run_staged);

ProductCase any_case(DType dtype, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t features[] = {8, 16, 24};
  const std::int64_t products[] = {2, 4, 6, 10, 16, 26};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  constexpr double most_work = 6e5;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), pick.of(features), pick.of(features), pick.of(products)};
    const std::int64_t shorter = problem.pattern().c / problem.pattern().b;  // y then has less room for x
    problem.batch = (3 + shorter) * 128 + static_cast<std::int64_t>(pick.next(300));
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
  pick_operation(problem, pick);
  const bool transposed = problem.operation == Operation::transposed;
  std::int64_t& x_stride = transposed ? problem.rows_stride : problem.cols_stride;
  if (pick.next(2) == 0)
    x_stride = (transposed ? problem.pattern().rows() : problem.pattern().cols()) +
               static_cast<std::int64_t>(pick.next(3)) * 4;
  pick_surroundings(one, pick);
  const int multiprocessors[] = {1, 3, 7};
  one.multiprocessors = pick.of(multiprocessors);
  if (pick.next(2) == 0)  // nearly always room for a chunk of a single i
    one.l2_bytes = static_cast<std::size_t>(
        100 * (problem.pattern().rows() + problem.pattern().cols()) * 4 / problem.pattern().a + 2000);
  return one;
}

TEST(Staged, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    for (int at = 0; at < (quick ? 1 : 4); ++at) cases.run(any_case(dtype, pick));
  }
}

/// Streamed weights; a d whose tiles have 8 runs; several levels.
TEST(Staged, LargeProblems) {
  for (const char* text : {"f16 batch_first B=520 1x256x512x2", "bf16 batch_first B=390 1x16x8x130 +bias",
                           "f16 batch_first B=1100 1x8x8x2 +bias"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    cases.run(one);
  }
}

TEST(StagedCoverage, EveryWay) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  std::set<bool> levels, splits, shorter, x, y;
  for (const StagedCut& cut : cases.cuts()) {
    levels.insert(cut.levels > 1);
    splits.insert(cut.splits_i);
    shorter.insert(cut.has_shorter);
    x.insert(cut.x_in_pieces);
    y.insert(cut.y_in_pieces);
  }
  EXPECT_EQ(levels.size(), 2U);
  EXPECT_EQ(splits.size(), 2U);
  EXPECT_TRUE(shorter.contains(true));
  EXPECT_EQ(x.size(), 2U);
  EXPECT_EQ(y.size(), 2U);
}

/// Levels follow each other, and the memory in between is in later rows.
TEST(Staged, ChunksLieInLaterRows) {
  ProductCase h200;
  h200.multiprocessors = 132;
  for (const char* pattern : {"1x1024x1024x32", "3x768x768x16", "1x256x1024x12", "96x96x96x4", "1x48x48x24",
                              "1x1024x256x48", "6x48x192x64"})
    for (const std::int64_t batch : {400, 1000, 25088})
      for (const bool bias : {false, true}) {
        Problem problem = Problem::parse(std::string("f16 batch_first B=1 ") + pattern);
        problem.batch = batch;
        problem.bias = bias;
        const cuda::StagedConfig config = cuda::staged_config(problem, h200.gpu());
        const std::int64_t row_bytes = problem.pattern().rows() * 2;
        std::int64_t next = 0;
        for (const cuda::StagedLevel& level : config.levels) {
          EXPECT_EQ(level.first, next);
          EXPECT_GE(level.count, level.chunk);
          EXPECT_EQ(problem.pattern().a % level.blocks_i, 0);
          next = level.first + level.count;
          const std::int64_t bytes = cuda::staged_scratch(problem, level).bytes;
          EXPECT_LE(bytes, (batch - next) * row_bytes) << problem.to_string();
          EXPECT_LE(static_cast<double>(bytes), 0.7 * static_cast<double>(h200.l2_bytes));
        }
        EXPECT_EQ(config.rest_first, next);
        EXPECT_LT(next, batch);
        if (batch == 25088) {
          EXPECT_GE(next, batch * 9 / 10) << problem.to_string();
        }
      }
}

}  // namespace
}  // namespace kronsparse::emulation
