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

/// A problem whose rows are units of 16 bytes, with tails of tiles.
ProductCase any_case(DType dtype, Layout layout, Picker& pick) {
  const bool first = layout == Layout::batch_first;
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t outputs[] = {5, 32, 37, 48, 64, 96, 128, 150, 192, 256, 300};
  const std::int64_t terms[] = {1, 8, 17, 61, 64, 130, 200};
  const std::int64_t products[] = {1, 2, 5};
  const std::int64_t batches[] = {8, 64, 72, 128, 200, 328};
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  const auto in_units = [&](std::int64_t features) { return first ? (features + 7) / 8 * 8 : features; };
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = layout;
  constexpr double most_work = 6e5;  // limits the plain loop that results are compared with
  do {
    problem.chain = Pattern{pick.of(blocks), in_units(pick.of(outputs)), in_units(pick.of(terms)),
                            first ? 1 : pick.of(products)};
    problem.batch = pick.of(batches) + (first ? static_cast<std::int64_t>(pick.next(8)) : 0);
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
      return dense + 8 * static_cast<std::int64_t>(pick.next(3));
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
      for (int at = 0; at < (quick ? 4 : 24); ++at) cases.run(any_case(dtype, layout, pick));
    }
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
  for (const char* text : {"f16 batch_last B=640 1x96x384x1", "f16 batch_first B=200 1x192x384x1"})
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
                           "f16 batch_first B=137 1x264x640x1", "bf16 batch_first B=261 2x40x2000x1"}) {
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
