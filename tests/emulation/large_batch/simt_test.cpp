// Runs simt on the CPU, on problems whose results are exact: every compiled tile of f32 and of halves, with
// tails of every dimension, several chunks of l, strides and addresses that allow no vectors.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "cases.hpp"
#include "large_batch/simt_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

std::vector<SimtCut> cuts;

ProductCase any_case(DType dtype, Layout layout, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3};
  const std::int64_t outputs[] = {1, 3, 8, 48, 65, 100};
  const std::int64_t inputs[] = {1, 7, 8, 17, 40};
  const std::int64_t products[] = {1, 1, 2, 3, 4, 8, 9};
  const std::int64_t batches[] = {1, 7, 33, 64, 132};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.layout = layout;
  pick_sizes(
      problem, 2e5,
      [&] {
        return Pattern{pick.of(blocks), pick.of(outputs), pick.of(inputs), pick.of(products)};
      },
      [&] { return pick.of(batches); });
  pick_operation(problem, pick);
  pick_strides(problem, pick);
  pick_surroundings(one, pick);
  return one;
}

TEST(Simt, EveryTile) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(dtype) * 2 + static_cast<std::uint64_t>(layout));
      for (std::size_t tile = 0; tile < simt_tiles(dtype, layout); ++tile)
        for (int at = 0; at < (quick ? 1 : 4); ++at) {
          const ProductCase one = any_case(dtype, layout, pick);
          try {
            cuts.push_back(run_simt(one, tile));
          } catch (const std::exception& error) {
            ADD_FAILURE() << one.text() << ", tile " << tile << ": " << error.what();
          }
        }
    }
}

/// Cases are picked. This test checks that nothing is left out. Run alone (by a filter) it has nothing to
/// look at.
TEST(SimtCoverage, EveryWay) {
  if (quick || cuts.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<bool, bool>> chunks, x, y;
  for (const SimtCut& cut : cuts) {
    const bool is_float = cut.dtype == DType::f32;
    chunks.emplace(is_float, cut.has_chunks);
    x.emplace(is_float, cut.x_vectors);
    y.emplace(is_float, cut.y_vectors);
  }
  EXPECT_EQ(chunks.size(), 4U);
  EXPECT_EQ(x.size(), 4U);
  EXPECT_EQ(y.size(), 4U);
}

}  // namespace
}  // namespace kronsparse::emulation
