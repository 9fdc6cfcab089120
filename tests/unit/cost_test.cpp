// The cost model of the simd family. How near it is to the truth is measured, not tested: docs/notes/cpu.md.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// Predicted seconds of every implementation of the family that this machine can run.
std::vector<double> predictions(const std::string& problem) {
  std::vector<double> seconds;
  for (const ImplementationInfo& info : implementations())
    for (const Candidate& candidate : candidates(Problem::parse(problem)))
      if (candidate.implementation == info.name && info.name.starts_with("simd") && candidate.refusal.empty())
        seconds.push_back(candidate.predicted_seconds);
  return seconds;
}

void expect_times_slower(double times, const std::string& slower, const std::string& faster) {
  const std::vector<double> slow = predictions(slower);
  const std::vector<double> fast = predictions(faster);
  ASSERT_EQ(slow.size(), fast.size());
  for (std::size_t index = 0; index < slow.size(); ++index)
    EXPECT_GT(slow[index], times * fast[index]) << slower << " and " << faster;
}

// As many flops and bytes each: what differs is how much of a vector, a tile and a copy is of use.
TEST(Cost, ShortPiecesAreSlow) {
  expect_times_slower(2, "f32 batch_first B=4096 32x2x2x1", "f32 batch_first B=4096 1x2x2x32");
  // Less so where arithmetic is slow, too: the baseline of x86-64.
  expect_times_slower(1.5, "complex64 batch_first B=4096 1x8x8x32", "complex64 batch_last B=4096 1x8x8x32");
  expect_times_slower(2, "gradient f32 batch_last B=4096 1x8x8x32",
                      "gradient f32 batch_first B=4096 1x8x8x32");
}

std::string chosen(const std::string& problem) {
  return candidates(Problem::parse(problem)).front().implementation;
}

// Sums of one term, or blocks of one output: what prepares a tile takes many times longer than the tile. The
// family took 5 to 20 times as long as plain loops for most of these (Neoverse N1).
TEST(Cost, TilesAreNotChosenWherePlainLoopsAreFasterByFar) {
  for (const std::string rest :
       {"gradient f32 batch_first B=1 4096x1x1x1", "gradient f32 batch_last B=1 4096x1x1x1",
        "gradient f32 batch_first B=8 4096x1x1x1", "gradient f64 batch_first B=1 16x1x1x16",
        "gradient complex64 batch_last B=1 16x1x1x16", "gradient complex128 batch_first B=4 16x1x1x16",
        "gradient f32 batch_first B=1 512x1x2x1", "gradient f32 batch_last B=1 512x2x1x1",
        "gradient f32 batch_last B=1 1x1x1x4096", "f32 batch_first B=1 4096x1x1x1",
        "f32 batch_last B=2 1x1x64x64", "complex128 batch_first B=1 64x1x64x1",
        "transposed f32 batch_last B=2 1x4096x1x1"})
    EXPECT_FALSE(chosen(rest).starts_with("simd")) << rest;
}

// A few outputs of a few samples: packing values takes longer than to multiply by them.
TEST(Cost, SmallBatchesReadValuesAsTheyAreGiven) {
  for (const std::string operation : {"", "transposed ", "gradient "})
    for (const std::string dtype : {"f32", "f64", "f16", "bf16"})
      for (const std::string pattern : {" 8x8x8x1", " 1x8x8x8", " 1x64x64x64", " 64x64x64x1"}) {
        std::string problem = operation;
        problem.append(dtype).append(" batch_first B=1").append(pattern);
        EXPECT_TRUE(Plan(Problem::parse(problem)).implementation().starts_with("unpacked")) << problem;
      }
  EXPECT_TRUE(Plan(Problem::parse("f32 batch_last B=1 8x8x8x1")).implementation().starts_with("unpacked"));
  EXPECT_TRUE(Plan(Problem::parse("f32 batch_first B=64 8x64x64x1")).implementation().starts_with("simd"));
}

TEST(Cost, PlainLoopsAreNotChosenOtherwise) {
  for (const std::string dtype : {"f32", "f64", "f16", "bf16", "complex64", "complex128"})
    for (const std::string layout : {" batch_first", " batch_last"})
      for (const std::string operation : {"", "transposed ", "gradient "})
        for (const std::string size : {" B=16 4x16x16x4", " B=64 1x32x32x1", " B=64 2x48x48x16"}) {
          std::string problem = operation;
          problem.append(dtype).append(layout).append(size);
          EXPECT_NE(chosen(problem), "reference") << problem;
        }
}

TEST(Cost, GrowsWithTheBatch) {
  for (const std::string rest : {" 4x64x64x1", " 4x64x64x16", " 2x3x5x7"}) {
    expect_times_slower(2, "f32 batch_first B=8" + rest, "f32 batch_first B=1" + rest);
    expect_times_slower(7, "f32 batch_first B=8000000" + rest, "f32 batch_first B=1000000" + rest);
    expect_times_slower(7, "gradient f32 batch_last B=8000000" + rest,
                        "gradient f32 batch_last B=1000000" + rest);
  }
}

TEST(Cost, NeedsNoMemory) {
  for (const double seconds : predictions("f32 batch_first B=1 1x1x1x1000000000000000"))
    EXPECT_TRUE(std::isfinite(seconds) && seconds > 1) << seconds;
}

}  // namespace
}  // namespace kronsparse
