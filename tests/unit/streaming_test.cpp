// Problems so large that Y is written around the caches, on every implementation of the CPU. Sums of one or
// two terms, so that they are cheap; small integers, so that everything is exact.

#include <gtest/gtest.h>

#include <cstdint>

#include "cpu/cpu_info.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/threads.hpp"
#include "exact.hpp"

namespace kronsparse {
namespace {

class Streaming : public testing::TestWithParam<const char*> {};

TEST_P(Streaming, IsRightToTheLastBit) {
  Problem problem = Problem::parse(GetParam());
  const double least = 4.5 * static_cast<double>(cpu_info().l2_bytes) * thread_count();
  if (least > 128e6) GTEST_SKIP() << "the caches of this machine are too large";
  const auto sample_bytes = static_cast<double>(problem.pattern().rows() + problem.pattern().cols()) *
                            static_cast<double>(size_of(problem.dtype));
  problem.batch = static_cast<std::int64_t>(least / sample_bytes) | 1;
  // Rows of whole cache lines.
  if (problem.layout == Layout::batch_last) problem.rows_stride = (problem.batch + 63) / 64 * 64;
  ASSERT_TRUE(simd::writes_around_caches(problem));
  expect_exact(problem);
}

// Vectors of outputs; blocks i that share lines; neighbouring j in a vector, as a vector, as several.
INSTANTIATE_TEST_SUITE_P(OfEveryKind, Streaming,
                         testing::Values("f32 batch_first B=1 1x32x1x1", "bf16 batch_first B=1 1x64x2x1",
                                         "f16 batch_first B=1 3x24x2x1", "bf16 batch_first B=1 2x48x1x1",
                                         "bf16 batch_first B=1 1x24x1x4", "f16 batch_first B=1 1x8x1x16",
                                         "bf16 batch_first B=1 1x6x1x16", "f32 batch_first B=1 2x3x2x32",
                                         "bf16 batch_first B=1 1x20x1x32", "f32 batch_last B=1 1x24x2x1",
                                         "f16 batch_last B=1 2x7x1x3", "bf16 batch_last B=1 1x40x2x1",
                                         "bf16 batch_last B=1 1x9x1x2"));

}  // namespace
}  // namespace kronsparse
