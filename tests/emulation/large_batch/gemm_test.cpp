// Runs gemm on the CPU, on problems whose results are exact: every tile, weights of two groups, of one, and
// streamed, addresses that the copy engine cannot take, tails of every dimension.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "cases.hpp"
#include "cuda/large_batch/gemm/search.hpp"
#include "large_batch/gemm_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

Cases<GemmCut> cases(run_gemm);

/// A problem with tails of tiles. If it is `in_units`, its rows are whole units of 16 bytes.
ProductCase any_case(DType dtype, Layout layout, bool in_units, Picker& pick) {
  const bool first = layout == Layout::batch_first;
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t outputs[] = {5, 32, 37, 48, 64, 96, 128, 150, 192, 256, 300};
  const std::int64_t terms[] = {1, 8, 17, 61, 64, 130, 200};
  const std::int64_t products[] = {1, 2, 5};
  const std::int64_t batches[] = {8, 64, 72, 128, 200, 328};
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  const auto features = [&](std::int64_t some) { return first && in_units ? (some + 7) / 8 * 8 : some; };
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = layout;
  constexpr double most_work = 6e5;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), features(pick.of(outputs)), features(pick.of(terms)),
                            first ? 1 : pick.of(products)};
    problem.batch = pick.of(batches) + (first || !in_units ? static_cast<std::int64_t>(pick.next(8)) : 0);
  } while (static_cast<double>(problem.pattern().nnz()) * static_cast<double>(problem.batch) > most_work);
  if (pick.next(4) == 0) {
    problem.operation = Operation::transposed;
    problem.chain = problem.pattern().transposed();
  } else {
    problem.bias = pick.next(3) == 0;
    problem.activation = pick.of(activations);
  }
  if (pick.next(2) == 0) {  // gaps between rows
    const auto apart = [&](std::int64_t dense) {
      return dense + (in_units ? 8 : 1) * static_cast<std::int64_t>(pick.next(3));
    };
    problem.cols_stride = apart(first ? problem.pattern().cols() : problem.batch);
    problem.rows_stride = apart(first ? problem.pattern().rows() : problem.batch);
  }
  one.x_offset = pick.next(4) == 0 ? 3 : 0;
  one.y_offset = pick.next(4) == 0 ? 1 : 0;
  const int multiprocessors[] = {1, 2, 3, 7};
  one.multiprocessors = pick.of(multiprocessors);
  one.infinite = pick.next(6) == 0;
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

TEST(Gemm, AnyProblem) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(dtype) * 2 + static_cast<std::uint64_t>(layout));
      for (int at = 0; at < (quick ? 8 : 48); ++at) cases.run(any_case(dtype, layout, at % 2 == 0, pick));
    }
}

/// Rows that begin and end anywhere: every tile, fewer samples or terms than a vector has, rows of one
/// vector.
TEST(Gemm, RowsThatTheCopyEngineDoesNotTake) {
  int at = 0;
  const auto run = [&](const Problem& problem) {
    ProductCase one;
    one.problem = problem;
    one.x_offset = at % 8;
    one.y_offset = at * 3 % 8;
    one.multiprocessors = 1 + at % 2;
    one.infinite = at % 3 == 0;
    one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
    cases.run(one);
  };
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::GemmShape& shape : cuda::gemm_shapes) {
      Problem problem;
      problem.dtype = dtype;
      problem.layout = shape.columns ? Layout::batch_last : Layout::batch_first;
      problem.chain = Pattern{2, shape.n - (shape.columns ? 0 : 1), 19, shape.columns ? 3 : 1};
      problem.batch = 2 * shape.samples() + 3;
      run(problem);
    }
  for (const char* text :
       {"f16 batch_last B=1 3x2x5x3", "f16 batch_last B=3 5x5x2x7", "f16 batch_last B=9 2x33x65x3",
        "f16 batch_last B=127 1x96x130x3 cols_stride=131 rows_stride=129 +bias",
        "f16 batch_first B=5 7x3x2x1", "f16 batch_first B=70 3x13x67x1 +bias",
        "bf16 batch_first B=131 1x9x129x1 cols_stride=133 rows_stride=11"})
    run(Problem::parse(text));
}

/// Runs a problem for each tile, with several tiles of samples for the warpgroups to take in turn.
TEST(Gemm, EveryTile) {
  int at = 0;
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const cuda::GemmShape& shape : cuda::gemm_shapes) {
      ProductCase one;
      one.problem.dtype = dtype;
      one.problem.layout = shape.columns ? Layout::batch_last : Layout::batch_first;
      one.problem.chain = Pattern{1, shape.n, 24, shape.columns ? 2 : 1};
      one.problem.batch = 3 * shape.samples() + 8;
      one.multiprocessors = 1;
      one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
      cases.run(one);
    }
}

/// Weights that fill shared memory leave a ring no longer than a tile. The warpgroup that is not multiplying
/// must not mistake the stages of the previous turn for its own.
TEST(Gemm, RingsNoLongerThanATile) {
  for (const char* text : {"f16 batch_last B=640 1x96x384x1", "f16 batch_first B=200 1x192x384x1",
                           "f16 batch_last B=637 1x96x383x1", "f16 batch_first B=200 1x191x383x1"})
    for (const Timing timing : {Timing::late, Timing::early}) {
      ProductCase one;
      one.problem = Problem::parse(text);
      one.multiprocessors = 1;
      one.timing = timing;
      cases.run(one);
    }
}

TEST(Gemm, StreamedWeights) {
  int at = 0;
  for (const char* text : {"f16 batch_last B=136 1x260x640x2", "bf16 batch_last B=264 1x40x2000x1",
                           "f16 batch_first B=137 1x264x640x1", "bf16 batch_first B=261 2x40x2000x1",
                           "f16 batch_last B=133 1x261x643x2", "bf16 batch_last B=259 1x40x1999x1",
                           "f16 batch_first B=137 1x261x643x1", "bf16 batch_first B=261 2x41x1999x1"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    one.multiprocessors = 1 + at % 3;
    one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
    cases.run(one);
  }
}

/// Cases are picked, and tiles chosen for them. This test checks that nothing is left out. Run alone (by a
/// filter) it has nothing to look at.
TEST(GemmCoverage, EveryTileAndWay) {
  if (quick || cases.cuts().empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, std::size_t>> shapes;
  std::set<std::tuple<bool, int>> weights;
  std::set<std::tuple<bool, bool, bool>> copies;
  for (const GemmCut& cut : cases.cuts()) {
    const bool columns = cuda::gemm_shapes[cut.shape_index].columns;
    shapes.emplace(cut.dtype, cut.shape_index);
    weights.emplace(columns, cut.w_slots);
    copies.emplace(columns, cut.x_tensor_copies, cut.y_tensor_copies);
  }
  EXPECT_EQ(shapes.size(), 2 * cuda::gemm_shapes.size());
  EXPECT_EQ(weights.size(), 6U);  // weights of two groups, of one, and streamed
  EXPECT_EQ(copies.size(), 8U);
}

}  // namespace
}  // namespace kronsparse::emulation
