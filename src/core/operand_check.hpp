// Checks of the pointers a caller hands in.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/geometry.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {

/// A matrix in memory, named as the caller knows it.
struct MatrixArgument {
  std::string_view name;
  const void* data;
  MatrixShape shape;
};

/// Throws bad_pointer unless the pointer is not null and aligned to an element.
void check_pointer(std::string_view argument, const void* pointer, DType dtype);

/// Throws overlap if the output shares memory with an input. Two matrices whose
/// byte ranges interleave are apart when both have the same row stride and their
/// columns, modulo that stride, do not meet: column windows of one buffer. Other
/// interleaved views are refused although no element may be shared.
void check_disjoint(const MatrixArgument& output, const MatrixArgument& input, DType dtype);

/// Throws what is wrong with the operands of a run, if anything.
void check_operands(const Problem& problem, const Operands& operands);

}  // namespace kronsparse
