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

std::string ArgumentName::text() const {
  return index < 0 ? std::string(word) : message("{}[{}]", word, index);
}

void check_pointer(ArgumentName argument, const void* pointer, DType dtype) {
  if (pointer == nullptr)
    throw Error(ErrorCode::bad_pointer,
                message("{}: null given, must point to {} elements", argument.text(), name(dtype)));
  if (reinterpret_cast<std::uintptr_t>(pointer) % alignment_of(dtype) != 0)
    throw Error(ErrorCode::bad_pointer, message("{}: address {} given, must be a multiple of {} for {}",
                                                argument.text(), pointer, alignment_of(dtype), name(dtype)));
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
    // The beginning of the output's window when the input's is at 0.
    const std::uintptr_t offset = output_begin >= input_begin
                                      ? (output_begin - input_begin) % stride
                                      : (stride - (input_begin - output_begin) % stride) % stride;
    if (offset >= bytes(input.shape.cols) && offset + bytes(output.shape.cols) <= stride) return;
  }
  throw Error(ErrorCode::overlap,
              message("{}: bytes {} to {} overlap {}, bytes {} to {}; the output must not share memory with "
                      "an input",
                      output.name.text(), output.data, end_of(output.data, output_bytes), input.name.text(),
                      input.data, end_of(input.data, input_bytes)));
}

void check_values(std::span<const void* const> values, const Chain& chain, DType dtype) {
  if (values.empty() || (values.size() == 1 && chain.size() == 1))
    return check_pointer("values", values.empty() ? nullptr : values[0], dtype);
  if (values.size() != chain.size())
    throw Error(ErrorCode::size_mismatch,
                message("values: {} addresses given, must be {}, one for each factor of {}", values.size(),
                        chain.size(), chain.to_string()));
  for (std::size_t factor = 0; factor < values.size(); ++factor)
    check_pointer({"values", static_cast<std::int64_t>(factor)}, values[factor], dtype);
}

namespace {

/// Output beside inputs, all of one run.
class OverlapCheck {
 public:
  OverlapCheck(const Problem& problem, const Operands& operands) : problem_(problem), operands_(operands) {}

  void output(const MatrixArgument& output) const {
    check_disjoint(output, {"x", operands_.x, x_matrix(problem_)}, problem_.dtype);
    if (problem_.operation == Operation::gradient)
      check_disjoint(output, {"g", operands_.g, rows_matrix(problem_)}, problem_.dtype);
    if (problem_.bias) vector(output, "bias", operands_.bias, problem_.chain.rows());
    if (operands_.values == nullptr) return;
    for (std::size_t factor = 0; factor < problem_.chain.size(); ++factor)
      vector(output, {"values", static_cast<std::int64_t>(factor)}, operands_.values[factor],
             problem_.chain[factor].nnz());
  }

 private:
  void vector(const MatrixArgument& output, ArgumentName argument, const void* data,
              std::int64_t size) const {
    check_disjoint(output, {argument, data, {1, size, size}}, problem_.dtype);
  }

  const Problem& problem_;
  const Operands& operands_;
};

void check_gradients(const Problem& problem, const Operands& operands, const OverlapCheck& overlap) {
  const Chain& chain = problem.chain;
  if (operands.gradients == nullptr) {
    check_pointer("y", operands.y, problem.dtype);
    overlap.output({"y", operands.y, y_matrix(problem)});
  } else if (operands.y != nullptr) {
    throw Error(ErrorCode::invalid_argument, "y: given beside gradients, must be null there");
  } else {
    for (std::size_t factor = 0; factor < chain.size(); ++factor) {
      if (operands.gradients[factor] == nullptr) continue;
      const ArgumentName argument{"gradients", static_cast<std::int64_t>(factor)};
      check_pointer(argument, operands.gradients[factor], problem.dtype);
      overlap.output({argument, operands.gradients[factor], values_matrix(chain[factor])});
    }
  }
  if (operands.grad_x == nullptr) return;
  check_pointer("grad_x", operands.grad_x, problem.dtype);
  overlap.output({"grad_x", operands.grad_x, batch_shape(problem.layout, problem.batch, chain.cols(), 0)});
}

void check_memory(std::string_view argument, const void* memory) {
  if (reinterpret_cast<std::uintptr_t>(memory) % memory_alignment != 0)
    throw Error(ErrorCode::bad_pointer, message("{}: address {} given, must be a multiple of {}", argument,
                                                memory, memory_alignment));
}

void check_workspace(const Decision& decision, const Operands& operands) {
  if (operands.intermediates != nullptr) check_memory("intermediates", operands.intermediates);
  const std::size_t needed = workspace_of(decision, operands).bytes;
  if (needed == 0) return;
  if (operands.workspace == nullptr)
    throw Error(ErrorCode::bad_pointer,
                message("workspace: null given, {} needs {} bytes, see workspace_bytes()",
                        decision.problem.to_string(), needed));
  check_memory("workspace", operands.workspace);
  if (operands.workspace_bytes < needed)
    throw Error(ErrorCode::size_mismatch,
                message("workspace_bytes: {} given, {} needs {}", operands.workspace_bytes,
                        decision.problem.to_string(), needed));
}

/// Whether a step that a run wants reads values that are not kept.
bool reads_values(const Decision& decision, const Operands& operands) {
  for (const DecidedStep& step : decision.steps)
    if (step.has_values() && step.kept == nullptr && is_wanted(decision, step.step, operands)) return true;
  return false;
}

}  // namespace

void check_operands(const Decision& decision, const Operands& operands) {
  const Problem& problem = decision.problem;
  const bool is_gradient = problem.operation == Operation::gradient;
  check_presence("bias", operands.bias, problem.bias, problem);
  if (!is_gradient) {
    check_presence("g", operands.g, false, problem);
    check_presence("gradients", operands.gradients, false, problem);
    check_presence("grad_x", operands.grad_x, false, problem);
  }
  if (problem.operation != Operation::multiply && !is_gradient)
    check_presence("intermediates", operands.intermediates, false, problem);
  if (operands.values != nullptr)
    check_values({operands.values, problem.chain.size()}, problem.chain, problem.dtype);
  else if (reads_values(decision, operands))
    throw Error(ErrorCode::bad_pointer,
                message("values: null given, a plan of {} that keeps none needs them", problem.to_string()));

  // An empty matrix has no address: null will do.
  const bool is_empty = problem.batch == 0;
  if (operands.x != nullptr || !is_empty) check_pointer("x", operands.x, problem.dtype);
  if (is_gradient && (operands.g != nullptr || !is_empty)) check_pointer("g", operands.g, problem.dtype);
  if (problem.bias) check_pointer("bias", operands.bias, problem.dtype);

  const OverlapCheck overlap(problem, operands);
  if (is_gradient) {
    check_gradients(problem, operands, overlap);
  } else {
    if (operands.y != nullptr || !is_empty) check_pointer("y", operands.y, problem.dtype);
    overlap.output({"y", operands.y, y_matrix(problem)});
  }
  if (!is_empty) check_workspace(decision, operands);
}

}  // namespace kronsparse
