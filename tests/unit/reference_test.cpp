// The oracle against the definition: small integers, so that every answer is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <string>
#include <vector>

#include "cpu/storage.hpp"
#include "dense.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

template <class T>
T small_integer(std::size_t index) {
  const auto real = static_cast<double>(index * 7 % 9) - 4;
  const auto imaginary = static_cast<double>(index * 5 % 7) - 3;
  if constexpr (std::is_same_v<typename Storage<T>::Wide, Complex>)
    return Storage<T>::store({real, imaginary});
  else
    return Storage<T>::store(real);
}

template <class T>
std::vector<T> small_integers(std::int64_t size, std::size_t offset) {
  std::vector<T> result;
  for (std::int64_t index = 0; index < size; ++index)
    result.push_back(small_integer<T>(static_cast<std::size_t>(index) + offset));
  return result;
}

template <class T>
std::vector<Complex> widened(const std::vector<T>& stored) {
  std::vector<Complex> result;
  for (const T& value : stored) result.emplace_back(Storage<T>::load(value));
  return result;
}

template <class T>
class Reference : public testing::Test {
 public:
  static Problem problem(Operation operation, Layout layout, Pattern pattern, std::int64_t batch) {
    Problem problem;
    problem.chain = pattern;
    problem.batch = batch;
    problem.dtype = dtype_of<T>;
    problem.operation = operation;
    problem.layout = layout;
    return problem;
  }

  // The place of (sample, feature) in a matrix of the layout.
  static std::size_t at(Layout layout, std::int64_t stride, std::int64_t sample, std::int64_t feature) {
    return static_cast<std::size_t>(layout == Layout::batch_first ? sample * stride + feature
                                                                  : feature * stride + sample);
  }
};

using AllTypes = testing::Types<float, double, Half, BFloat16, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Reference, AllTypes);

TYPED_TEST(Reference, ProductsAreThoseOfTheDenseMatrix) {
  using T = TypeParam;
  for (Operation operation : {Operation::multiply, Operation::transposed, Operation::adjoint})
    for (Layout layout : {Layout::batch_first, Layout::batch_last})
      for (const Pattern& pattern :
           {Pattern{1, 1, 1, 1}, {2, 3, 4, 5}, {3, 1, 5, 2}, {1, 4, 1, 3}, {4, 2, 3, 1}})
        for (std::int64_t gap : {0, 3}) {
          constexpr std::int64_t batch = 5;
          Problem problem = this->problem(operation, layout, pattern, batch);
          if (gap != 0) {
            problem.cols_stride = (layout == Layout::batch_first ? pattern.cols() : batch) + gap;
            problem.rows_stride = (layout == Layout::batch_first ? pattern.rows() : batch) + 2 * gap;
          }
          problem.bias = operation == Operation::multiply;
          const auto values = small_integers<T>(pattern.nnz(), 0);
          const auto bias = small_integers<T>(pattern.rows(), 3);
          const std::int64_t x_rows = layout == Layout::batch_first ? batch : problem.in_features();
          const std::int64_t y_rows = layout == Layout::batch_first ? batch : problem.out_features();
          const auto x = small_integers<T>(x_rows * problem.x_stride(), 1);
          const T untouched = small_integer<T>(2);
          std::vector<T> y(static_cast<std::size_t>(y_rows * problem.y_stride()), untouched);
          std::vector<Complex> expected(y.size(), Complex(Storage<T>::load(untouched)));

          Dense k = dense(pattern, widened(values));
          if (operation != Operation::multiply) k = transposed(k, operation == Operation::adjoint);
          const std::vector<Complex> wide_x = widened(x);
          for (std::int64_t sample = 0; sample < batch; ++sample)
            for (std::int64_t row = 0; row < k.rows; ++row) {
              Complex sum =
                  problem.bias ? Complex(Storage<T>::load(bias[static_cast<std::size_t>(row)])) : Complex();
              for (std::int64_t col = 0; col < k.cols; ++col)
                sum += k.at(row, col) * wide_x[this->at(layout, problem.x_stride(), sample, col)];
              expected[this->at(layout, problem.y_stride(), sample, row)] = sum;
            }

          const Plan plan(problem, values.data(), {}, "reference");
          plan.run({.x = x.data(), .y = y.data(), .bias = problem.bias ? bias.data() : nullptr});
          EXPECT_EQ(widened(y), expected) << problem.to_string();
        }
}

TYPED_TEST(Reference, GradientIsTheSumOfOuterProducts) {
  using T = TypeParam;
  for (Layout layout : {Layout::batch_first, Layout::batch_last}) {
    const Pattern pattern{2, 3, 4, 5};
    constexpr std::int64_t batch = 7;
    Problem problem = this->problem(Operation::gradient, layout, pattern, batch);
    problem.cols_stride = (layout == Layout::batch_first ? pattern.cols() : batch) + 2;
    problem.rows_stride = (layout == Layout::batch_first ? pattern.rows() : batch) + 1;
    const auto x =
        small_integers<T>((layout == Layout::batch_first ? batch : pattern.cols()) * problem.cols_stride, 0);
    const auto g =
        small_integers<T>((layout == Layout::batch_first ? batch : pattern.rows()) * problem.rows_stride, 5);
    std::vector<T> y(120);
    Plan(problem, nullptr, {}, "reference").run({.x = x.data(), .y = y.data(), .g = g.data()});

    std::vector<Complex> expected;
    const auto wide_x = widened(x);
    const auto wide_g = widened(g);
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < 3; ++k)
        for (std::int64_t l = 0; l < 4; ++l)
          for (std::int64_t j = 0; j < 5; ++j) {
            Complex sum;
            for (std::int64_t n = 0; n < batch; ++n)
              sum += wide_g[this->at(layout, problem.rows_stride, n, i * 15 + k * 5 + j)] *
                     std::conj(wide_x[this->at(layout, problem.cols_stride, n, i * 20 + l * 5 + j)]);
            expected.push_back(sum);
          }
    EXPECT_EQ(widened(y), expected) << problem.to_string();
  }
}

double activated(double input, const std::string& activation) {
  const double one = 1;
  double y = 0;
  Plan(Problem::parse("f64 batch_first B=1 1x1x1x1 +" + activation), &one, {}, "reference")
      .run({.x = &input, .y = &y});
  return y;
}

TEST(ReferenceActivation, KnownValues) {
  EXPECT_EQ(activated(-2, "relu"), 0);
  EXPECT_EQ(activated(3, "relu"), 3);
  EXPECT_EQ(activated(0, "gelu"), 0);
  EXPECT_DOUBLE_EQ(activated(1, "gelu"), 0.84134474606854294859);
  EXPECT_DOUBLE_EQ(activated(-1, "gelu"), -0.15865525393145705141);
  EXPECT_NEAR(activated(-10, "gelu") / -7.6198530241605260660e-23, 1, 1e-13);  // the tail keeps its digits
  EXPECT_DOUBLE_EQ(activated(1, "silu"), 0.73105857863000487926);
  EXPECT_DOUBLE_EQ(activated(-1, "silu"), -0.26894142136999512075);
  const double u = std::sqrt(2 / std::acos(-1.0)) * (1 + 0.044715);
  EXPECT_NEAR(activated(1, "gelu_tanh"), 0.5 * (1 + std::tanh(u)), 1e-15);
  EXPECT_NEAR(activated(-1, "gelu_tanh"), -0.5 * (1 - std::tanh(u)), 1e-15);
}

TEST(ReferenceActivation, NanStaysAndInfinityIsItsOwnImage) {
  for (const std::string activation : {"none", "relu", "gelu", "gelu_tanh", "silu"}) {
    EXPECT_TRUE(std::isnan(activated(std::nan(""), activation))) << activation;
    EXPECT_EQ(activated(HUGE_VAL, activation), HUGE_VAL) << activation;
  }
}

TEST(ReferenceNumerics, OneRoundingAtTheEnd) {
  // In half precision 2048 + 1 = 2048; the sum in double is 2050 before it is rounded.
  const std::vector<Half> ones(3, Half(1.0F));
  const std::vector<Half> x = {Half(2048.0F), Half(1.0F), Half(1.0F)};
  Half y;
  Plan(Problem::parse("f16 batch_first B=1 1x1x3x1"), ones.data(), {}, "reference")
      .run({.x = x.data(), .y = &y});
  EXPECT_EQ(static_cast<float>(y), 2050.0F);
  // 40000 + 40000 is beyond f16, but the bias brings it back before the rounding.
  const std::vector<Half> large(3, Half(40000.0F));
  const Half bias(-60000.0F);
  Plan(Problem::parse("f16 batch_first B=1 1x1x2x1 +bias"), ones.data(), {}, "reference")
      .run({.x = large.data(), .y = &y, .bias = &bias});
  EXPECT_EQ(static_cast<float>(y), 20000.0F);
}

TEST(ReferenceNumerics, NonFiniteNumbersFlow) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, 1, 0, 1};  // K = [[1, 1], [0, 1]]
  const std::vector<float> x = {infinity, 1};
  std::vector<float> y(2);
  Plan(Problem::parse("f32 batch_first B=1 1x2x2x1"), values.data(), {}, "reference")
      .run({.x = x.data(), .y = y.data()});
  EXPECT_EQ(y[0], infinity);
  EXPECT_TRUE(std::isnan(y[1]));  // 0 times infinity
}

}  // namespace
}  // namespace kronsparse
