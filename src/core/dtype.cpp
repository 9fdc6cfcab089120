#include "kronsparse/dtype.hpp"

#include <bit>

#include "core/dispatch.hpp"
#include "core/names.hpp"
#include "core/text.hpp"

namespace kronsparse {
namespace {

// value / 2^shift of an integer, to nearest, ties to even.
constexpr std::uint32_t shift_right_rounding(std::uint32_t value, int shift) {
  const std::uint32_t half = 1U << (shift - 1);
  const std::uint32_t is_odd = (value >> shift) & 1U;
  return (value + half - 1U + is_odd) >> shift;
}

}  // namespace

Half::Half(float value) noexcept {
  constexpr std::uint32_t f32_infinity = 0xFFU << 23;
  constexpr std::uint32_t f16_infinity = 0x1FU << 10;
  constexpr std::uint32_t smallest_normal = (127U - 14U) << 23;  // 2^-14 as a float
  constexpr std::uint32_t overflow = (127U + 16U) << 23;         // 2^16 as a float
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = word >> 31 << 15;
  const std::uint32_t magnitude = word & 0x7FFFFFFFU;

  std::uint32_t result = 0;
  if (magnitude > f32_infinity) {
    result = f16_infinity | 0x200U | ((magnitude >> 13) & 0x1FFU);  // quiet, upper payload kept
  } else if (magnitude >= overflow) {
    result = f16_infinity;
  } else if (magnitude >= smallest_normal) {
    // Rebias the exponent; rounding up carries into it, up to infinity, as it should.
    result = shift_right_rounding(magnitude - ((127U - 15U) << 23), 13);
  } else if (const auto exponent = static_cast<int>(magnitude >> 23); exponent >= 127 - 25) {
    // A subnormal counts units of 2^-24: shift the 24-bit significand there.
    const std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
    result = shift_right_rounding(significand, 126 - exponent);
  }
  bits = static_cast<std::uint16_t>(sign | result);
}

Half::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t f32_exponent = exponent == 0x1F ? 0xFFU : exponent + (127U - 15U);
  const std::uint32_t quiet = exponent == 0x1F && mantissa != 0 ? 1U << 22 : 0U;
  return std::bit_cast<float>(sign | f32_exponent << 23 | mantissa << 13 | quiet);
}

BFloat16::BFloat16(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
  // Rounding a NaN could carry into its sign; keep its upper half and make it quiet.
  const std::uint32_t result = is_nan ? (word >> 16) | 0x40U : (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
  bits = static_cast<std::uint16_t>(result);
}

BFloat16::operator float() const noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::size_t size_of(DType dtype) {
  return dispatch_dtype(dtype, []<class T>() { return sizeof(T); });
}

std::size_t alignment_of(DType dtype) {
  return dispatch_dtype(dtype, []<class T>() { return alignof(T); });
}

bool is_complex(DType dtype) noexcept { return dtype == DType::complex64 || dtype == DType::complex128; }

std::string_view name(DType dtype) { return enum_name(dtype, dtype_names, "dtype"); }

DType parse_dtype(std::string_view text) { return parse_enum<DType>(text, dtype_names, "dtype"); }

}  // namespace kronsparse
