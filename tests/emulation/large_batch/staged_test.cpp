// Runs staged on the CPU, on problems whose results are exact: one chunk and several, of some blocks i and of
// all, addresses and strides that are not multiples of 16 bytes, tails of every dimension. Also checks how
// problems are cut for a GPU of full size.
#include <gtest/gtest.h>

#include <algorithm>
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
  const std::int64_t features[] = {3, 8, 13, 16, 24, 33};
  const std::int64_t products[] = {2, 3, 4, 5, 6, 7, 10, 16, 26};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  constexpr double most_work = 6e5;  // limits the plain loop that results are compared with
  pick_sizes(
      problem, most_work,
      [&] {
        return Pattern{pick.of(blocks), pick.of(features), pick.of(features), pick.of(products)};
      },
      [&] { return 1 + static_cast<std::int64_t>(pick.next(400)); });
  pick_operation(problem, pick);
  pick_strides(problem, pick);
  pick_surroundings(one, pick);
  const int multiprocessors[] = {1, 3, 7};
  one.multiprocessors = pick.of(multiprocessors);
  if (pick.next(2) == 0) {  // room for a tile of a single i, and the bias
    const Pattern& p = problem.pattern();
    const std::int64_t b = cuda::sorted_length(p.b), c = cuda::sorted_length(p.c);
    one.l2_bytes = static_cast<std::size_t>((128 * p.d * (b + c) + p.a * p.d * std::max(b, c)) * 2 * 3 / 2);
  }
  return one;
}

TEST(Staged, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Picker pick(static_cast<std::uint64_t>(dtype));
    for (int at = 0; at < (quick ? 2 : 8); ++at) cases.run(any_case(dtype, pick));
  }
}

/// Streamed weights; a d whose tiles have 8 runs; many tiles of a sample.
TEST(Staged, LargeProblems) {
  for (const char* text : {"f16 batch_first B=130 1x256x512x2", "bf16 batch_first B=70 1x16x8x130 +bias",
                           "f16 batch_first B=67 2x19x201x43", "bf16 batch_first B=9 1x9x61x257 +bias"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    cases.run(one);
  }
}

TEST(StagedCoverage, EveryWay) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  std::set<bool> chunks, splits, shorter, x, y;
  for (const StagedCut& cut : cases.cuts()) {
    chunks.insert(cut.several_chunks);
    splits.insert(cut.splits_i);
    shorter.insert(cut.has_shorter);
    x.insert(cut.x_in_pairs);
    y.insert(cut.y_in_pairs);
  }
  EXPECT_EQ(chunks.size(), 2U);
  EXPECT_EQ(splits.size(), 2U);
  EXPECT_TRUE(shorter.contains(true));
  EXPECT_EQ(x.size(), 2U);
  EXPECT_EQ(y.size(), 2U);
}

TEST(Staged, ChunksStayInL2) {
  ProductCase h200;
  h200.multiprocessors = 132;
  for (const char* pattern : {"1x1024x1024x32", "3x768x768x16", "1x256x1024x12", "96x96x96x4", "1x47x48x23",
                              "1x1024x255x48", "6x48x192x64"})
    for (const std::int64_t batch : {1, 400, 1000, 25088})
      for (const bool bias : {false, true}) {
        Problem problem = Problem::parse(std::string("f16 batch_first B=1 ") + pattern);
        problem.batch = batch;
        problem.bias = bias;
        const cuda::StagedConfig config = cuda::staged_config(problem, h200.gpu());
        EXPECT_GE(config.chunk, 1) << problem.to_string();
        EXPECT_LE(config.chunk, batch);
        EXPECT_EQ(problem.pattern().a % config.blocks_i, 0);
        EXPECT_LE(static_cast<double>(cuda::staged_scratch(problem, config).bytes),
                  0.7 * static_cast<double>(h200.l2_bytes));
      }
}

}  // namespace
}  // namespace kronsparse::emulation
