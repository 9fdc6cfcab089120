// One multiplication by a matrix or by a product of them, described completely.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kronsparse/chain.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/export.h"
#include "kronsparse/pattern.hpp"

namespace kronsparse {

/// batch_first: X is (B, acd) and Y = X K^T. batch_last: X is (acd, B) and Y = K X.
enum class Layout : std::uint8_t { batch_first, batch_last };

/// With K the product of the chain's factors:
/// multiply:   y = act(K x + bias)
/// transposed: y = K^T x      (x has K's rows, y has K's columns)
/// adjoint:    y = K^H x      (the same as transposed for real dtypes)
/// gradient:   the gradients with respect to the factors' values, g being that of K x. Of one factor
///             y[i,k,l,j] = sum over the batch of g[i,k,j] · conj(x[i,l,j]); of a chain, y has those of all
///             factors one after the other, left factor first. See Operands::grad_x for that of x.
enum class Operation : std::uint8_t { multiply, transposed, adjoint, gradient };

/// gelu is the exact one (erf), gelu_tanh its usual approximation.
enum class Activation : std::uint8_t { none, relu, gelu, gelu_tanh, silu };

/// How f32 may be computed. ieee: FMA units only. fp32: anything at least
/// half as accurate as a library SGEMM. tf32: one TF32 product. CPUs always do ieee.
enum class Mode : std::uint8_t { fp32, ieee, tf32 };

/// A problem: chain, batch, dtype, layout, operation, epilogue, numerics, strides. A chain of one factor is
/// written as its pattern, a longer one with '*' between them, left factor first.
///
///     using kronsparse::Problem;
///     const char* text = "f16 batch_first B=25088 8x64x64x16 +bias +gelu";
///     assert(Problem::parse(text).chain.rows() == 8192 && Problem::parse(text).to_string() == text);
///     const auto layer = Problem::parse("f16 batch_first B=1024 1x64x64x64*64x64x64x1 +bias");
///     assert(layer.chain.size() == 2 && layer.chain.rows() == 4096);
struct KRONSPARSE_API Problem {
  Chain chain;
  std::int64_t batch = 1;
  DType dtype = DType::f32;
  Layout layout = Layout::batch_first;
  Operation operation = Operation::multiply;
  Mode mode = Mode::fp32;
  bool bias = false;                         ///< multiply only: a vector of chain.rows() elements is added
  Activation activation = Activation::none;  ///< multiply on real dtypes only
  /// Elements between neighbouring rows of the matrices with K's columns (x of
  /// multiply and gradient, y of transposed) and K's rows (y of multiply, x of
  /// transposed, g of gradient). 0 means dense.
  std::int64_t cols_stride = 0;
  std::int64_t rows_stride = 0;

  /// The factor of a chain that has one; Error internal for a longer one.
  [[nodiscard]] const Pattern& pattern() const;
  /// Features of the input x: cols() of K, or rows() when transposed.
  [[nodiscard]] std::int64_t in_features() const noexcept;
  /// Features of the output y: rows() of K, or cols() when transposed.
  [[nodiscard]] std::int64_t out_features() const noexcept;
  /// Elements between neighbouring rows of x and y as stored; dense strides resolved.
  [[nodiscard]] std::int64_t x_stride() const noexcept;
  [[nodiscard]] std::int64_t y_stride() const noexcept;
  /// Multiplications and additions of the factors one after the other, counting a complex product as four.
  [[nodiscard]] double flops() const noexcept;
  /// Bytes of x, y, g, values and bias, each once: what a single pass over a chain would move.
  [[nodiscard]] double bytes() const;

  /// Throws what is wrong, if anything: a bad pattern, batch < 0, a stride
  /// shorter than the row, an epilogue on another operation than multiply, an
  /// activation of complex numbers, a mode on another dtype than f32, a tensor
  /// whose bytes do not fit in 63 bits.
  void validate() const;

  /// Canonical text: `[operation] dtype [mode] layout B=n axbxcxd[*axbxcxd...] [cols_stride=n]
  /// [rows_stride=n] [+bias] [+activation]`; what equals its default is left out.
  [[nodiscard]] std::string to_string() const;
  /// Reads the same words in any order; dtype, layout, B and chain must be
  /// there, nothing may be there twice. The result is validated.
  [[nodiscard]] static Problem parse(std::string_view text);

  friend bool operator==(const Problem&, const Problem&) = default;
};

[[nodiscard]] KRONSPARSE_API std::string_view name(Layout layout);
[[nodiscard]] KRONSPARSE_API std::string_view name(Operation operation);
[[nodiscard]] KRONSPARSE_API std::string_view name(Activation activation);
[[nodiscard]] KRONSPARSE_API std::string_view name(Mode mode);
/// The inverses of name(); Error parse otherwise, with the allowed words.
[[nodiscard]] KRONSPARSE_API Layout parse_layout(std::string_view text);
[[nodiscard]] KRONSPARSE_API Operation parse_operation(std::string_view text);
[[nodiscard]] KRONSPARSE_API Activation parse_activation(std::string_view text);
[[nodiscard]] KRONSPARSE_API Mode parse_mode(std::string_view text);

}  // namespace kronsparse
