#include "kronsparse/multiply.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "dense.hpp"

namespace kronsparse {
namespace {

std::vector<double> integers(std::int64_t size, int offset) {
  std::vector<double> result;
  for (std::int64_t index = 0; index < size; ++index)
    result.push_back(static_cast<double>((index * 7 + offset) % 9) - 4);
  return result;
}

const Chain chain{{1, 3, 2, 4}, {2, 4, 3, 1}, {1, 6, 5, 1}};  // 12 x 8, 8 x 6, 6 x 5

class ChainMultiply : public testing::Test {
 protected:
  ChainMultiply() {
    for (std::size_t factor = 0; factor < chain.size(); ++factor)
      arrays.push_back(integers(chain[factor].nnz(), static_cast<int>(factor)));
    for (const auto& array : arrays)
      values.emplace_back(array.data(), static_cast<std::int64_t>(array.size()));
  }

  [[nodiscard]] Dense whole() const {
    return product(product(dense(chain[0], arrays[0]), dense(chain[1], arrays[1])),
                   dense(chain[2], arrays[2]));
  }

  // y as stored, for x and y with rows of `gap` unused elements at the end.
  void check(Layout layout, Operation operation, bool has_epilogue, std::int64_t gap) {
    const Dense matrix = operation == Operation::multiply ? whole() : transposed(whole(), false);
    const std::int64_t x_rows = layout == Layout::batch_first ? batch : matrix.cols;
    const std::int64_t x_cols = layout == Layout::batch_first ? matrix.cols : batch;
    const std::int64_t y_rows = layout == Layout::batch_first ? batch : matrix.rows;
    const std::int64_t y_cols = layout == Layout::batch_first ? matrix.rows : batch;
    const std::vector<double> x = integers(x_rows * (x_cols + gap), 2);
    const std::vector<double> bias = integers(matrix.rows, 5);
    std::vector<double> y(static_cast<std::size_t>(y_rows * (y_cols + gap)), 99.0);
    MultiplyOptions options{.layout = layout, .operation = operation};
    if (has_epilogue) {
      options.bias = ConstVector(bias.data(), matrix.rows);
      options.activation = Activation::relu;
    }
    multiply(chain, values, {x.data(), x_rows, x_cols, x_cols + gap},
             {y.data(), y_rows, y_cols, y_cols + gap}, options);

    for (std::int64_t row = 0; row < y_rows; ++row)
      for (std::int64_t col = 0; col < y_cols + gap; ++col) {
        const double actual = y[static_cast<std::size_t>(row * (y_cols + gap) + col)];
        if (col >= y_cols) {
          EXPECT_EQ(actual, 99.0);
          continue;
        }
        const std::int64_t sample = layout == Layout::batch_first ? row : col;
        const std::int64_t feature = layout == Layout::batch_first ? col : row;
        double expected = has_epilogue ? bias[static_cast<std::size_t>(feature)] : 0;
        for (std::int64_t inner = 0; inner < matrix.cols; ++inner) {
          const std::int64_t x_row = layout == Layout::batch_first ? sample : inner;
          const std::int64_t x_col = layout == Layout::batch_first ? inner : sample;
          expected +=
              matrix.at(feature, inner).real() * x[static_cast<std::size_t>(x_row * (x_cols + gap) + x_col)];
        }
        if (has_epilogue && expected < 0) expected = 0;
        EXPECT_EQ(actual, expected);
      }
  }

  static constexpr std::int64_t batch = 3;
  std::vector<std::vector<double>> arrays;
  std::vector<ConstVector> values;
};

TEST_F(ChainMultiply, IsTheProductOfItsFactors) {
  for (Layout layout : {Layout::batch_first, Layout::batch_last})
    for (std::int64_t gap : {0, 2}) check(layout, Operation::multiply, false, gap);
}

TEST_F(ChainMultiply, AppliesTheEpilogueOnceAtTheEnd) {
  for (Layout layout : {Layout::batch_first, Layout::batch_last}) check(layout, Operation::multiply, true, 1);
}

TEST_F(ChainMultiply, TransposesTheWholeProduct) {
  for (Layout layout : {Layout::batch_first, Layout::batch_last})
    for (Operation operation : {Operation::transposed, Operation::adjoint})
      check(layout, operation, false, 2);
}

TEST_F(ChainMultiply, AnEmptyBatchIsNothingToDo) {
  const double* no_x = nullptr;
  double* no_y = nullptr;
  EXPECT_NO_THROW(multiply(chain, values, {no_x, 0, 5}, {no_y, 0, 12}));
  EXPECT_NO_THROW(multiply(chain, values, {no_x, 5, 0}, {no_y, 12, 0}, {.layout = Layout::batch_last}));
}

TEST(Multiply, OneFactorWithEpilogue) {
  const std::vector<float> values = {1, 2, 3, 4};  // K = [[1, 2], [3, 4]]
  const std::vector<float> x = {1, -1};
  const std::vector<float> bias = {-5, 2};
  std::vector<float> y(2);
  MultiplyOptions options;
  options.bias = ConstVector(bias.data(), 2);
  options.activation = Activation::relu;
  multiply(Pattern{1, 2, 2, 1}, {values.data(), 4}, {x.data(), 1, 2}, {y.data(), 1, 2}, options);
  EXPECT_EQ(y, (std::vector<float>{0, 1}));
}

TEST(Multiply, AdjointConjugates) {
  using C = std::complex<float>;
  const std::vector<C> values = {C(1, 2)};
  const std::vector<C> x = {C(3, 4)};
  std::vector<C> y(1);
  multiply(Pattern{1, 1, 1, 1}, {values.data(), 1}, {x.data(), 1, 1}, {y.data(), 1, 1},
           {.operation = Operation::adjoint});
  EXPECT_EQ(y[0], C(11, -2));
  multiply(Pattern{1, 1, 1, 1}, {values.data(), 1}, {x.data(), 1, 1}, {y.data(), 1, 1},
           {.operation = Operation::transposed});
  EXPECT_EQ(y[0], C(-5, 10));
}

TEST(Gradient, OfAnEmptyBatchIsZero) {
  const float* none = nullptr;
  std::vector<float> grad(12, 5.0F);
  gradient(Pattern{2, 1, 3, 2}, {none, 0, 12}, {none, 0, 4}, {grad.data(), 2, 6});
  EXPECT_EQ(grad, std::vector<float>(12, 0.0F));
}

}  // namespace
}  // namespace kronsparse
