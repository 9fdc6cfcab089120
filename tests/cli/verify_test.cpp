// The comparison with the reference accepts what is right and sees what is wrong.
#include "verify.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"
#include "mirror.hpp"

namespace kronsparse::cli {
namespace {

/// A problem solved by the chosen implementation, ready to be spoilt.
struct Solved {
  explicit Solved(const std::string& text, double reference_flops = 1e12)
      : problem(Problem::parse(text)),
        inputs(random_inputs(problem, 3)),
        y(output_tensor(problem)),
        expected(problem, inputs, choose_sample(problem, reference_flops, 3)) {
    thin(inputs, problem, choose_sample(problem, reference_flops, 3));
    DeviceOperands staged(inputs, y, {});
    const Plan plan(problem, staged.values());
    staged.make_workspace(plan);
    plan.run(staged.operands());
  }
  [[nodiscard]] Expected::Comparison compare() const { return expected.compare(y); }

  Problem problem;
  Inputs inputs;
  Tensor y;
  Expected expected;
};

const std::vector<std::string> problems{
    "f32 batch_first B=9 2x3x5x4",
    "f64 batch_last B=9 2x3x5x4 +bias",
    "f16 batch_first B=9 2x3x5x4 +bias +gelu",
    "bf16 batch_last B=9 1x8x8x1 +silu rows_stride=11",
    "complex64 batch_first B=9 2x3x5x4 +bias cols_stride=50",
    "transposed f32 batch_last B=9 2x3x5x4",
    "adjoint complex128 batch_first B=9 2x3x5x4",
    "gradient f32 batch_first B=9 2x3x5x4",
    "gradient complex64 batch_last B=200 2x3x5x1",
    "f16 batch_first B=9 1x8x4x4*4x4x6x1 +bias +gelu",
    "bf16 batch_last B=9 2x3x5x4*4x5x7x2*1x4x5x14 cols_stride=12",
    "complex64 batch_first B=9 1x2x2x4*2x2x2x2*4x2x2x1 +bias",
    "transposed f32 batch_last B=9 1x8x4x4*4x4x6x1",
    "adjoint complex128 batch_first B=9 1x8x4x4*4x4x6x1",
    "gradient f64 batch_first B=9 2x3x5x4*4x5x7x2*1x4x5x14",
    "gradient f16 batch_last B=20 1x8x4x4*4x4x6x1",
};

TEST(Verify, AcceptsRightResults) {
  for (const std::string& text : problems) {
    const Expected::Comparison comparison = Solved(text).compare();
    EXPECT_TRUE(comparison.pass) << text << ": " << comparison.failure;
    EXPECT_EQ(comparison.compared, comparison.elements) << text;
    EXPECT_LE(comparison.error_at_worst, comparison.bound_at_worst) << text;
  }
}

TEST(Verify, AcceptsRightResultsOnASample) {
  for (const char* text :
       {"f32 batch_first B=500 8x16x16x8", "f32 batch_last B=50 1x64x64x16",
        "transposed f64 batch_first B=100 4x32x16x4", "gradient complex64 batch_first B=100 4x16x16x4",
        "gradient f32 batch_last B=100 1x64x64x4", "f16 batch_first B=500 1x32x16x16*16x16x8x1 +bias",
        "adjoint complex64 batch_last B=500 1x32x16x16*16x16x8x1"}) {
    const Solved solved(text, 1e5);
    const Expected::Comparison comparison = solved.compare();
    EXPECT_TRUE(comparison.pass) << text << ": " << comparison.failure;
    EXPECT_LT(comparison.compared, comparison.elements / 4) << text;
    EXPECT_GT(comparison.compared, 0) << text;
    EXPECT_FALSE(solved.expected.complete());
  }
}

/// Every value's gradient is compared, but only a part of the batch counts: g is zero elsewhere.
TEST(Verify, ThinsTheBatchForGradientsOfChains) {
  const Solved solved("gradient f32 batch_last B=500 1x32x16x16*16x16x8x1", 1e5);
  const Expected::Comparison comparison = solved.compare();
  EXPECT_TRUE(comparison.pass) << comparison.failure;
  EXPECT_EQ(comparison.compared, comparison.elements);
  EXPECT_LT(comparison.batch_share, 0.1);
  std::int64_t zeros = 0;
  for (std::int64_t sample = 0; sample < 500; ++sample) zeros += solved.inputs.g.get(3, sample) == 0.0;
  EXPECT_GT(zeros, 450);
  EXPECT_LT(zeros, 500);
}

/// An intermediate is rounded to the dtype: one unit in the last place there must pass, a tenth of the
/// result must not.
TEST(Verify, BoundOfAChainIsNeitherTooTightNorTooLoose) {
  for (const char* text :
       {"bf16 batch_first B=20 1x16x16x16*16x16x16x1", "f16 batch_last B=20 1x16x16x16*16x16x16x1",
        "f32 batch_first B=20 1x16x16x16*16x16x16x1"}) {
    const Expected::Comparison comparison = Solved(text).compare();
    EXPECT_TRUE(comparison.pass) << text << ": " << comparison.failure;
    EXPECT_LT(comparison.bound_at_worst, 0.1) << text;
  }
}

TEST(Verify, SampleKeepsTheSumWholeAndTheEnds) {
  const Problem problem = Problem::parse("f32 batch_first B=1000 10x20x30x40");
  const Sample sample = choose_sample(problem, 1e4, 1);
  EXPECT_EQ(sample.l.size(), 30U);
  EXPECT_EQ(sample.batch.front(), 0);
  EXPECT_EQ(sample.batch.back(), 999);
  EXPECT_TRUE(std::is_sorted(sample.batch.begin(), sample.batch.end()));
  EXPECT_EQ(choose_sample(Problem::parse("gradient f32 batch_first B=1000 10x20x30x40"), 1e4, 1).batch.size(),
            1000U);
  EXPECT_EQ(choose_sample(Problem::parse("transposed f32 batch_first B=1000 10x20x30x40"), 1e4, 1).k.size(),
            20U);
}

TEST(Verify, SeesAWrongElement) {
  for (const std::string& text : problems) {
    Solved solved(text);
    // Far outside the bound, far inside the size of the numbers themselves.
    const std::int64_t row = std::min<std::int64_t>(1, solved.y.rows() - 1);
    solved.y.set(row, 2, solved.y.get(row, 2) + 0.5);
    const Expected::Comparison comparison = solved.compare();
    EXPECT_FALSE(comparison.pass) << text;
    EXPECT_NE(comparison.failure.find("y[" + std::to_string(row) + ", 2]"), std::string::npos)
        << comparison.failure;
  }
}

TEST(Verify, SeesAMissingTermOfALongSum) {
  Solved solved("gradient f32 batch_first B=4096 1x2x2x1");
  const double term = std::abs((solved.inputs.g.get(17, 0) * solved.inputs.x.get(17, 0)).real());
  solved.y.set(0, 0, solved.y.get(0, 0) + std::max(term, 0.3));
  EXPECT_FALSE(solved.compare().pass);
}

TEST(Verify, SeesAnUnwrittenElementOutsideTheSample) {
  Solved solved("f32 batch_first B=500 8x16x16x8", 1e5);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  solved.y.set(251, 77, nan);
  const Expected::Comparison comparison = solved.compare();
  EXPECT_FALSE(comparison.pass);
  EXPECT_EQ(comparison.failure, "y[251, 77] is NaN or was never written");
}

TEST(Verify, SeesAnInfinity) {
  Solved solved("f16 batch_first B=3 1x2x2x2");
  solved.y.set(0, 0, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(solved.compare().pass);
}

TEST(Verify, SeesWritesAroundTheOutput) {
  for (const std::ptrdiff_t offset : {std::ptrdiff_t{-1}, std::ptrdiff_t{4 * 4}, std::ptrdiff_t{6 * 4 * 3}}) {
    Solved solved("f32 batch_first B=3 1x4x4x1 rows_stride=6");
    EXPECT_TRUE(solved.compare().pass);
    solved.y.data()[offset] = std::byte{0};
    EXPECT_EQ(solved.compare().failure, "memory outside y was written") << offset;
  }
}

TEST(Verify, EmptyBatchIsRight) {
  EXPECT_TRUE(Solved("f32 batch_first B=0 2x3x5x4").compare().pass);
  EXPECT_TRUE(Solved("f32 batch_first B=0 1x8x4x4*4x4x6x1").compare().pass);
  EXPECT_TRUE(Solved("gradient f32 batch_first B=0 1x8x4x4*4x4x6x1").compare().pass);
}

TEST(RandomInputs, AreReproducibleAndNeverZero) {
  const Problem problem = Problem::parse("f32 batch_first B=50 2x8x8x4 +bias");
  const Inputs first = random_inputs(problem, 1);
  const Inputs again = random_inputs(problem, 1);
  const Inputs other = random_inputs(problem, 2);
  double sum = 0;
  double squares = 0;
  for (std::int64_t row = 0; row < first.x.rows(); ++row) {
    for (std::int64_t col = 0; col < first.x.cols(); ++col) {
      const double value = first.x.get(row, col).real();
      ASSERT_EQ(value, again.x.get(row, col).real());
      ASSERT_NE(value, other.x.get(row, col).real());
      sum += value;
      squares += value * value;
    }
  }
  const auto count = static_cast<double>(first.x.rows() * first.x.cols());
  EXPECT_NEAR(sum / count, 0, 0.1);
  EXPECT_NEAR(squares / count, 1, 0.1);
  for (std::int64_t col = 0; col < first.values[0].cols(); ++col) {
    EXPECT_LE(std::abs(first.values[0].get(0, col)), 1 / std::sqrt(8.0));
  }
}

TEST(RandomInputs, RefusesWhatNoMachineHolds) {
  try {
    (void)random_inputs(Problem::parse("f64 batch_first B=1000000000 1024x64x64x16"), 1);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
}

}  // namespace
}  // namespace kronsparse::cli
