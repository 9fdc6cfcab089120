// Checks of the pointers a caller hands in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/decision.hpp"
#include "core/geometry.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {

/// The caller's name for an argument. It becomes a text only where something is wrong: every run is checked.
struct ArgumentName {
  // NOLINTNEXTLINE(google-explicit-constructor): a name is what is given
  constexpr ArgumentName(const char* given) : word(given) {}
  constexpr ArgumentName(std::string_view given, std::int64_t at = -1) : word(given), index(at) {}  // NOLINT

  [[nodiscard]] std::string text() const;

  std::string_view word;
  std::int64_t index = -1;  ///< in an array: "values[1]"; else -1
};

/// A matrix in memory, named as the caller knows it.
struct MatrixArgument {
  ArgumentName name;
  const void* data;
  MatrixShape shape;
};

/// Throws bad_pointer unless the pointer is not null and aligned to an element.
void check_pointer(ArgumentName argument, const void* pointer, DType dtype);

/// Throws overlap if the output shares memory with an input. Two matrices whose
/// byte ranges interleave are apart when both have the same row stride and their
/// columns, modulo that stride, do not meet: column windows of one buffer. Other
/// interleaved views are refused although no element may be shared.
void check_disjoint(const MatrixArgument& output, const MatrixArgument& input, DType dtype);

/// Throws unless there is a good address for each factor.
void check_values(std::span<const void* const> values, const Chain& chain, DType dtype);

/// Throws what is wrong with the operands of a run, if anything.
void check_operands(const Decision& decision, const Operands& operands);

}  // namespace kronsparse
