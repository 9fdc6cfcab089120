#include "kronsparse/pattern.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "expect_error.hpp"

namespace kronsparse {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Pattern, DerivedQuantities) {
  const Pattern pattern{2, 3, 4, 5};
  EXPECT_EQ(pattern.rows(), 30);
  EXPECT_EQ(pattern.cols(), 40);
  EXPECT_EQ(pattern.nnz(), 120);
  EXPECT_DOUBLE_EQ(pattern.density(), 0.1);
  EXPECT_DOUBLE_EQ(pattern.h(), 7.0 / 12.0);
  EXPECT_EQ(pattern.transposed(), (Pattern{2, 4, 3, 5}));
}

TEST(Pattern, TextRoundTrips) {
  for (const char* text : {"1x1x1x1", "2x3x4x5", "1x1024x1024x16", "576460752303423487x1x1x1"})
    EXPECT_EQ(Pattern::parse(text).to_string(), text);
  EXPECT_EQ(Pattern::parse("10x20x30x40"), (Pattern{10, 20, 30, 40}));
}

TEST(Pattern, OtherTextIsAParseError) {
  for (const std::string text :
       {"",         "x",         "xxx",       "1",          "1x2",      "1x2x3",    "1x2x3x",
        "x1x2x3",   "1x2x3x4x5", "1x2x3x4 ",  " 1x2x3x4",   "1x2x3x-4", "+1x2x3x4", "01x2x3x4",
        "1x2x3x00", "1X2X3X4",   "1x2x3x4.0", "0x10x1x1x1", "1x2x3xa",  "1x 2x3x4", "1e2x1x1x1"})
    expect_code(ErrorCode::parse, text, [&] { (void)Pattern::parse(text); });
  expect_code(ErrorCode::parse, "an embedded zero",
              [] { (void)Pattern::parse(std::string("1x2x3x4\0", 8)); });
  expect_code(ErrorCode::parse, "long", [] { (void)Pattern::parse(std::string(1000000, 'x')); });
}

TEST(Pattern, NumbersThatDoNotFitOverflow) {
  for (const std::string text :
       {"9223372036854775808x1x1x1", "1x1x1x99999999999999999999999999999999999999",
        "9223372036854775807x1x1x1", "576460752303423488x1x1x1", "4294967296x4294967296x1x1"})
    expect_code(ErrorCode::overflow, text, [&] { (void)Pattern::parse(text); });
  expect_code(ErrorCode::overflow, "long", [] { (void)Pattern::parse(std::string(100000, '9') + "x1x1x1"); });
}

TEST(Pattern, ValidateAcceptsUpToTheLimit) {
  EXPECT_NO_THROW((Pattern{largest / 16, 1, 1, 1}.validate()));
  expect_code(ErrorCode::overflow, "a", [] { Pattern{largest / 16 + 1, 1, 1, 1}.validate(); });
  expect_code(ErrorCode::overflow, "all", [] { Pattern{largest, largest, largest, largest}.validate(); });
}

TEST(Pattern, ValidateNeedsPositiveSizes) {
  for (std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    for (const Pattern& pattern : {Pattern{bad, 1, 1, 1}, {1, bad, 1, 1}, {1, 1, bad, 1}, {1, 1, 1, bad}})
      expect_code(ErrorCode::invalid_argument, pattern.to_string(), [&] { pattern.validate(); });
  }
}

TEST(Pattern, LongTextIsCutInMessages) {
  try {
    (void)Pattern::parse("1x2x3x" + std::string(1000000, 'z'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

}  // namespace
}  // namespace kronsparse
