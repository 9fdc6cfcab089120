// Runs mma on the CPU, on problems whose results are exact: every shape, both layouts, pairs and single
// elements, chunks and passes, addresses and strides that allow no vector, tails of every dimension.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "cases.hpp"
#include "large_batch/mma_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

Cases<MmaCut> cases(run_mma);
std::vector<MmaCut> cuts_of_configs;

ProductCase any_case(DType dtype, Mode mode, Layout layout, Picker& pick) {
  const std::int64_t blocks[] = {1, 2, 3, 7, 20};
  const std::int64_t sizes[] = {1, 2, 3, 7, 16, 17, 33, 64, 70, 129, 300};
  const std::int64_t products[] = {1, 2, 3, 5, 8, 9, 20};
  const std::int64_t batches[] = {1, 7, 8, 33, 64, 65, 130, 200};
  ProductCase one;
  Problem& problem = one.problem;
  problem.dtype = dtype;
  problem.mode = mode;
  problem.layout = layout;
  pick_sizes(
      problem, 4e5,
      [&] {
        return Pattern{pick.of(blocks), pick.of(sizes), pick.of(sizes), pick.of(products)};
      },
      [&] { return pick.of(batches); });
  pick_operation(problem, pick);
  pick_strides(problem, pick);
  pick_surroundings(one, pick);
  return one;
}

TEST(Mma, AnyProblem) {
  struct Kind {
    DType dtype;
    Mode mode;
  };
  for (const Kind kind : {Kind{DType::f16, Mode::fp32}, Kind{DType::bf16, Mode::fp32},
                          Kind{DType::f32, Mode::fp32}, Kind{DType::f32, Mode::tf32}})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
      Picker pick(static_cast<std::uint64_t>(kind.dtype) * 4 + static_cast<std::uint64_t>(kind.mode) * 2 +
                  static_cast<std::uint64_t>(layout));
      for (int at = 0; at < (quick ? 4 : 20); ++at) cases.run(any_case(kind.dtype, kind.mode, layout, pick));
    }
}

/// Configs that the cost model would not choose for problems so small.
TEST(Mma, EveryConfig) {
  int at = 0;
  for (const char* text : {"f16 batch_first B=70 2x37x40x9 +bias", "f16 batch_first B=130 1x20x300x33 +gelu",
                           "f16 batch_last B=67 3x70x33x5", "f16 batch_first B=66 40x2x2x1",
                           "f16 batch_first B=65 5x3x3x2", "bf16 batch_first B=80 1x150x64x1",
                           "f32 batch_first B=40 2x37x41x9", "f32 batch_last B=37 1x70x300x3",
                           "f32 batch_first B=33 9x5x17x4 +bias", "f32 tf32 batch_last B=64 2x33x40x6"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    const auto configs = cuda::mma::all_configs(one.problem, one.gpu());
    ASSERT_FALSE(configs.empty()) << text;
    const std::size_t step = std::max<std::size_t>(1, configs.size() / (quick ? 2 : 8));
    for (std::size_t number = static_cast<std::size_t>(at) % step; number < configs.size(); number += step) {
      one.timing = at++ % 2 == 0 ? Timing::late : Timing::early;
      one.x_offset = at % 3 == 0 ? 1 : 0;
      try {
        cuts_of_configs.push_back(run_mma(one, configs[number]));
      } catch (const std::exception& error) {
        ADD_FAILURE() << one.text() << ", config " << number << " of " << configs.size() << ": "
                      << error.what();
      }
    }
  }
}

/// Cases are picked, and tiles chosen for them. This test checks that nothing is left out. Run alone (by a
/// filter) it has nothing to look at.
TEST(MmaCoverage, EveryWay) {
  if (quick || cases.cuts().empty() || cuts_of_configs.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<DType, Layout, bool, bool>> ways;
  std::set<std::tuple<DType, std::size_t>> shapes;
  std::set<bool> with_passes;
  for (const MmaCut& cut : cases.cuts())
    ways.emplace(cut.dtype, cut.layout, cut.x_width > 1, cut.y_width > 1);
  for (const MmaCut& cut : cuts_of_configs) {
    shapes.emplace(cut.dtype == DType::f32 ? DType::f32 : DType::f16, cut.shape_index);
    with_passes.insert(cut.has_passes);
  }
  EXPECT_EQ(ways.size(), 3U * 2 * 4);
  EXPECT_EQ(shapes.size(), 2U * 4);
  EXPECT_EQ(with_passes.size(), 2U);
}

}  // namespace
}  // namespace kronsparse::emulation
