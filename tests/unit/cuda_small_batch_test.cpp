// The CUDA backend's kernels for small batches, as far as they go without a GPU: what they take, which is
// chosen, and where their operands and sums lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "core/choice.hpp"
#include "cuda/small_batch/direct/search.hpp"
#include "cuda/small_batch/idle_blocks.hpp"
#include "cuda/small_batch/weights_stay/search.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

TEST(CudaTable, SumsStayWhereJAreFew) {
  const PretendedGpus machine({h200()});
  const auto sums_stay = [](const std::string& text) { return refusal("sums-stay", text); };
  for (const char* pattern : {"3x17x136x1", "3x17x68x2", "3x17x38x4"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(sums_stay(std::string("f16 batch_first B=") + batch + " " + pattern), "");
  EXPECT_EQ(sums_stay("transposed bf16 batch_first B=64 3x62x17x4 rows_stride=1000 cols_stride=999"), "");
  // Neither two warpgroups nor two blocks can share a box; the copy engine takes multiples of 16 bytes.
  expect_mentions(sums_stay("f16 batch_first B=64 3x17x64x1"), "has no way to cut");
  expect_mentions(sums_stay("f16 batch_first B=64 3x17x100x1"), "has no way to cut");
  expect_mentions(sums_stay("f16 batch_first B=64 3x17x68x4 cols_stride=1004"),
                  "rows of x this far apart, into blocks; the pattern is 3x17x68x4, samples of x lie 1004 "
                  "elements apart");
  expect_mentions(sums_stay("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(sums_stay("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(sums_stay("f16 batch_first B=64 1x16x16x3"), "d = 1, 2 or 4, not 3");
  expect_mentions(sums_stay("f16 batch_first B=64 1x16x16x12"), "d = 1, 2 or 4, not 12");
  expect_mentions(sums_stay("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(sums_stay("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, DirectLoadsAreForSmallBatchesOfEvenDOrOne) {
  const PretendedGpus machine({h200()});
  const auto direct = [](const std::string& text) { return refusal("direct", text); };
  for (const char* d : {"2", "4", "6", "8", "12", "16", "24", "64"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(direct(std::string("f16 batch_first B=") + batch + " 3x17x19x" + d), "");
  EXPECT_EQ(direct("transposed bf16 batch_first B=64 3x17x20x4 rows_stride=998"), "");
  EXPECT_EQ(direct("f16 batch_first B=64 3x17x20x1"), "");
  expect_mentions(direct("f16 batch_first B=64 3x17x19x1"), "a multiple of 4 terms, not 19");
  EXPECT_EQ(direct("f16 batch_first B=1 3x17x19x4 cols_stride=999"), "");
  expect_mentions(direct("f16 batch_first B=2 3x17x19x4 cols_stride=999"), "rows of x this far apart");
  // Weights of more bytes than an int counts are no fewer than those that are a little too many.
  for (const char* pattern : {"1x16x8192x8", "1x128x1048576x8", "1x256x524288x8", "1x128x600000x16"})
    expect_mentions(direct(std::string("f16 batch_first B=1 ") + pattern), "pattern of this size");
  expect_mentions(direct("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(direct("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(direct("f16 batch_first B=64 1x16x16x3"), "even d and 1, not 3");
  expect_mentions(direct("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(direct("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, UnpackedWeightsNeedNoWorkspace) {
  const PretendedGpus machine({h200()});
  const auto unpacked = [](const std::string& text) { return refusal("unpacked", text); };
  for (const char* text : {"f16 batch_first B=64 3x17x19x2", "bf16 batch_first B=1 3x17x20x1",
                           "transposed f16 batch_first B=8 3x17x19x6"})
    EXPECT_EQ(unpacked(text), "");
  expect_mentions(unpacked("transposed f16 batch_first B=8 3x20x17x1"), "d of 2 or more, not 1");
  expect_mentions(unpacked("f16 batch_first B=8 3x17x19x1"), "a multiple of 4 terms, not 19");
  expect_mentions(unpacked("f16 batch_first B=8 1x32768x32768x2"), "pattern of this size");
  expect_mentions(unpacked("f32 batch_first B=64 1x16x16x4"), "half types");

  // Weights that are kept are packed; weights that may change are read as they are given.
  const Device device{Backend::cuda, 0};
  for (const char* text : {"f16 batch_first B=8 1x256x256x16", "f16 batch_first B=8 16x256x256x1"}) {
    std::vector<Assessment> all =
        assess(backend_of(device).implementations, Problem::parse(text), device, {});
    std::erase_if(all, [](const Assessment& one) { return !one.proposal.refusal.empty(); });
    EXPECT_NE(all.front().implementation->name, "unpacked") << text;
    const auto with_packing = [](const Assessment& one) {
      return one.proposal.seconds + one.proposal.packing_seconds;
    };
    const Assessment& best = *std::ranges::min_element(all, {}, with_packing);
    EXPECT_EQ(best.implementation->name, "unpacked") << text;
    EXPECT_EQ(best.proposal.packing_seconds, 0) << text;
  }
}

TEST(CudaTable, WeightsStayWhereRowsAreShort) {
  const PretendedGpus machine({h200()});
  const auto weights_stay = [](const std::string& text) { return refusal("weights-stay", text); };
  for (const char* pattern :
       {"3x17x1024x4", "1x1x16x4", "1x40x512x8", "2x16x252x16", "1x99x128x32", "1x5x1x64"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(weights_stay(std::string("f16 batch_first B=") + batch + " " + pattern), "");
  EXPECT_EQ(weights_stay("transposed bf16 batch_first B=64 1x64x99x64 rows_stride=4104 cols_stride=9999"),
            "");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x1040x4"), "at most 4096; here 1040·4 = 4160");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x10x4"),
                  "multiple of 64 and at most 4096; here 10·4 = 40");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x2000000000x64"), "2000000000·64");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x64x4 cols_stride=260"), "rows of x this far apart");
  expect_mentions(weights_stay("f16 batch_first B=1 1x99999999999x64x4"),
                  "below 2^31; the pattern is 1x99999999999x64x4");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x64x1"), "4, 8, 16, 32 or 64, not 1");
  expect_mentions(weights_stay("f16 batch_first B=64 1x16x64x12"), "4, 8, 16, 32 or 64, not 12");
  expect_mentions(weights_stay("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(weights_stay("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(weights_stay("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(weights_stay("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

// The GPU has 132 multiprocessors.
TEST(CudaIdleBlocks, KernelsBesideEachOtherLeaveNoneFree) {
  const GpuFacts facts = h200();
  ASSERT_EQ(facts.multiprocessors, 132);
  EXPECT_EQ(with_idle_blocks(64, facts), 66);
  EXPECT_EQ(with_idle_blocks(43, facts), 44);
  EXPECT_EQ(with_idle_blocks(32, facts), 33);
  EXPECT_EQ(with_idle_blocks(50, facts, 2), 66);
  EXPECT_EQ(with_idle_blocks(60, facts, 4), 64);  // 66 are no whole clusters
  EXPECT_EQ(with_idle_blocks(40, facts, 8), 40);
  for (const unsigned all : {0U, 1U, 66U, 67U, 128U, 132U, 133U, 100000U})
    EXPECT_EQ(with_idle_blocks(all, facts), all);
  for (std::int64_t blocks = 1; blocks <= 140; ++blocks) {
    const std::int64_t launched = with_idle_blocks(blocks, facts);
    EXPECT_GE(launched, blocks);
    EXPECT_EQ(facts.multiprocessors / launched, facts.multiprocessors / blocks) << blocks;
  }
  EXPECT_EQ(with_idle_blocks(64, GpuFacts{}), 64U);
}

// The choice for small batches, where kernels were measured beside each other.
TEST(CudaTable, SmallBatchesGoToTheFastest) {
  const PretendedGpus machine({h200()});
  const auto chosen = [](const std::string& text) {
    return candidates(Problem::parse("f16 batch_first " + text), Device{Backend::cuda, 0})
        .front()
        .implementation;
  };
  for (const char* text :
       {"B=64 1x64x64x64", "B=64 1x172x64x64", "B=64 4x128x128x32", "B=8 1x1024x1024x4", "B=64 1x512x512x4",
        "B=64 1x256x256x16", "B=32 1x512x512x8", "B=20 1x688x256x16", "B=16 1x1024x1024x4",
        "B=16 1x2752x1024x4", "B=8 1x2752x1024x4", "B=64 1x688x128x16", "B=64 1x1024x512x4"})
    EXPECT_EQ(chosen(text), "weights-stay") << text;
  for (const char* text :
       {"B=1 1x64x64x64", "B=1 1x172x64x64", "B=64 64x64x64x4", "B=8 1x256x256x12", "B=1 4x1024x2752x1",
        "B=8 4x1024x1024x1", "B=64 64x64x172x1", "B=16 64x64x64x1", "B=64 32x32x64x4", "B=64 1x256x64x16"})
    EXPECT_EQ(chosen(text), "direct") << text;
  for (const char* text : {"B=64 1x2752x1024x4", "B=64 1x2048x2048x2", "B=64 16x256x688x1",
                           "B=64 4x1024x1024x1", "B=64 4x1024x2752x1", "B=64 1x2752x768x4",
                           "B=64 8x1376x1024x1", "B=64 4x512x512x2", "B=20 64x64x1024x1"})
    EXPECT_EQ(chosen(text), "sums-stay") << text;
  EXPECT_EQ(chosen("B=64 16x256x256x1"), "x-stays-wgmma");
}

// The smallest share of a multiprocessor's memory that holds its blocks leaves the most to the cache.
TEST(CudaDirect, SharedMemoryIsForItsOwnBlocks) {
  const GpuFacts facts = h200();
  for (const char* text : {"f16 batch_first B=8 1x64x64x64", "f16 batch_first B=64 1x172x64x64",
                           "bf16 batch_first B=64 1x1024x1024x4", "f16 batch_first B=64 256x16x16x8"}) {
    const Problem problem = Problem::parse(text);
    const Product p = product_of(problem);
    const direct::Cut cut = direct::choose(problem, facts).cut;
    const double all = static_cast<double>(facts.shared_bytes) + 1024;
    const double one = direct::shared_layout(cut).total + 1024.0;
    const double blocks = std::ceil(static_cast<double>(direct::blocks_of(cut, p)) / facts.multiprocessors);
    const int percent = direct::shared_percent(cut, p, facts);
    EXPECT_GE(percent / 100.0 * all, std::min(all, blocks * one)) << text;
    EXPECT_LT((percent - 1) / 100.0 * all, blocks * one) << text;
    EXPECT_LE(percent, 100) << text;
  }
}

/// Whether eight lanes that load or store 16 bytes at the same time do so in different banks.
bool without_conflicts(const std::array<int, 8>& places) {
  std::set<int> banks;
  for (const int place : places) banks.insert(place / 16 % 8);
  return banks.size() == places.size();
}

TEST(CudaWeightsStay, NoLoadOfXHasConflicts) {
  for (const weights_stay::Shape& shape : weights_stay::shapes) {
    std::set<int> all;  // all of x is loaded, and nothing else
    for (int warp = 0; warp < weights_stay::warps; ++warp)
      for (int step = 0; step < shape.steps(); ++step)
        for (int first_lane = 0; first_lane < 32; first_lane += 8)
          for (int at = 0; at < 4; at += 8 / shape.block_j()) {
            std::array<int, 8> places{};
            for (int lane = first_lane; lane < first_lane + 8; ++lane) {
              const int term = (warp / shape.j_warps() * shape.steps() + step) * weights_stay::step_terms +
                               term_of(8 / shape.block_j(), lane % 4, at);
              const int bytes = term * shape.d * 2 + warp % shape.j_warps() * 16;
              const int place = shape.place(shape.sample_of(lane / 4), bytes);
              places[static_cast<std::size_t>(lane - first_lane)] = place;
              all.insert(place);
            }
            ASSERT_TRUE(without_conflicts(places)) << shape.d << " j, lane " << first_lane;
          }
    EXPECT_EQ(all.size() * 16,
              static_cast<std::size_t>(weights_stay::tile_samples * shape.rows() * weights_stay::row_bytes));
    EXPECT_LE(*all.rbegin() + 16, shape.buffer_bytes());
  }
}

TEST(CudaWeightsStay, SumsAreSpreadOverBanks) {
  for (const weights_stay::Shape& shape : weights_stay::shapes) {
    const int fours = shape.l_warps() == 1 ? 1 : shape.unit() / 4;
    std::set<int> all;  // every sum has a place of its own
    for (int part = 0; part < shape.l_warps(); ++part)
      for (int four = 0; four < fours; ++four)
        for (int sample = 0; sample < weights_stay::tile_samples; ++sample)
          for (int output = 0; output < weights_stay::tile_outputs; ++output)
            for (int unit = 0; unit < shape.output_units(); ++unit)
              all.insert(shape.sum_place(part, four, sample, output, unit));
    EXPECT_EQ(all.size() * 16, static_cast<std::size_t>(shape.sum_bytes()));
    EXPECT_EQ(*all.rbegin() + 16, shape.sum_bytes());
    for (int first_lane = 0; first_lane < 32; first_lane += 8)
      for (int at = 0; at < 4; ++at) {
        std::array<int, 8> written{}, read{};
        for (int lane = first_lane; lane < first_lane + 8; ++lane) {
          const int sample = shape.sample_of(lane % 4 * 2 + at % 2), output = lane / 4 + at / 2 * 8;
          const int thread = at * 64 + lane;
          const int of_sample = weights_stay::tile_outputs * shape.output_units();
          const auto place = static_cast<std::size_t>(lane - first_lane);
          written[place] = shape.sum_place(0, 0, sample, output, 0);
          read[place] =
              shape.sum_place(0, 0, thread / of_sample % weights_stay::tile_samples,
                              thread % of_sample / shape.output_units(), thread % shape.output_units());
        }
        EXPECT_TRUE(without_conflicts(written)) << shape.d << " j, lane " << first_lane;
        EXPECT_TRUE(without_conflicts(read)) << shape.d << " j, lane " << first_lane;
      }
  }
}

}  // namespace
}  // namespace kronsparse::cuda
