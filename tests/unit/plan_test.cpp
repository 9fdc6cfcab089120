#include "kronsparse/plan.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "expect_error.hpp"

namespace kronsparse {
namespace {

// Values 1, 2, 3, ... of 2x3x4x5 on a batch of ones: row sums of the values.
const Problem problem = Problem::parse("f32 batch_first B=7 2x3x4x5");

std::vector<float> counting(std::size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

std::vector<float> expected_row_sums(float scale) {
  std::vector<float> y;
  for (int n = 0; n < 7; ++n)
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < 3; ++k)
        for (int j = 0; j < 5; ++j) {
          float sum = 0;
          for (int l = 0; l < 4; ++l) sum += static_cast<float>(((i * 3 + k) * 4 + l) * 5 + j + 1);
          y.push_back(scale * sum);
        }
  return y;
}

TEST(Plan, RunsAndSaysWhatItIs) {
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty()) continue;
    const std::vector<float> x(7 * 40, 1.0F);
    std::vector<float> y(7 * 30);
    const Plan plan(problem, counting(120).data(), {}, candidate.implementation);
    plan.run({.x = x.data(), .y = y.data()});
    EXPECT_EQ(y, expected_row_sums(1)) << candidate.implementation;
    EXPECT_EQ(plan.implementation(), candidate.implementation);
    EXPECT_EQ(plan.problem(), problem);
    EXPECT_EQ(plan.device(), Device{});
    EXPECT_GE(plan.packed_bytes(), 480U);
  }
}

/// No other way to fuse neighbours has fewer predicted seconds, step by step.
TEST(Plan, PlannedChainsAreTheFastestByPrediction) {
  for (const char* text : {"f32 batch_first B=64 1x2x2x8*2x2x2x4*4x2x2x2*8x2x2x1",
                           "f64 batch_last B=300 1x8x8x8*8x8x8x1*1x1x1x64*8x8x8x1"}) {
    SCOPED_TRACE(text);
    Problem whole = Problem::parse(text);
    const Chain chosen = planned(whole);
    EXPECT_EQ(chosen.rows(), whole.chain.rows());
    const auto seconds = [&](const Chain& chain) {
      whole.chain = chain;
      double sum = 0;
      for (const Problem& step : steps_of(whole)) sum += candidates(step).front().predicted_seconds;
      EXPECT_LE(predicted_seconds(whole), sum * (1 + 1e-12));  // less in one pass
      return sum;
    };
    std::vector<Chain> ways{whole.chain};
    for (std::size_t way = 0; way < ways.size(); ++way)
      for (std::size_t index = 0; index + 1 < ways[way].size(); ++index)
        if (const Chain now = ways[way]; now[index].times(now[index + 1])) ways.push_back(now.fuse(index));
    bool is_among = false;
    const double best = seconds(chosen);
    for (const Chain& way : ways) {
      EXPECT_LE(best, seconds(way) * (1 + 1e-12)) << way.to_string();
      is_among = is_among || way == chosen;
    }
    EXPECT_TRUE(is_among);
  }
}

TEST(Plan, Moves) {
  const std::vector<float> x(7 * 40, 1.0F);
  std::vector<float> y(7 * 30);
  Plan first(problem, counting(120).data());
  Plan second(std::move(first));
  second.run({.x = x.data(), .y = y.data()});
  EXPECT_EQ(y, expected_row_sums(1));
  Plan third(Problem::parse("f64 batch_last B=1 1x1x1x1"), std::vector<double>(1).data());
  third = std::move(second);
  std::fill(y.begin(), y.end(), 0.0F);
  third.run({.x = x.data(), .y = y.data()});
  EXPECT_EQ(y, expected_row_sums(1));
}

TEST(Plan, TakesNewValues) {
  const std::vector<float> x(7 * 40, 1.0F);
  std::vector<float> y(7 * 30);
  std::vector<float> values(120, 0.0F);
  Plan plan(problem, values.data());
  const std::size_t bytes = plan.packed_bytes();
  values = counting(120);
  plan.set_values(values.data());
  values.assign(120, -1.0F);  // not needed any more
  plan.run({.x = x.data(), .y = y.data()});
  EXPECT_EQ(y, expected_row_sums(1));
  EXPECT_EQ(plan.packed_bytes(), bytes);
}

TEST(Plan, AnEmptyBatchNeedsNoPointersAndWritesNothing) {
  for (const char* text : {"f32 batch_first B=0 2x3x4x5", "f32 batch_last B=0 2x3x4x5",
                           "transposed f32 batch_first B=0 2x3x4x5", "adjoint f32 batch_last B=0 2x3x4x5"})
    for (const Candidate& candidate : candidates(Problem::parse(text))) {
      if (!candidate.refusal.empty()) continue;
      const Plan plan(Problem::parse(text), counting(120).data(), {}, candidate.implementation);
      EXPECT_NO_THROW(plan.run({}));
      const float x = 1;
      float y = 42;
      plan.run({.x = &x, .y = &y});
      EXPECT_EQ(y, 42);
    }
}

TEST(Plan, TheGradientOfAnEmptyBatchIsZero) {
  for (const char* text : {"gradient f32 batch_first B=0 2x3x4x5", "gradient f32 batch_last B=0 2x3x4x5"}) {
    std::vector<float> y(121, 42.0F);
    Plan(Problem::parse(text), nullptr).run({.y = y.data()});
    EXPECT_EQ(y[120], 42.0F);
    y.pop_back();
    EXPECT_EQ(y, std::vector<float>(120, 0.0F));
  }
}

TEST(Plan, NewValuesInTheOrderOfAStream) {
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty()) continue;
    Plan plan(problem, std::vector<float>(120).data(), {}, candidate.implementation);
    plan.set_values(counting(120).data(), nullptr);
    const std::vector<float> x(7 * 40, 1.0F);
    std::vector<float> y(7 * 30);
    plan.run({.x = x.data(), .y = y.data()});
    EXPECT_EQ(y, expected_row_sums(1)) << candidate.implementation;
    expect_code(ErrorCode::bad_pointer, "no values", [&] { plan.set_values(nullptr, nullptr); });
  }
}

TEST(Plan, OnePlanServesManyThreads) {
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty()) continue;
    const Plan plan(problem, counting(120).data(), {}, candidate.implementation);
    constexpr std::size_t threads = 4;
    std::vector<std::vector<float>> outputs(threads, std::vector<float>(7 * 30));
    std::vector<std::thread> workers;
    for (std::size_t index = 0; index < threads; ++index)
      workers.emplace_back([&plan, &y = outputs[index], index] {
        const std::vector<float> x(7 * 40, static_cast<float>(index));
        for (int repeat = 0; repeat < 50; ++repeat) plan.run({.x = x.data(), .y = y.data()});
      });
    for (std::thread& worker : workers) worker.join();
    for (std::size_t index = 0; index < threads; ++index)
      EXPECT_EQ(outputs[index], expected_row_sums(static_cast<float>(index))) << candidate.implementation;
  }
}

// Their bytes exceed 63 bits in the arithmetic of a wider type: the sanitizer sees where they are computed.
TEST(Plan, TheStrideOfOneRowOrNoneMayBeAnything) {
  Problem empty = Problem::parse("f32 batch_first B=0 2x3x4x5");
  empty.cols_stride = empty.rows_stride = std::numeric_limits<std::int64_t>::max();
  Problem one = Problem::parse("f16 batch_first B=1 2x3x4x5");
  one.cols_stride = one.rows_stride = (std::int64_t{1} << 62) - 1;
  const std::vector<Half> x(40, Half(1.0F));
  for (const Candidate& candidate : candidates(empty)) {
    if (!candidate.refusal.empty()) continue;
    EXPECT_NO_THROW(Plan(empty, counting(120).data(), {}, candidate.implementation).run({}));
    const std::vector<Half> values(120, Half(0.5F));
    std::vector<Half> y(30);
    Plan(one, values.data(), {}, candidate.implementation).run({.x = x.data(), .y = y.data()});
    for (const Half element : y) EXPECT_EQ(static_cast<float>(element), 2.0F) << candidate.implementation;
  }
}

// Values that no memory holds, with bytes that wrap to a small number or to none, fail before one is read.
TEST(Plan, SizesThatWrapRunOutOfMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer ends the process where new would throw";
#endif
  const double value = 1;
  for (const char* text :
       {"f64 batch_last B=2 288230376151711744x1x1x1", "f64 batch_last B=2 1x1x1x288230376151711744",
        "f64 batch_first B=0 288230376151711744x1x1x1", "f32 batch_first B=0 1x1x1x288230376151711744",
        // Too large for any memory, not for numbers; nor may a table of its parts fill what there is.
        "f32 batch_first B=1 1x1x1x1125899906842624", "f64 batch_first B=1 1125899906842624x1x1x1",
        "complex64 batch_first B=1 1x1x288230376151711744x1",
        "complex128 batch_last B=1 1x288230376151711744x1x1"}) {
    const Problem huge = Problem::parse(text);
    for (const Candidate& candidate : candidates(huge)) {
      if (!candidate.refusal.empty()) continue;
      expect_beginning(ErrorCode::out_of_memory, "plan: memory ran out for " + std::string(text),
                       [&] { Plan(huge, &value, {}, candidate.implementation); });
    }
  }
}

TEST(Plan, ColumnWindowsOfOneBufferAreApart) {
  // Each row of 70: 40 features of x, then 30 of y; and the other way round.
  Problem strided = problem;
  strided.cols_stride = strided.rows_stride = 70;
  const Plan plan(strided, counting(120).data());
  for (const bool x_first : {true, false}) {
    std::vector<float> buffer(7 * 70, 1.0F);
    float* x = buffer.data() + (x_first ? 0 : 30);
    float* y = buffer.data() + (x_first ? 40 : 0);
    plan.run({.x = x, .y = y});
    const std::vector<float> expected = expected_row_sums(1);
    for (std::size_t n = 0; n < 7; ++n) {
      EXPECT_TRUE(
          std::equal(y + n * 70, y + n * 70 + 30, expected.begin() + static_cast<std::ptrdiff_t>(n * 30)));
      EXPECT_EQ(std::vector<float>(x + n * 70, x + n * 70 + 40), std::vector<float>(40, 1.0F));
    }
    // One element further they meet.
    expect_code(ErrorCode::overlap, "windows", [&] { plan.run({.x = x, .y = y + (x_first ? -1 : 1)}); });
  }
}

TEST(Plan, ViewsThatOnlyTouchAreApart) {
  std::vector<float> buffer(7 * 40 + 7 * 30, 1.0F);
  const Plan plan(problem, counting(120).data());
  EXPECT_NO_THROW(plan.run({.x = buffer.data(), .y = buffer.data() + 280}));
  EXPECT_NO_THROW(plan.run({.x = buffer.data() + 210, .y = buffer.data()}));
  expect_code(ErrorCode::overlap, "x first",
              [&] { plan.run({.x = buffer.data(), .y = buffer.data() + 279}); });
  expect_code(ErrorCode::overlap, "y first",
              [&] { plan.run({.x = buffer.data() + 209, .y = buffer.data()}); });
}

TEST(Plan, TheLastRowOfAStridedViewEndsWithItsElements) {
  Problem strided = problem;
  strided.cols_stride = 100;
  std::vector<float> buffer(6 * 100 + 40 + 210, 1.0F);
  const Plan plan(strided, counting(120).data());
  EXPECT_NO_THROW(plan.run({.x = buffer.data(), .y = buffer.data() + 640}));
  expect_code(ErrorCode::overlap, "inside",
              [&] { plan.run({.x = buffer.data(), .y = buffer.data() + 639}); });
}

// Rounding to bf16 adds to the bits of a nan as to any others.
TEST(Plan, ANanOfBf16StaysOneWhateverItsBits) {
  for (const Candidate& candidate : candidates(Problem::parse("bf16 batch_first B=1 1x1x1x1"))) {
    if (!candidate.refusal.empty()) continue;
    for (const int bits : {0x7f81, 0x7fc0, 0x7fff, 0xff81, 0xffff}) {
      const auto x = std::bit_cast<BFloat16>(static_cast<std::uint16_t>(bits));
      const BFloat16 value(1.0F);
      BFloat16 y(0.0F);
      Plan(Problem::parse("bf16 batch_first B=1 1x1x1x1"), &value, {}, candidate.implementation)
          .run({.x = &x, .y = &y});
      EXPECT_TRUE(std::isnan(static_cast<float>(y))) << candidate.implementation << " " << bits;
    }
  }
}

}  // namespace
}  // namespace kronsparse
