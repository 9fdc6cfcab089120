#include "core/c_api_conversion.hpp"

#include <array>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/names.hpp"
#include "core/text.hpp"

namespace kronsparse::c_api {
namespace {

// A fixed buffer, so that "out of memory" can be reported too.
thread_local std::array<char, 2048> error_text{};

template <class To, class From, std::size_t N>
To checked_enum(const From& value, const std::array<std::string_view, N>& words, const char* argument) {
  const int number = number_of(value);
  if (number < 0 || number >= static_cast<int>(N))
    throw Error(ErrorCode::invalid_argument,
                message("{}: {} given, must be 0 to {} ({})", argument, number, N - 1, listed(words)));
  return static_cast<To>(number);
}

Chain chain_of(const kronsparse_problem& c) {
  if (c.factor_count < 1 || c.factor_count > KRONSPARSE_MAX_FACTORS)
    throw Error(ErrorCode::invalid_argument,
                message("factor_count: {} given, must be 1 to {}", c.factor_count, KRONSPARSE_MAX_FACTORS));
  std::vector<Pattern> factors;
  for (int factor = 0; factor < c.factor_count; ++factor) {
    const kronsparse_pattern& one = c.factors[factor];
    factors.push_back({one.a, one.b, one.c, one.d});
  }
  return Chain(std::move(factors));
}

}  // namespace

const char* last_error() noexcept { return error_text.data(); }

kronsparse_status fail(ErrorCode code, std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), error_text.size() - 1);
  std::copy_n(text.data(), length, error_text.data());
  error_text[length] = '\0';
  return static_cast<kronsparse_status>(code);
}

void check_not_null(const char* argument, const void* pointer) {
  if (pointer == nullptr)
    throw Error(ErrorCode::bad_pointer, message("{}: null given, must not be null", argument));
}

Problem to_cpp(const kronsparse_problem* c) {
  check_not_null("problem", c);
  if (c->bias != 0 && c->bias != 1)
    throw Error(ErrorCode::invalid_argument, message("bias: {} given, must be 0 or 1", c->bias));
  Problem problem;
  problem.chain = chain_of(*c);
  problem.batch = c->batch;
  problem.dtype = checked_enum<DType>(c->dtype, dtype_names, "dtype");
  problem.layout = checked_enum<Layout>(c->layout, layout_names, "layout");
  problem.operation = checked_enum<Operation>(c->operation, operation_names, "operation");
  problem.mode = checked_enum<Mode>(c->mode, mode_names, "mode");
  problem.bias = c->bias == 1;
  problem.activation = checked_enum<Activation>(c->activation, activation_names, "activation");
  problem.cols_stride = c->cols_stride;
  problem.rows_stride = c->rows_stride;
  return problem;
}

kronsparse_problem to_c(const Problem& problem) {
  kronsparse_problem c{};
  if (problem.chain.size() > KRONSPARSE_MAX_FACTORS)
    throw Error(ErrorCode::overflow, message("text: {} factors given, must be at most {}",
                                             problem.chain.size(), KRONSPARSE_MAX_FACTORS));
  for (const Pattern& one : problem.chain.factors())
    c.factors[c.factor_count++] = {one.a, one.b, one.c, one.d};
  c.batch = problem.batch;
  c.dtype = static_cast<kronsparse_dtype>(problem.dtype);
  c.layout = static_cast<kronsparse_layout>(problem.layout);
  c.operation = static_cast<kronsparse_operation>(problem.operation);
  c.mode = static_cast<kronsparse_mode>(problem.mode);
  c.bias = problem.bias ? 1 : 0;
  c.activation = static_cast<kronsparse_activation>(problem.activation);
  c.cols_stride = problem.cols_stride;
  c.rows_stride = problem.rows_stride;
  return c;
}

Operands to_cpp(const kronsparse_operands* c) {
  check_not_null("operands", c);
  return {.x = c->x,
          .y = c->y,
          .bias = c->bias,
          .g = c->g,
          .stream = c->stream,
          .values = c->values,
          .packed = c->packed == nullptr ? nullptr : &c->packed->values,
          .gradients = c->gradients,
          .grad_x = c->grad_x,
          .workspace = c->workspace,
          .workspace_bytes = c->workspace_bytes,
          .intermediates = c->intermediates};
}

Batch batch_of(const Problem& problem) { return {problem.batch, problem.cols_stride, problem.rows_stride}; }

Batch to_cpp(const kronsparse_batch* c, const Plan& plan) {
  return c == nullptr ? batch_of(plan.problem()) : Batch{c->size, c->cols_stride, c->rows_stride};
}

Device device_of(const char* text) { return text == nullptr ? Device{} : Device::parse(text); }

std::string_view forced_of(const char* implementation) {
  return implementation == nullptr ? std::string_view() : std::string_view(implementation);
}

std::span<const void* const> values_of(const void* const* values, const Chain& chain) {
  check_not_null("values", values);
  return {values, chain.size()};
}

const Plan& plan_of(const kronsparse_plan* plan) {
  check_not_null("plan", plan);
  return plan->plan;
}

Plan& plan_of(kronsparse_plan* plan) {
  check_not_null("plan", plan);
  return plan->plan;
}

void print_text(const std::string& printed, char* text, size_t size) {
  check_not_null("text", text);
  if (size <= printed.size())
    throw Error(ErrorCode::size_mismatch,
                message("size: {} bytes given, must be at least {}", size, printed.size() + 1));
  std::memcpy(text, printed.c_str(), printed.size() + 1);
}

void copy_device(const DeviceInfo& info, kronsparse_device& c) {
  copy_text(c.name, info.device.to_string());
  copy_text(c.description, info.description);
  c.cache_bytes = info.cache_bytes;
}

}  // namespace kronsparse::c_api
