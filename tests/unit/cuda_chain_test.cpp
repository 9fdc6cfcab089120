// The kernel for whole chains, as far as it goes without a GPU: what it accepts, which factors it multiplies
// together, and what it is compared with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/plan_state.hpp"
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
  const auto ways = ways_of(Problem::parse(text));
  for (const Link& link : ways.front())
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
  for (const std::vector<Link>& way : ways_of(problem))
    EXPECT_NO_THROW((void)fused::chain_parts(problem, way));
}

TEST(CudaChain, PacksWhatItsOrderSays) {
  const Problem problem = Problem::parse("f16 batch_first B=8 1x2x2x8*2x2x2x4*4x2x2x2*8x2x2x1*1x16x32x1");
  for (const std::vector<Link>& way : ways_of(problem)) {
    std::size_t end = 0;
    for (const ChainPart& part : fused::chain_parts(problem, way)) {
      EXPECT_EQ(part.offset, end);
      end += static_cast<std::size_t>(part.count == 1 ? part.layout.all_units() * 16 : part.merging.bytes());
      if (part.count == 1) continue;
      EXPECT_EQ(part.exponents, end);
      end += 16;  // for each output one byte
    }
    EXPECT_EQ(fused::packed_order(problem, way).bytes, end);
  }
}

/// Where the cheapest way to multiply neighbours together has too many products, or needs too much memory, a
/// dearer one is taken.
TEST(CudaChain, LongAndWideChainsFitByDearerWays) {
  const PretendedGpus machine({h200()});
  // Twelve factors that are cheapest as ten or more products: blocks of 16 have no padding.
  std::string many = "f16 batch_first B=64 ";
  for (int n = 0; n < 12; ++n)
    many += std::string(n == 0 ? "" : "*") + (n % 2 == 0 ? "1x16x16x16" : "16x16x16x1");
  EXPECT_EQ(refusal_of(many), "");
  std::size_t most = 0;
  for (const auto& way : ways_of(Problem::parse(many))) {
    EXPECT_LE(way.size(), std::size_t{most_links});
    most = std::max(most, way.size());
  }
  EXPECT_EQ(most, std::size_t{most_links});
}

/// Square-dyadic butterflies, monarchs and low ranks of up to eight factors.
std::vector<Chain> many_chains() {
  std::vector<Chain> all;
  for (const std::int64_t radix : {2, 3, 4, 8, 16, 32})
    for (std::size_t count = 2; count <= 8; ++count) {
      std::int64_t size = 1;
      for (std::size_t n = 0; n < count; ++n) size *= radix;
      if (size > 4096) break;
      std::vector<Pattern> factors;
      for (std::int64_t a = 1; a < size; a *= radix) factors.push_back({a, radix, radix, size / a / radix});
      all.emplace_back(factors);
    }
  for (const std::int64_t size : {64, 256, 1024, 4096})
    for (const std::int64_t blocks : {4, 16, 32}) {
      all.push_back(Chain({{1, size / blocks, blocks, blocks}, {blocks, blocks, size / blocks, 1}}));
      all.push_back(Chain({{1, size, blocks, 1}, {1, blocks, size, 1}}));
    }
  return all;
}

/// Packed values of a chain in one pass that are kept: three times the bytes of the values, or little beside
/// the dense matrix, or little.
TEST(CudaChain, PackedValuesAreKeptUpToALimit) {
  int over = 0, kept = 0;
  for (const Chain& chain : many_chains())
    for (const char* kind : {"f16", "bf16", "f32", "f32 tf32", "transposed f16"}) {
      const Problem problem = Problem::parse(std::string(kind) + " batch_first B=4096 " + chain.to_string());
      const std::size_t values = static_cast<std::size_t>(chain.nnz()) * size_of(problem.dtype);
      const std::size_t dense =
          static_cast<std::size_t>(chain.rows() * chain.cols()) * size_of(problem.dtype);
      const auto ways = ways_of(problem);
      if (ways.empty()) continue;  // sums too short for f32
      const std::size_t bytes = fused::packed_order(problem, ways.front()).bytes;
      // Never more than the dense matrix in two parts, its exponents and the padding of small blocks.
      EXPECT_LE(bytes, std::max(16 * values, 2 * dense + 4096)) << problem.to_string();
      const bool fits = may_keep_whole(chain, problem.dtype, 0, bytes);
      EXPECT_TRUE(!fits || bytes <= std::max({3 * values, dense / 4, std::size_t{1} << 20}))
          << problem.to_string();
      EXPECT_EQ(may_keep_whole(chain, problem.dtype, bytes, bytes), 2 * bytes <= 3 * values)
          << "a second copy: " << problem.to_string();
      over += bytes > 3 * values ? 1 : 0;
      kept += fits ? 1 : 0;
    }
  EXPECT_GT(over, 0);
  EXPECT_GT(kept, over);
  // Short sums in f32 are multiplied together up to the dense matrix, 512 times the values. That is not kept.
  const Problem wide = Problem::parse("f32 batch_first B=4096 1x1024x4x4*4x4x1024x1");
  EXPECT_FALSE(may_keep_whole(wide.chain, wide.dtype, 0,
                              fused::packed_order(wide, ways_of(wide).front()).bytes));
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
