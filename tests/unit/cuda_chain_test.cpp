// The kernel for whole chains, as far as it goes without a GPU: what it accepts, which factors it multiplies
// together, and what it is compared with.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/chain/fused/search.hpp"
#include "expect_error.hpp"
#include "kronsparse/plan.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

std::string refusal_of(const std::string& text) {
  for (const Candidate& candidate : candidates(Problem::parse(text), first_gpu))
    if (candidate.implementation == "fused") return candidate.refusal;
  return "not in the table";
}

/// The patterns of the products that the kernel computes, the first last.
std::string links(const std::string& text) {
  std::string all;
  for (const fused::Link& link : fused::links_of(Problem::parse(text)))
    all = link.pattern.to_string() + (all.empty() ? "" : "*") + all;
  return all;
}

TEST(CudaChain, IsComputedInOnePass) {
  const PretendedGpus machine({h200()});
  for (const char* text :
       {"f16 batch_first B=1000 1x32x32x32*32x32x32x1 +bias +gelu", "bf16 batch_last B=1 1x3x5x7*7x5x3x1",
        "f32 batch_first B=77 1x32x32x32*32x32x32x1", "f32 tf32 batch_last B=9 1x4x4x4*4x4x4x1",
        "transposed f16 batch_first B=64 1x64x64x64*64x64x64x1",
        "adjoint f16 batch_last B=0 1x8x8x8*8x8x8x1"}) {
    EXPECT_EQ(refusal_of(text), "") << text;
    const auto all = candidates(Problem::parse(text), first_gpu);
    EXPECT_EQ(all.front().implementation, "fused") << text;
    EXPECT_GT(all.front().predicted_seconds, 0) << text;
    for (const Candidate& other : all) {
      EXPECT_EQ(other.refusal, other.implementation == "fused" ? "" : "takes one factor at a time") << text;
    }
  }
}

TEST(CudaChain, RefusalsSayWhatIsAllowed) {
  const PretendedGpus machine({h200()});
  expect_mentions(refusal_of("f16 batch_first B=8 32x32x32x1"), "two or more factors, not one");
  expect_mentions(refusal_of("f64 batch_first B=8 1x8x8x8*8x8x8x1"), "f16, bf16 and f32, not f64");
  expect_mentions(refusal_of("f32 ieee batch_first B=8 1x8x8x8*8x8x8x1"), "ieee");
  expect_mentions(refusal_of("gradient f16 batch_first B=8 1x8x8x8*8x8x8x1"), "gradient");
  expect_mentions(refusal_of("f32 batch_first B=8 1x8x2x8*4x4x8x1"), "sums of 16");
  expect_mentions(refusal_of("f16 batch_first B=8 1x512x512x64*64x512x512x1"), "shared memory");
}

TEST(CudaChain, SmallNeighboursAreMultipliedTogether) {
  std::string dyadic;
  for (int level = 0; level < 10; ++level)
    dyadic +=
        (level == 0 ? "" : "*") + std::to_string(1 << level) + "x2x2x" + std::to_string(1 << (9 - level));
  for (const char* dtype : {"f16", "f32"}) {
    EXPECT_EQ(links(std::string(dtype) + " batch_first B=16384 " + dyadic), "1x32x32x32*32x32x32x1") << dtype;
    EXPECT_EQ(links("transposed " + std::string(dtype) + " batch_last B=16384 " + dyadic),
              "32x32x32x1*1x32x32x32")
        << dtype << ": the left factor is the first product";
  }
  // Large blocks stay apart, and what has no pattern together.
  EXPECT_EQ(links("f16 batch_first B=8 1x64x64x64*64x64x64x1"), "1x64x64x64*64x64x64x1");
  EXPECT_EQ(links("f16 batch_first B=8 8x128x64x1*1x8x8x64*8x64x128x1"), "8x128x64x1*1x8x8x64*8x64x128x1");
}

/// A product that exists only if the right factors are multiplied first.
TEST(CudaChain, MergesFromTheRight) {
  const Problem problem = Problem::parse("f16 batch_first B=16384 1x16x16x1*1x2x2x8*8x2x2x1*2x8x8x1");
  for (const fused::Link& link : fused::links_of(problem)) {
    const auto factors = std::span(problem.chain.factors()).subspan(link.factor, link.factors);
    EXPECT_NO_THROW((void)merge_task(factors, problem.dtype));
  }
}

TEST(CudaChain, PacksWhatItsOrderSays) {
  const Problem problem = Problem::parse("f16 batch_first B=8 1x2x2x8*2x2x2x4*4x2x2x2*8x2x2x1");
  const std::vector<fused::Link> all = fused::links_of(problem);
  const PackedOrder order = fused::packed_order(problem, all);
  std::size_t end = 0;
  for (const ChainPart& part : fused::chain_parts(problem, all)) {
    end = std::max(
        end, part.offset + static_cast<std::size_t>(part.layout.all_units()) * 16 - (part.is_rest ? 512 : 0));
    EXPECT_TRUE(part.count == 1 || part.merged_offset >= end);
  }
  EXPECT_GE(order.bytes, end);
}

/// Chains of many factors of small blocks are faster together, two factors of large ones apart.
TEST(CudaChain, IsTakenWhereItIsFaster) {
  const PretendedGpus machine({h200()});
  const auto gain = [](const std::string& text) {
    const Problem problem = Problem::parse(text);
    double apart = 0;
    for (const Problem& step : steps_of(problem))
      apart += candidates(step, first_gpu).front().predicted_seconds;
    EXPECT_LE(predicted_seconds(problem, first_gpu), apart) << text;
    return apart / candidates(problem, first_gpu).front().predicted_seconds;
  };
  EXPECT_GT(gain("f16 batch_first B=16384 1x8x8x64*8x8x8x8*64x8x8x1"), 2);
  EXPECT_GT(gain("f16 batch_first B=16384 1x32x16x16*16x16x32x1"), 1);
  EXPECT_LT(gain("f16 batch_first B=16384 1x64x256x16*64x64x64x1"), 1);
}

}  // namespace
}  // namespace kronsparse::cuda
