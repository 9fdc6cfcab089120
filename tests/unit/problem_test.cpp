#include "kronsparse/problem.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "expect_error.hpp"

namespace kronsparse {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(ProblemText, EveryValidCombinationRoundTrips) {
  int valid = 0;
  for (int dtype = 0; dtype < 6; ++dtype)
    for (int layout = 0; layout < 2; ++layout)
      for (int operation = 0; operation < 4; ++operation)
        for (int activation = 0; activation < 5; ++activation)
          for (int mode = 0; mode < 3; ++mode)
            for (bool bias : {false, true})
              for (std::int64_t stride : {0, 1000}) {
                Problem problem;
                problem.chain = Pattern{2, 3, 4, 5};
                problem.batch = 7;
                problem.dtype = static_cast<DType>(dtype);
                problem.layout = static_cast<Layout>(layout);
                problem.operation = static_cast<Operation>(operation);
                problem.activation = static_cast<Activation>(activation);
                problem.mode = static_cast<Mode>(mode);
                problem.bias = bias;
                problem.cols_stride = stride;
                problem.rows_stride = stride == 0 ? 0 : stride + 1;
                try {
                  problem.validate();
                } catch (const Error&) {
                  continue;
                }
                ++valid;
                EXPECT_EQ(Problem::parse(problem.to_string()), problem) << problem.to_string();
              }
  // f32: 3 modes x (multiply: 2 bias x 5 activations, 3 others); f64, f16, bf16: 1 mode;
  // complex: no activations. All x 2 layouts x 2 strides.
  EXPECT_EQ(valid, 4 * (3 * 13 + 3 * 13 + 2 * 5));
}

TEST(ProblemText, CanonicalForm) {
  for (const char* text :
       {"f32 batch_first B=1 1x1x1x1", "f16 batch_first B=25088 8x64x64x16 +bias +gelu",
        "transposed f32 tf32 batch_last B=0 2x3x4x5 cols_stride=64 rows_stride=128",
        "gradient complex128 batch_first B=9 2x3x4x5", "adjoint complex64 batch_last B=3 1x2x3x4",
        "f32 ieee batch_last B=3 1x2x3x4 +bias", "bf16 batch_first B=3 1x2x3x4 +gelu_tanh",
        "f64 batch_first B=3 1x2x3x4 +silu", "f64 batch_first B=3 1x2x3x4 cols_stride=12 +relu"})
    EXPECT_EQ(Problem::parse(text).to_string(), text);
}

TEST(ProblemText, WordsComeInAnyOrderAndSpacing) {
  std::vector<std::string> words = {"+bias", "+relu", "1x2x3x4", "B=5", "batch_last", "f32", "multiply"};
  const Problem expected = Problem::parse("f32 batch_last B=5 1x2x3x4 +bias +relu");
  do {
    std::string text = "\t";
    for (const std::string& word : words) text += word + " \n";
    ASSERT_EQ(Problem::parse(text), expected) << text;
  } while (std::next_permutation(words.begin(), words.end()));
}

TEST(ProblemText, DefaultsMayBeWritten) {
  EXPECT_EQ(Problem::parse("multiply f32 fp32 batch_first B=5 1x2x3x4 cols_stride=0 rows_stride=0 +none"),
            Problem::parse("f32 batch_first B=5 1x2x3x4"));
}

TEST(ProblemText, NothingMayBeMissing) {
  for (const std::string text : {"", "   ", "f32", "batch_first B=5 1x2x3x4", "f32 B=5 1x2x3x4",
                                 "f32 batch_first 1x2x3x4", "f32 batch_first B=5"})
    expect_code(ErrorCode::parse, text, [&] { (void)Problem::parse(text); });
}

TEST(ProblemText, NothingMayBeThereTwice) {
  const std::string base = "f32 batch_last B=5 1x2x3x4 multiply fp32 cols_stride=8 rows_stride=8 +bias +relu";
  ASSERT_NO_THROW((void)Problem::parse(base));
  for (const std::string word :
       {"f32", "f64", "batch_last", "batch_first", "B=5", "B=6", "1x2x3x4", "2x2x2x2", "multiply", "gradient",
        "fp32", "tf32", "cols_stride=8", "rows_stride=9", "+bias", "+relu", "+none"})
    expect_code(ErrorCode::parse, word, [&] { (void)Problem::parse(base + " " + word); });
}

TEST(ProblemText, UnknownWordsAreErrors) {
  const std::string base = "f32 batch_last B=5 1x2x3x4 ";
  for (const std::string word : {"F32",      "float32",     "batch_middle",  "b=5",  "B",      "=5",
                                 "+",        "+biases",     "bias",          "relu", "+ relu", "++relu",
                                 "stride=5", "cols_stride", "Cols_stride=4", "-",    "f32,",   "+RELU",
                                 "\x01",     "\xff\xfe",    "multiply;",     "|",    "fp16"})
    expect_code(ErrorCode::parse, word, [&] { (void)Problem::parse(base + word); });
  expect_code(ErrorCode::parse, "long", [&] { (void)Problem::parse(base + std::string(1000000, 'q')); });
  expect_code(ErrorCode::parse, "zero", [&] { (void)Problem::parse(base + std::string(1, '\0')); });
}

TEST(ProblemText, BadNumbersAreErrors) {
  for (const std::string batch :
       {"B=", "B=-1", "B=+1", "B=01", "B=1.5", "B=0x10", "B=1e3", "B=five", "B=5,", "B=5x"})
    expect_code(ErrorCode::parse, batch, [&] { (void)Problem::parse("f32 batch_last 1x2x3x4 " + batch); });
  const std::string base = "f32 batch_first 1x2x3x4 ";
  for (const std::string words :
       {"B=9223372036854775808", "B=99999999999999999999999", "B=1 cols_stride=9223372036854775808",
        "B=9223372036854775807", "B=192153584101141163", "B=2 cols_stride=1152921504606846976"})
    expect_code(ErrorCode::overflow, words, [&] { (void)Problem::parse(base + words); });
}

TEST(ProblemText, EnumerationsRoundTripAlone) {
  for (int index = 0; index < 6; ++index)
    EXPECT_EQ(parse_dtype(name(static_cast<DType>(index))), static_cast<DType>(index));
  for (int index = 0; index < 2; ++index)
    EXPECT_EQ(parse_layout(name(static_cast<Layout>(index))), static_cast<Layout>(index));
  for (int index = 0; index < 4; ++index)
    EXPECT_EQ(parse_operation(name(static_cast<Operation>(index))), static_cast<Operation>(index));
  for (int index = 0; index < 5; ++index)
    EXPECT_EQ(parse_activation(name(static_cast<Activation>(index))), static_cast<Activation>(index));
  for (int index = 0; index < 3; ++index)
    EXPECT_EQ(parse_mode(name(static_cast<Mode>(index))), static_cast<Mode>(index));
}

TEST(Problem, FeaturesAndStrides) {
  Problem problem = Problem::parse("f32 batch_first B=7 2x3x4x5");
  EXPECT_EQ(problem.in_features(), 40);
  EXPECT_EQ(problem.out_features(), 30);
  EXPECT_EQ(problem.x_stride(), 40);
  EXPECT_EQ(problem.y_stride(), 30);

  problem.operation = Operation::transposed;
  EXPECT_EQ(problem.in_features(), 30);
  EXPECT_EQ(problem.out_features(), 40);
  EXPECT_EQ(problem.x_stride(), 30);
  EXPECT_EQ(problem.y_stride(), 40);

  problem.cols_stride = 41;
  problem.rows_stride = 31;
  EXPECT_EQ(problem.x_stride(), 31);
  EXPECT_EQ(problem.y_stride(), 41);

  problem = Problem::parse("f32 batch_last B=7 2x3x4x5 cols_stride=9");
  EXPECT_EQ(problem.x_stride(), 9);
  EXPECT_EQ(problem.y_stride(), 7);

  // The gradient's x is a batch, its y the values without gaps.
  problem = Problem::parse("gradient f32 batch_first B=7 2x3x4x5 cols_stride=50 rows_stride=60");
  EXPECT_EQ(problem.x_stride(), 50);
  EXPECT_EQ(problem.y_stride(), 20);
}

TEST(Problem, FlopsAndBytes) {
  EXPECT_DOUBLE_EQ(Problem::parse("f32 batch_first B=7 2x3x4x5").flops(), 2.0 * 120 * 7);
  EXPECT_DOUBLE_EQ(Problem::parse("gradient f16 batch_first B=7 2x3x4x5").flops(), 2.0 * 120 * 7);
  EXPECT_DOUBLE_EQ(Problem::parse("complex64 batch_first B=7 2x3x4x5").flops(), 8.0 * 120 * 7);
  EXPECT_DOUBLE_EQ(Problem::parse("f32 batch_first B=7 2x3x4x5").bytes(), 4.0 * (7 * 70 + 120));
  EXPECT_DOUBLE_EQ(Problem::parse("f16 batch_last B=7 2x3x4x5 +bias").bytes(), 2.0 * (7 * 70 + 120 + 30));
  EXPECT_DOUBLE_EQ(Problem::parse("gradient complex128 batch_first B=7 2x3x4x5").bytes(),
                   16.0 * (7 * 70 + 120));
  EXPECT_DOUBLE_EQ(Problem::parse("f32 batch_first B=0 2x3x4x5").flops(), 0.0);
}

TEST(Problem, ValidateFindsWhatIsWrong) {
  const Problem good = Problem::parse("f32 batch_first B=7 2x3x4x5");
  const auto expect_invalid = [&](auto&& change) {
    Problem bad = good;
    change(bad);
    expect_code(ErrorCode::invalid_argument, "changed problem", [&] { bad.validate(); });
  };
  expect_invalid([](Problem& p) { p.batch = -1; });
  expect_invalid([](Problem& p) { p.cols_stride = 39; });
  expect_invalid([](Problem& p) { p.cols_stride = -40; });
  expect_invalid([](Problem& p) { p.rows_stride = 29; });
  expect_invalid([](Problem& p) { p.dtype = static_cast<DType>(6); });
  expect_invalid([](Problem& p) { p.layout = static_cast<Layout>(2); });
  expect_invalid([](Problem& p) { p.operation = static_cast<Operation>(200); });
  expect_invalid([](Problem& p) { p.activation = static_cast<Activation>(5); });
  expect_invalid([](Problem& p) { p.mode = static_cast<Mode>(3); });
  for (Operation operation : {Operation::transposed, Operation::adjoint, Operation::gradient}) {
    expect_invalid([&](Problem& p) { p.operation = operation, p.bias = true; });
    expect_invalid([&](Problem& p) { p.operation = operation, p.activation = Activation::relu; });
  }
  expect_invalid([](Problem& p) { p.dtype = DType::complex64, p.activation = Activation::relu; });
  expect_invalid([](Problem& p) { p.dtype = DType::f64, p.mode = Mode::ieee; });

  Problem bad = good;
  bad.batch = largest / 100;
  expect_code(ErrorCode::overflow, "bytes", [&] { bad.validate(); });
  bad = good;
  bad.rows_stride = largest;
  expect_code(ErrorCode::overflow, "stride", [&] { bad.validate(); });
}

TEST(Problem, MoreThan31BitsAreFine) {
  const Problem problem = Problem::parse("f32 batch_first B=100000000 1x64x64x64");
  EXPECT_EQ(problem.batch * problem.in_features(), 409600000000);
}

TEST(ErrorCodes, HaveNames) {
  EXPECT_EQ(name(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(name(ErrorCode::parse), "parse");
  EXPECT_EQ(name(ErrorCode::size_mismatch), "size_mismatch");
  EXPECT_EQ(name(ErrorCode::bad_pointer), "bad_pointer");
  EXPECT_EQ(name(ErrorCode::overlap), "overlap");
  EXPECT_EQ(name(ErrorCode::overflow), "overflow");
  EXPECT_EQ(name(ErrorCode::unsupported), "unsupported");
  EXPECT_EQ(name(ErrorCode::io), "io");
  EXPECT_EQ(name(ErrorCode::out_of_memory), "out_of_memory");
  EXPECT_EQ(name(ErrorCode::device), "device");
  EXPECT_EQ(name(ErrorCode::internal), "internal");
  EXPECT_EQ(name(static_cast<ErrorCode>(99)), "unknown");
}

TEST(ProblemText, ChainsAreCanonical) {
  for (const char* text :
       {"f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias +gelu",
        "f32 batch_last B=1 1x1x1x1*1x1x1x1*1x1x1x1",
        "gradient complex64 batch_last B=7 2x3x5x4*4x5x7x2*1x4x5x14 cols_stride=9 rows_stride=8",
        "adjoint f32 batch_first B=0 1x2x2x8*2x2x2x4*4x2x2x2*8x2x2x1"})
    EXPECT_EQ(Problem::parse(text).to_string(), text);
  const Problem layer = Problem::parse("1x12x8x8*8x8x6x1 B=3 batch_first f32 +bias rows_stride=100");
  EXPECT_EQ(layer.chain, (Chain{{1, 12, 8, 8}, {8, 8, 6, 1}}));
  EXPECT_EQ(layer.in_features(), 48);
  EXPECT_EQ(layer.out_features(), 96);
  EXPECT_EQ(layer.x_stride(), 48);
  EXPECT_EQ(layer.y_stride(), 100);
  EXPECT_EQ(layer.flops(), 2.0 * 3 * (12 * 8 * 8 + 8 * 8 * 6));
  EXPECT_EQ(layer.bytes(), 4.0 * (3 * (48 + 96) + 12 * 8 * 8 + 8 * 8 * 6 + 96));
}

TEST(ProblemText, SinglePatternIsAChainOfOne) {
  const Problem problem = Problem::parse("f32 batch_first B=3 2x3x4x5");
  EXPECT_EQ(problem.chain.size(), 1U);
  EXPECT_EQ(problem.pattern(), (Pattern{2, 3, 4, 5}));
  expect_code(ErrorCode::internal, "a chain has no pattern",
              [] { static_cast<void>(Problem::parse("f32 batch_first B=3 1x2x2x2*2x2x2x1").pattern()); });
}

TEST(ProblemText, ChainsThatMakeNoSense) {
  const auto parse = [](const std::string& text) {
    return [text] { static_cast<void>(Problem::parse(text)); };
  };
  expect_error(
      ErrorCode::size_mismatch,
      "chain: factor 0 (1x2x3x4) has 12 columns, must have as many as factor 1 (1x2x3x4) has rows, 8",
      parse("f32 batch_first B=2 1x2x3x4*1x2x3x4"));
  for (const char* text : {"f32 batch_first B=1 *1x1x1x1", "f32 batch_first B=1 1x1x1x1*",
                           "f32 batch_first B=1 1x1x1x1**1x1x1x1", "f32 batch_first B=1 1x1x1x1 1x1x1x1",
                           "f32 batch_first B=1 1x1x1x1 *1x1x1x1"})
    expect_code(ErrorCode::parse, text, parse(text));
  // x and y are small; what lies between is not.
  for (const char* text :
       {"f64 batch_first B=1073741824 1x1x1073741824x1*1x1073741824x1x1",
        "f32 batch_last B=1073741824 1x1x1073741824x1*1073741824x1x1x1*1x1073741824x1x1",
        "gradient f32 batch_last B=536870912 1x1x1073741823x1*1073741823x1x1x1*1x1073741823x1x1"})
    expect_code(ErrorCode::overflow, text, parse(text));
  // All values together.
  const std::string wide = "288230376151711743x1x1x1";
  expect_code(ErrorCode::overflow, "too many values",
              parse("f32 batch_first B=0 " + wide + "*" + wide + "*" + wide));
}

}  // namespace
}  // namespace kronsparse
