// Runs fused on the CPU, on chains whose results are exact: every shape, clusters, parts, layouts, tails of
// every dimension.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "chain/fused_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

std::vector<FusedCut> cuts;

void run(const ProductCase& one, const cuda::fused::Config& config, const Exponents& exponents = {}) {
  try {
    cuts.push_back(run_fused(one, config, exponents));
  } catch (const std::exception& error) {
    ADD_FAILURE() << one.text() << " by " << config.shape.samples << " samples, " << config.ranks()
                  << " ranks, " << config.arguments.parts << " parts, " << config.arguments.x_buffers
                  << " buffers: " << error.what();
  }
}

/// Chains of two to four factors: monarchs, butterflies, low ranks, and sizes that nothing divides.
constexpr const char* chains[] = {"1x16x16x16*16x16x16x1",
                                  "1x32x8x16*8x16x32x1",
                                  "1x48x24x2*2x24x48x1",
                                  "1x80x16x3*6x8x24x1",
                                  "1x64x32x8*16x16x16x1",
                                  "1x17x19x5*5x19x23x1",
                                  "4x16x16x1*1x4x4x16",
                                  "2x20x16x4*8x16x18x1",
                                  "1x16x16x8*8x16x32x1",
                                  "1x2x2x32*2x32x32x1",
                                  "1x16x4x8*4x8x8x1*8x4x16x1",
                                  "1x4x4x16*4x4x4x4*16x4x4x1",
                                  "1x2x2x32*2x2x2x16*4x2x2x8*8x2x2x4*16x2x2x2*32x2x2x1",
                                  "1x96x64x1*1x64x40x1",
                                  "8x16x16x2*16x16x16x1",
                                  "1x8x8x8*8x8x8x1*1x8x8x8*8x8x8x1"};

ProductCase any_case(const char* chain, std::size_t kind, Layout layout, Picker& pick) {
  ProductCase one;
  Problem& problem = one.problem;
  problem.chain = Chain::parse(chain);
  problem.dtype = kind == 0 ? DType::f16 : kind == 1 ? DType::bf16 : DType::f32;
  problem.mode = kind == 2 ? Mode::tf32 : Mode::fp32;
  problem.layout = layout;
  const std::int64_t batches[] = {1, 7, 16, 33, 64, 65, 100};
  problem.batch = pick.of(batches);
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  if (pick.next(3) == 0) {
    problem.operation = Operation::transposed;
  } else {
    problem.bias = pick.next(2) == 0;
    problem.activation = pick.of(activations);
  }
  const std::size_t apart = pick.next(3);
  if (apart != 0) {
    const bool first = layout == Layout::batch_first;
    const std::int64_t gap = apart == 1 ? 8 : 1;
    const auto stride = [&](std::int64_t dense) {
      return (dense + gap - 1) / gap * gap + gap * static_cast<std::int64_t>(pick.next(3));
    };
    problem.cols_stride = stride(first ? problem.chain.cols() : problem.batch);
    problem.rows_stride = stride(first ? problem.chain.rows() : problem.batch);
  }
  const int offsets[] = {0, 0, 4, 3};
  one.x_offset = pick.of(offsets);
  one.y_offset = pick.of(offsets);
  one.infinite = pick.next(6) == 0;
  const int multiprocessors[] = {1, 2, 9};
  one.multiprocessors = pick.of(multiprocessors);
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

/// Some configs of each chain, others each time.
void run_some(std::size_t kind, Layout layout, std::size_t count) {
  Picker pick(kind * 2 + static_cast<std::size_t>(layout));
  for (const char* chain : chains)
    for (std::size_t turn = 0; turn < (quick ? 1 : count); ++turn) {
      const ProductCase one = any_case(chain, kind, layout, pick);
      const std::vector<cuda::fused::Config> configs = fused_configs(one);
      ASSERT_FALSE(configs.empty()) << one.text();
      run(one, configs[pick.next(configs.size())]);
    }
}

TEST(Fused, F16BatchFirst) { run_some(0, Layout::batch_first, 4); }
TEST(Fused, F16BatchLast) { run_some(0, Layout::batch_last, 2); }
TEST(Fused, Bf16) {
  run_some(1, Layout::batch_first, 1);
  run_some(1, Layout::batch_last, 1);
}
TEST(Fused, Tf32) { run_some(2, Layout::batch_first, 1); }
TEST(Fused, Tf32x3) {
  run_some(3, Layout::batch_first, 2);
  run_some(3, Layout::batch_last, 1);
}

/// Chains whose factors are multiplied together, for good or in part.
constexpr const char* merged_chains[] = {"1x4x4x4*4x4x4x1", "1x16x4x8*4x8x8x1*8x4x16x1",
                                         "1x4x4x16*4x4x4x4*16x4x4x1", "2x8x3x2*2x6x17x1",
                                         "1x2x2x32*2x2x2x16*4x2x2x8*8x2x2x4*16x2x2x2*32x2x2x1"};

/// Weights that the dtype holds, and whose products it does not.
TEST(Fused, ProductsOfWeightsOutOfRange) {
  Picker pick(3);
  for (const std::size_t kind : {0u, 1u, 2u, 3u})
    for (const char* chain : merged_chains)
      for (const bool is_large : {true, false})
        for (const Layout layout : {Layout::batch_first, Layout::batch_last}) {
          if (quick && layout == Layout::batch_last) continue;
          ProductCase one = any_case(chain, kind, layout, pick);
          one.infinite = false;
          one.problem.batch = 17;
          one.problem.cols_stride = one.problem.rows_stride = 0;
          const std::vector<cuda::Link> links = links_of(one.problem);
          ASSERT_TRUE(std::ranges::any_of(links, [](const auto& link) { return link.factors > 1; }))
              << one.text();
          const Exponents of_half = is_large ? Exponents{.first = 7, .second = 10, .outputs = 4, .x = -18}
                                             : Exponents{.first = -14, .second = -14, .outputs = 2, .x = 13};
          const Exponents of_float = is_large
                                         ? Exponents{.first = 70, .second = 80, .outputs = 9, .x = -120}
                                         : Exponents{.first = -70, .second = -80, .outputs = 9, .x = 110};
          const std::vector<cuda::fused::Config> configs = fused_configs(one);
          run(one, configs[pick.next(configs.size())], kind == 0 ? of_half : of_float);
        }
}

/// Outputs are infinities or NaNs if and only if they are with the factors one by one.
TEST(Fused, InfiniteWeights) {
  Picker pick(4);
  for (const std::size_t kind : {0u, 1u, 3u})
    for (const char* chain : merged_chains) {
      ProductCase one = any_case(chain, kind, Layout::batch_first, pick);
      one.problem.activation = Activation::none;
      one.infinite = false;
      const std::vector<cuda::fused::Config> configs = fused_configs(one);
      run(one, configs[pick.next(configs.size())], {.infinite_weight = true});
    }
}

/// Random weights of any size: no worse than the bound of the factors one by one.
TEST(Fused, ErrorsOfProductsOfWeights) {
  Picker pick(5);
  for (const std::size_t kind : {0u, 1u, 3u})
    for (const char* chain : merged_chains)
      for (const auto& [least, most] :
           {std::pair(1e-4, 1e4), std::pair(1.0, 1e4), std::pair(1e-4, 1e-2), std::pair(0.1, 1.0)}) {
        ProductCase one = any_case(chain, kind, Layout::batch_first, pick);
        one.infinite = false;
        one.problem.activation = Activation::none;
        one.problem.bias = false;
        // With more factors of such weights, those one by one leave the range of half numbers, too.
        if (one.problem.chain.size() > 2 && kind == 0 && most > 1) continue;
        const std::vector<cuda::fused::Config> configs = fused_configs(one);
        EXPECT_LE(worst_error(one, configs[pick.next(configs.size())], least, most), 1)
            << one.text() << " with weights from " << least << " to " << most;
      }
}

/// Every config of a chain that clusters of 2, 4 and 8 divide, and whose y is cut into parts.
TEST(Fused, EveryConfig) {
  for (const char* text :
       {"f16 batch_first B=70 1x64x16x8*8x16x32x1 +bias", "f32 batch_first B=70 1x32x16x8*8x16x32x1",
        "f16 batch_last B=70 1x64x16x8*8x16x32x1"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    one.multiprocessors = 8;
    for (const cuda::fused::Config& config : fused_configs(one)) run(one, config);
    if (quick) break;
  }
}

/// A chain so wide that only parts of y, or clusters, fit.
TEST(Fused, Wide) {
  if (quick) GTEST_SKIP() << "takes long";
  ProductCase one;
  one.problem = Problem::parse("f16 batch_first B=17 1x2048x16x2*2x16x16x1");
  const std::vector<cuda::fused::Config> configs = fused_configs(one);
  bool has_parts = false;
  for (const cuda::fused::Config& config : configs)
    if (config.arguments.parts > 1 && !has_parts) {
      has_parts = true;
      run(one, config);
    }
  EXPECT_TRUE(has_parts);
}

TEST(FusedCoverage, EveryForm) {
  if (quick || cuts.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::tuple<cuda::Arithmetic, int>> shapes;
  std::set<int> ranks, buffers, threads;
  std::set<std::tuple<bool, bool>> x_forms, vectors;
  bool has_parts = false;
  for (const FusedCut& cut : cuts) {
    shapes.emplace(cut.arithmetic, cut.samples);
    ranks.insert(cut.ranks);
    buffers.insert(cut.x_buffers);
    threads.insert(cut.threads);
    x_forms.emplace(cut.samples_first, cut.x_rows);
    vectors.emplace(cut.x_vectors, cut.y_vectors);
    has_parts = has_parts || cut.parts > 1;
  }
  EXPECT_EQ(shapes.size(), 2 * 4u + 2 * 3u);
  EXPECT_EQ(ranks, (std::set{1, 2, 4, 8}));
  EXPECT_EQ(buffers, (std::set{1, 2}));
  EXPECT_EQ(x_forms.size(), 3u);  // rows, rows that become lines, lines
  EXPECT_EQ(vectors.size(), 4u);
  EXPECT_TRUE(has_parts);
}

}  // namespace
}  // namespace kronsparse::emulation
