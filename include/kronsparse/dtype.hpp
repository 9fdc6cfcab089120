// Element types, and the two 16-bit storage types C++20 does not have.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kronsparse/export.h"

namespace kronsparse {

/// Element type of X, Y, values and bias (one problem has one dtype).
enum class DType : std::uint8_t { f32, f64, f16, bf16, complex64, complex128 };

/// IEEE binary16, storage only: convert to float to compute.
///
///     assert(float(kronsparse::Half(1.5f)) == 1.5f);
struct KRONSPARSE_API Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value) noexcept;  ///< rounds to nearest even
  explicit operator float() const noexcept;
};

/// bfloat16, storage only: the upper half of a float.
///
///     assert(float(kronsparse::BFloat16(3.0f)) == 3.0f);
struct KRONSPARSE_API BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) noexcept;  ///< rounds to nearest even
  explicit operator float() const noexcept;
};

/// Bytes of one element: 4, 8, 2, 2, 8, 16.
[[nodiscard]] KRONSPARSE_API std::size_t size_of(DType dtype);
/// Alignment of one element: that of its real part.
[[nodiscard]] KRONSPARSE_API std::size_t alignment_of(DType dtype);
[[nodiscard]] KRONSPARSE_API bool is_complex(DType dtype) noexcept;
/// "f32", "f64", "f16", "bf16", "complex64", "complex128".
[[nodiscard]] KRONSPARSE_API std::string_view name(DType dtype);
/// The inverse of name(); Error parse otherwise.
[[nodiscard]] KRONSPARSE_API DType parse_dtype(std::string_view text);

/// The DType of a C++ element type: `dtype_of<float> == DType::f32`.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not a kronsparse element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<std::complex<float>> = DType::complex64;
template <>
inline constexpr DType dtype_of<std::complex<double>> = DType::complex128;

}  // namespace kronsparse
