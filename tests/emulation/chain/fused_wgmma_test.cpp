// Runs fused_wgmma on the CPU, on chains whose results are exact: every shape, parts, tails of every
// dimension, blocks that are multiplied together, addresses that the copy engine does not take.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chain/fused_wgmma_run.hpp"
#include "picker.hpp"

namespace kronsparse::emulation {
namespace {

using cuda::fused_wgmma::Config;

std::vector<FusedWgmmaCut> cuts;

void run(const ProductCase& one, const std::vector<cuda::Link>& links, const Config& config,
         const Exponents& exponents = {}) {
  try {
    cuts.push_back(run_fused_wgmma(one, links, config, exponents));
  } catch (const std::exception& error) {
    ADD_FAILURE() << one.text() << " in " << links.size() << " products by shape " << config.shape_index
                  << ", " << config.arguments.parts << " parts, "
                  << (config.arguments.step[links.size() - 1].in_place ? "in place" : "apart") << ": "
                  << error.what();
  }
}

/// Monarchs, butterflies, low ranks, BLAST, and sizes that nothing divides.
constexpr const char* chains[] = {
    "1x16x16x16*16x16x16x1",      "1x32x8x16*8x16x32x1",
    "1x48x24x2*2x24x48x1",        "1x80x16x3*6x8x32x1",
    "1x64x32x8*16x16x16x1",       "1x17x19x5*5x19x48x1",
    "1x200x20x2*8x5x16x1",        "4x16x16x1*1x4x4x16*2x32x32x1",
    "2x20x18x4*8x18x16x1",        "1x16x16x8*8x16x32x1",
    "1x2x2x32*2x32x32x1",         "1x16x4x8*4x8x8x1*8x4x16x1",
    "1x4x4x16*4x4x4x4*16x4x16x1", "1x2x2x32*2x2x2x16*4x2x2x8*8x2x2x4*16x2x2x2*32x2x16x1",
    "1x96x64x1*1x64x80x1",        "1x300x24x1*1x24x176x1",
    "8x16x16x2*16x16x16x1",       "3x40x130x2*6x130x144x1",
    "1x384x40x2*2x40x160x1",      "1x48x48x4*4x48x64x1"};

ProductCase any_case(const char* chain, DType dtype, Picker& pick) {
  ProductCase one;
  Problem& problem = one.problem;
  problem.chain = Chain::parse(chain);
  problem.dtype = dtype;
  problem.layout = Layout::batch_first;
  const std::int64_t batches[] = {1, 7, 63, 64, 65, 130, 200};
  problem.batch = pick.of(batches);
  const Activation activations[] = {Activation::none, Activation::none, Activation::relu, Activation::gelu};
  problem.bias = pick.next(2) == 0;
  problem.activation = pick.of(activations);
  if (pick.next(3) == 0) {
    problem.cols_stride = problem.chain.cols() + 8 * static_cast<std::int64_t>(pick.next(3));
    problem.rows_stride = problem.chain.rows() + static_cast<std::int64_t>(pick.next(9));
  }
  const int offsets[] = {0, 0, 4, 3};
  one.x_offset = pick.of(offsets);
  one.y_offset = pick.of(offsets);
  one.infinite = pick.next(6) == 0;
  const int multiprocessors[] = {1, 2};
  one.multiprocessors = pick.of(multiprocessors);
  one.timing = pick.next(2) == 0 ? Timing::late : Timing::early;
  return one;
}

/// The adjoint of a chain computes the same products from the other side.
ProductCase adjoint_of(ProductCase one) {
  Problem& problem = one.problem;
  problem.chain = problem.chain.transposed();
  problem.operation = Operation::transposed;
  problem.bias = false;
  problem.activation = Activation::none;
  std::swap(problem.rows_stride, problem.cols_stride);
  return one;
}

void run_some(DType dtype, std::size_t count) {
  Picker pick(static_cast<std::size_t>(dtype));
  for (const char* chain : chains)
    for (std::size_t turn = 0; turn < (quick ? 1 : count); ++turn) {
      ProductCase one = any_case(chain, dtype, pick);
      if (turn % 3 == 2) one = adjoint_of(one);
      const auto ways = fused_wgmma_ways(one.problem);
      ASSERT_FALSE(ways.empty()) << one.text();
      const auto& links = ways[pick.next(ways.size())];
      const std::vector<Config> configs = cuda::fused_wgmma::all_configs(one.problem, links, one.gpu());
      ASSERT_FALSE(configs.empty()) << one.text();
      run(one, links, configs[pick.next(configs.size())]);
    }
}

TEST(FusedWgmma, F16) { run_some(DType::f16, 6); }
TEST(FusedWgmma, Bf16) { run_some(DType::bf16, 3); }

/// Every config of chains that are cut into parts, and that may compute in place.
TEST(FusedWgmma, EveryConfig) {
  for (const char* text :
       {"f16 batch_first B=200 1x384x40x2*2x40x160x1 +bias", "f16 batch_first B=130 1x16x16x16*16x16x16x1"}) {
    ProductCase one;
    one.problem = Problem::parse(text);
    one.multiprocessors = 1;
    for (const auto& links : fused_wgmma_ways(one.problem))
      for (const Config& config : cuda::fused_wgmma::all_configs(one.problem, links, one.gpu()))
        run(one, links, config);
    if (quick) break;
  }
}

/// Chains whose factors are multiplied together, for good or in part.
constexpr const char* merged_chains[] = {"1x16x4x4*4x4x16x1", "1x16x4x8*4x8x8x1*8x4x16x1",
                                         "1x4x4x16*4x4x4x4*16x4x16x1",
                                         "1x2x2x32*2x2x2x16*4x2x2x8*8x2x2x4*16x2x2x2*32x2x16x1"};

/// Each merged way of a chain.
template <class Body>
void for_merged(const ProductCase& one, const Body& body) {
  int count = 0;
  for (const auto& links : fused_wgmma_ways(one.problem)) {
    bool is_merged = false;
    for (const cuda::Link& link : links) is_merged = is_merged || link.factors > 1;
    if (!is_merged || ++count > 2) continue;
    const std::vector<Config> configs = cuda::fused_wgmma::all_configs(one.problem, links, one.gpu());
    if (!configs.empty()) body(links, configs.front());
  }
  EXPECT_GT(count, 0) << one.text();
}

/// Weights that the dtype holds, and whose products it does not.
TEST(FusedWgmma, ProductsOfWeightsOutOfRange) {
  Picker pick(3);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const char* chain : merged_chains)
      for (const bool is_large : {true, false}) {
        ProductCase one = any_case(chain, dtype, pick);
        one.infinite = false;
        one.problem.batch = 17;
        const Exponents of_half = is_large ? Exponents{.first = 7, .second = 10, .outputs = 4, .x = -18}
                                           : Exponents{.first = -14, .second = -14, .outputs = 2, .x = 13};
        const Exponents of_bf16 = is_large ? Exponents{.first = 70, .second = 80, .outputs = 9, .x = -120}
                                           : Exponents{.first = -70, .second = -80, .outputs = 9, .x = 110};
        for_merged(one, [&](const auto& links, const Config& config) {
          run(one, links, config, dtype == DType::f16 ? of_half : of_bf16);
        });
      }
}

/// Random weights of any size: no worse than the bound of the factors one by one.
TEST(FusedWgmma, ErrorsOfProductsOfWeights) {
  Picker pick(5);
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const char* chain : merged_chains)
      for (const auto& [least, most] : {std::pair(1e-4, 1e4), std::pair(1e-4, 1e-2), std::pair(0.1, 1.0)}) {
        ProductCase one = any_case(chain, dtype, pick);
        one.infinite = false;
        one.problem.activation = Activation::none;
        one.problem.bias = false;
        // With more factors of such weights, those one by one leave the range of half numbers, too.
        if (one.problem.chain.size() > 2 && dtype == DType::f16 && most > 1) continue;
        const double low = least, high = most;
        for_merged(one, [&](const auto& links, const Config& config) {
          EXPECT_LE(worst_error(one, links, config, low, high), 1)
              << one.text() << " with weights from " << low << " to " << high;
        });
      }
}

TEST(FusedWgmmaCoverage, EveryForm) {
  if (quick || cuts.empty()) GTEST_SKIP() << "needs all cases";
  std::set<std::pair<DType, std::size_t>> shapes;
  std::set<int> items, steps;
  std::set<std::pair<bool, bool>> places, vectors, details, others;
  bool has_parts = false;
  for (const FusedWgmmaCut& cut : cuts) {
    shapes.emplace(cut.dtype, cut.shape);
    items.insert(cut.items.begin(), cut.items.end());
    steps.insert(cut.steps);
    places.emplace(cut.in_place, cut.y_waits);
    vectors.emplace(cut.x_boxes, cut.y_vectors);
    details.emplace(cut.has_fewer_blocks, cut.has_slabs);
    others.emplace(cut.has_mixing, cut.has_padding);
    has_parts = has_parts || cut.parts > 1;
  }
  EXPECT_EQ(shapes.size(), 2 * 3u);
  EXPECT_EQ(items.size(), std::size_t{cuda::fused_wgmma::item_shape_count});
  EXPECT_TRUE(steps.contains(1) && steps.contains(2) && steps.contains(3));
  EXPECT_EQ(places.size(), 3u);  // what is in place waits, or has three products
  EXPECT_EQ(vectors.size(), 4u);
  EXPECT_EQ(details.size(), 4u);
  EXPECT_EQ(others.size(), 4u);
  EXPECT_TRUE(has_parts);
}

}  // namespace
}  // namespace kronsparse::emulation
