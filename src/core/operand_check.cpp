#include "core/operand_check.hpp"

#include "core/message.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {
namespace {

// "must be given" or "must be null", as the problem has the operand or not.
void check_presence(std::string_view argument, const void* pointer, bool is_needed, const Problem& problem) {
  if ((pointer != nullptr) == is_needed) return;
  if (is_needed)
    throw Error(ErrorCode::bad_pointer,
                message("{}: null given, {} needs it", argument, problem.to_string()));
  throw Error(ErrorCode::invalid_argument,
              message("{}: given, must be null because {} does not use it", argument, problem.to_string()));
}

const void* end_of(const void* begin, std::uintptr_t bytes) {
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(begin) + bytes);
}

}  // namespace

void check_pointer(std::string_view argument, const void* pointer, DType dtype) {
  if (pointer == nullptr)
    throw Error(ErrorCode::bad_pointer,
                message("{}: null given, must point to {} elements", argument, name(dtype)));
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment_of(dtype) != 0)
    throw Error(ErrorCode::bad_pointer, message("{}: address {} given, must be a multiple of {} for {}",
                                                argument, pointer, alignment_of(dtype), name(dtype)));
}

void check_disjoint(const MatrixArgument& output, const MatrixArgument& input, DType dtype) {
  const auto element = static_cast<std::uintptr_t>(size_of(dtype));
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::uintptr_t>(elements) * element; };
  const auto output_begin = reinterpret_cast<std::uintptr_t>(output.data);
  const auto input_begin = reinterpret_cast<std::uintptr_t>(input.data);
  const std::uintptr_t output_bytes = bytes(output.shape.extent());
  const std::uintptr_t input_bytes = bytes(input.shape.extent());

  // Unsigned differences wrap, so each range is tested from its own beginning.
  const bool ranges_meet =
      output_bytes != 0 && input_bytes != 0 &&
      (output_begin - input_begin < input_bytes || input_begin - output_begin < output_bytes);
  if (!ranges_meet) return;

  if (output.shape.stride == input.shape.stride) {
    const std::uintptr_t stride = bytes(output.shape.stride);
    // Where the output's window begins when the input's is at 0.
    const std::uintptr_t offset = output_begin >= input_begin
                                      ? (output_begin - input_begin) % stride
                                      : (stride - (input_begin - output_begin) % stride) % stride;
    if (offset >= bytes(input.shape.cols) && offset + bytes(output.shape.cols) <= stride) return;
  }
  throw Error(ErrorCode::overlap,
              message("{}: bytes {} to {} overlap {}, bytes {} to {}; the output must not share memory with "
                      "an input",
                      output.name, output.data, end_of(output.data, output_bytes), input.name, input.data,
                      end_of(input.data, input_bytes)));
}

void check_operands(const Problem& problem, const Operands& operands) {
  const bool is_gradient = problem.operation == Operation::gradient;
  check_presence("bias", operands.bias, problem.bias, problem);
  if (!is_gradient) check_presence("g", operands.g, false, problem);

  // An empty matrix has no address: null will do.
  const bool is_empty = problem.batch == 0;
  if (operands.x != nullptr || !is_empty) check_pointer("x", operands.x, problem.dtype);
  if (is_gradient && (operands.g != nullptr || !is_empty)) check_pointer("g", operands.g, problem.dtype);
  if (operands.y != nullptr || !is_empty || is_gradient) check_pointer("y", operands.y, problem.dtype);
  if (problem.bias) check_pointer("bias", operands.bias, problem.dtype);

  const MatrixArgument y{"y", operands.y, y_matrix(problem)};
  check_disjoint(y, {"x", operands.x, x_matrix(problem)}, problem.dtype);
  if (is_gradient) check_disjoint(y, {"g", operands.g, rows_matrix(problem)}, problem.dtype);
  if (problem.bias) {
    const std::int64_t rows = problem.pattern.rows();
    check_disjoint(y, {"bias", operands.bias, {1, rows, rows}}, problem.dtype);
  }
}

}  // namespace kronsparse
