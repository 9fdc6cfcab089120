// The order of packed weights, written as digits.
//
// Packed weights are units of 16 bytes. Every order numbers its units in digits. The weight (i, k, l, j) at a
// place moves by a fixed step with each digit, and with each bit of an element's number in its unit. So one
// kernel packs every order (packing.cuh), and can choose which units a thread takes and how it reads them
// (forms.hpp). Host code only.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "cuda/host/product.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cuda {

/// A step of a weight's indices. `row` counts rows, which are divided by PackLayout::rows_of_k: the quotient
/// adds to k, the remainder to j.
struct PackStep {
  std::int64_t k = 0, l = 0, j = 0, row = 0;

  friend bool operator==(const PackStep&, const PackStep&) = default;
};

struct PackDigit {
  std::int64_t count = 1;
  std::int64_t to = 0;  ///< units from one to the next among packed weights
  PackStep step;
};

/// The conversion of an element. split_floats: a float becomes a TF32 number and the remainder.
enum class PackElements : std::uint8_t { same, split_floats };

struct PackLayout {
  static constexpr std::size_t most_digits = 14;

  std::int64_t a = 1, b = 1, c = 1, d = 1;  ///< sizes of the product: b outputs, c terms
  bool transposed = false;                  ///< whether the values' array is that of the transposed matrix
  DType dtype = DType::f16;
  PackElements elements = PackElements::same;

  std::array<PackDigit, most_digits> digits{};
  std::size_t digit_count = 0;
  std::int64_t units = 1;  ///< units that the digits so far count
  std::array<PackStep, 3> bits{};
  int bit_count = 0;
  std::int64_t rows_of_k = 1;  ///< rows that belong to the same outputs
  PackStep of_quotient, of_rest;
  /// Within each 8 units, row r of 8 is swizzled: unit u lies where unit u ^ r would.
  bool swizzled = false;
  std::int64_t to_rest = 0;  ///< units from a float's TF32 part to its remainder
  /// If not 0, the eight terms of a unit are exchanged by its j (mixed_terms.hpp). The digit of j is the
  /// last.
  int mixing = 0;

  [[nodiscard]] static PackLayout of(const Problem& problem) {
    const Product p = product_of(problem);
    PackLayout layout;
    layout.a = p.a;
    layout.b = p.b;
    layout.c = p.c;
    layout.d = p.d;
    layout.transposed = is_transposed(problem.operation);
    layout.dtype = problem.dtype;
    return layout;
  }

  /// Adds the next digit, the fastest first.
  void digit(std::int64_t count, const PackStep& step) {
    if (count > 1) digits[digit_count++] = {count, units, step};
    units *= count;
  }
  /// Adds two digits for the lanes of a warp: four lanes, and eight groups of four.
  void lanes(const PackStep& of_four, const PackStep& of_eight) {
    digit(2, of_four);
    digit(2, {2 * of_four.k, 2 * of_four.l, 2 * of_four.j, 2 * of_four.row});
    digit(8, of_eight);
  }
  /// Leaves out units that something else writes.
  void skip(std::int64_t count) { units *= count; }
  /// Adds the next bit of an element's number, the lowest first.
  void bit(const PackStep& step) { bits[static_cast<std::size_t>(bit_count++)] = step; }

  [[nodiscard]] std::int64_t k_stride() const { return transposed ? d : c * d; }
  [[nodiscard]] std::int64_t l_stride() const { return transposed ? b * d : d; }
  /// Elements of the values' array that a step covers.
  [[nodiscard]] std::int64_t source(const PackStep& step) const {
    return step.k * k_stride() + step.l * l_stride() + step.j;
  }
  /// The units for all i.
  [[nodiscard]] std::int64_t all_units() const { return a * units; }
};

}  // namespace kronsparse::cuda
