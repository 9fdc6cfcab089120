#include "kronsparse/dtype.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "cpu/storage.hpp"
#include "expect_error.hpp"

namespace kronsparse {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// The value of a 16-bit pattern by the definition of its format.
double defined_value(std::uint32_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1U));
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// All that holds for one 16-bit format, with E exponent bits.
template <class T, int E>
void check_format() {
  constexpr std::uint32_t first_nan = (((1U << E) - 1U) << (15 - E)) + 1U;
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto value = static_cast<float>(from_bits<T>(bits));
    if ((bits & 0x7FFFU) >= first_nan) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      const std::uint32_t again = T(value).bits;
      ASSERT_TRUE((again & 0x7FFFU) >= first_nan) << bits;
      ASSERT_EQ(again & 0x8000U, bits & 0x8000U) << bits;
      ASSERT_NE(again & (1U << (14 - E)), 0U) << "quiet: " << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), defined_value(bits, E)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    ASSERT_EQ(T(value).bits, bits);
    ASSERT_EQ(Storage<T>::store(static_cast<double>(value)).bits, bits);
  }
}

// Between neighbours of the format: ties go to the even one, anything else to
// the nearer, from floats and from doubles that differ from a tie by one last bit.
template <class T>
void check_rounding(std::uint32_t largest_finite) {
  for (std::uint32_t bits = 0; bits < largest_finite; ++bits) {
    const double low = static_cast<float>(from_bits<T>(bits));
    const double high = static_cast<float>(from_bits<T>(bits + 1));
    const double tie = (low + high) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    const auto tie_float = static_cast<float>(tie);
    ASSERT_EQ(static_cast<double>(tie_float), tie);
    for (std::uint32_t sign : {0U, 0x8000U}) {
      const double s = sign == 0 ? 1 : -1;
      const auto sf = static_cast<float>(s);
      ASSERT_EQ(T(sf * tie_float).bits, even | sign);
      ASSERT_EQ(T(sf * std::nextafter(tie_float, 0.0F)).bits, bits | sign);
      ASSERT_EQ(T(sf * std::nextafter(tie_float, infinity)).bits, (bits + 1) | sign);
      ASSERT_EQ(Storage<T>::store(s * tie).bits, even | sign);
      ASSERT_EQ(Storage<T>::store(s * std::nextafter(tie, 0.0)).bits, bits | sign);
      ASSERT_EQ(Storage<T>::store(s * std::nextafter(tie, HUGE_VAL)).bits, (bits + 1) | sign);
    }
  }
}

TEST(Half, EveryPatternRoundTrips) { check_format<Half, 5>(); }
TEST(BFloat16, EveryPatternRoundTrips) { check_format<BFloat16, 8>(); }
TEST(Half, RoundsToNearestEven) { check_rounding<Half>(0x7BFF); }
TEST(BFloat16, RoundsToNearestEven) { check_rounding<BFloat16>(0x7F7F); }

TEST(Half, Extremes) {
  EXPECT_EQ(Half(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(Half(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0F).bits, 0x7C00);
  EXPECT_EQ(Half(-65520.0F).bits, 0xFC00);
  EXPECT_EQ(Half(65536.0F).bits, 0x7C00);
  EXPECT_EQ(Half(3e38F).bits, 0x7C00);
  EXPECT_EQ(Half(infinity).bits, 0x7C00);
  EXPECT_EQ(Half(0x1p-25F).bits, 0x0000);
  EXPECT_EQ(Half(0x1.000002p-25F).bits, 0x0001);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(Half(-0.0F).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Half(std::bit_cast<float>(0x7F800001U)))));
}

TEST(BFloat16, Extremes) {
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(BFloat16(-std::numeric_limits<float>::max()).bits, 0xFF80);
  EXPECT_EQ(BFloat16(infinity).bits, 0x7F80);
  EXPECT_EQ(BFloat16(-0.0F).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7FFFFFFFU)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0xFF800001U)))));
}

TEST(Storage, DoublesRoundOnce) {
  // Just above a tie of f16, so close that the nearest float is the tie itself.
  const double above_tie = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(Half(static_cast<float>(above_tie)).bits, 0x3C00);
  EXPECT_EQ(Storage<Half>::store(above_tie).bits, 0x3C01);
  EXPECT_EQ(Storage<Half>::store(-above_tie).bits, 0xBC01);
  EXPECT_EQ(Storage<BFloat16>::store(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3F81);
  EXPECT_EQ(Storage<Half>::store(1e300).bits, 0x7C00);
  EXPECT_EQ(Storage<BFloat16>::store(-1e300).bits, 0xFF80);
  EXPECT_EQ(Storage<Half>::store(1e-300).bits, 0x0000);
  EXPECT_EQ(Storage<BFloat16>::store(-1e-300).bits, 0x8000);
  EXPECT_EQ(Storage<Half>::store(-HUGE_VAL).bits, 0xFC00);
  EXPECT_TRUE(std::isnan(static_cast<float>(Storage<Half>::store(std::nan("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Storage<BFloat16>::store(std::nan("")))));
}

TEST(DType, SizesAndAlignments) {
  const std::size_t sizes[] = {4, 8, 2, 2, 8, 16};
  const std::size_t alignments[] = {4, 8, 2, 2, 4, 8};
  for (std::size_t index = 0; index < 6; ++index) {
    const auto dtype = static_cast<DType>(index);
    EXPECT_EQ(size_of(dtype), sizes[index]);
    EXPECT_EQ(alignment_of(dtype), alignments[index]);
    EXPECT_EQ(is_complex(dtype), index >= 4);
  }
  EXPECT_EQ(dtype_of<Half>, DType::f16);
  EXPECT_EQ(dtype_of<std::complex<double>>, DType::complex128);
}

TEST(DType, NumbersOutsideTheEnumerationAreErrors) {
  const auto bad = static_cast<DType>(6);
  const char* message =
      "dtype: the number 6 given, must be one of f32, f64, f16, bf16, complex64, complex128";
  expect_error(ErrorCode::invalid_argument, message, [&] { (void)size_of(bad); });
  expect_error(ErrorCode::invalid_argument, message, [&] { (void)alignment_of(bad); });
  expect_error(ErrorCode::invalid_argument, message, [&] { (void)name(bad); });
}

}  // namespace
}  // namespace kronsparse
