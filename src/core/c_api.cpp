// The C API: converts, calls, and turns every exception into a status.

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>

#include "core/choice.hpp"
#include "core/message.hpp"
#include "core/names.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/kronsparse.h"
#include "kronsparse/plan.hpp"
#include "kronsparse/version.hpp"

struct kronsparse_plan {
  kronsparse::Plan plan;
  std::string implementation;  // zero-terminated, unlike a string_view
};

namespace kronsparse {
namespace {

// A fixed buffer, so that "out of memory" can be reported too.
thread_local std::array<char, 2048> last_error{};

kronsparse_status fail(ErrorCode code, std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), last_error.size() - 1);
  std::copy_n(text.data(), length, last_error.data());
  last_error[length] = '\0';
  return static_cast<kronsparse_status>(code);
}

// Nothing thrown by `body` gets past here.
template <class Body>
kronsparse_status guarded(Body&& body) noexcept {
  try {
    body();
    return KRONSPARSE_OK;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "memory ran out");
  } catch (const std::exception& error) {
    return fail(ErrorCode::internal, error.what());
  } catch (...) {
    return fail(ErrorCode::internal, "an exception of unknown type");
  }
}

void check_not_null(const char* argument, const void* pointer) {
  if (pointer == nullptr)
    throw Error(ErrorCode::bad_pointer, message("{}: null given, must not be null", argument));
}

// C callers can store any number in an enum; reading that as a C++ enum would be undefined.
template <class Enum>
int number_of(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

template <class To, class From, std::size_t N>
To checked_enum(const From& value, const std::array<std::string_view, N>& words, const char* argument) {
  const int number = number_of(value);
  if (number < 0 || number >= static_cast<int>(N))
    throw Error(ErrorCode::invalid_argument,
                message("{}: the number {} is none of 0 to {} ({})", argument, number, N - 1, listed(words)));
  return static_cast<To>(number);
}

Problem to_cpp(const kronsparse_problem* c) {
  check_not_null("problem", c);
  if (c->bias != 0 && c->bias != 1)
    throw Error(ErrorCode::invalid_argument, message("bias: {} given, must be 0 or 1", c->bias));
  Problem problem;
  problem.pattern = {c->a, c->b, c->c, c->d};
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
  c.a = problem.pattern.a;
  c.b = problem.pattern.b;
  c.c = problem.pattern.c;
  c.d = problem.pattern.d;
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
  return {.x = c->x, .y = c->y, .bias = c->bias, .g = c->g, .stream = c->stream};
}

Device device_of(const char* text) { return text == nullptr ? Device{} : Device::parse(text); }

std::string_view forced_of(const char* implementation) {
  return implementation == nullptr ? std::string_view() : std::string_view(implementation);
}

Plan make_plan(const kronsparse_problem* problem, const void* values, const char* device,
               const char* implementation) {
  return {to_cpp(problem), values, device_of(device), forced_of(implementation)};
}

}  // namespace
}  // namespace kronsparse

using namespace kronsparse;

extern "C" {

const char* kronsparse_version(void) { return KRONSPARSE_VERSION; }

const char* kronsparse_last_error(void) { return last_error.data(); }

const char* kronsparse_status_name(kronsparse_status status) {
  const int number = number_of(status);
  // The names are literals, hence zero-terminated.
  return number == KRONSPARSE_OK ? "ok" : name(static_cast<ErrorCode>(number)).data();
}

kronsparse_status kronsparse_problem_parse(const char* text, kronsparse_problem* problem) {
  return guarded([&] {
    check_not_null("text", text);
    check_not_null("problem", problem);
    *problem = to_c(Problem::parse(text));
  });
}

kronsparse_status kronsparse_problem_print(const kronsparse_problem* problem, char* text, size_t size) {
  return guarded([&] {
    check_not_null("text", text);
    const std::string printed = to_cpp(problem).to_string();
    if (size <= printed.size())
      throw Error(ErrorCode::size_mismatch,
                  message("size: {} bytes given, must be at least {}", size, printed.size() + 1));
    std::memcpy(text, printed.c_str(), printed.size() + 1);
  });
}

kronsparse_status kronsparse_predict(const kronsparse_problem* problem, const char* device,
                                     const char* implementation, double* seconds) {
  return guarded([&] {
    check_not_null("seconds", seconds);
    const Problem converted = to_cpp(problem);
    converted.validate();
    const Device place = device_of(device);
    *seconds = choose(converted, place, forced_of(implementation)).predict(converted, place);
  });
}

kronsparse_status kronsparse_plan_create(const kronsparse_problem* problem, const void* values,
                                         const char* device, const char* implementation,
                                         kronsparse_plan** plan) {
  return guarded([&] {
    check_not_null("plan", plan);
    Plan made = make_plan(problem, values, device, implementation);
    std::string chosen(made.implementation());
    *plan = new kronsparse_plan{std::move(made), std::move(chosen)};
  });
}

kronsparse_status kronsparse_plan_set_values(kronsparse_plan* plan, const void* values) {
  return guarded([&] {
    check_not_null("plan", plan);
    plan->plan.set_values(values);
  });
}

kronsparse_status kronsparse_plan_run(const kronsparse_plan* plan, const kronsparse_operands* operands) {
  return guarded([&] {
    check_not_null("plan", plan);
    plan->plan.run(to_cpp(operands));
  });
}

const char* kronsparse_plan_implementation(const kronsparse_plan* plan) {
  return plan == nullptr ? nullptr : plan->implementation.c_str();
}

void kronsparse_plan_destroy(kronsparse_plan* plan) { delete plan; }

kronsparse_status kronsparse_multiply(const kronsparse_problem* problem, const void* values,
                                      const kronsparse_operands* operands) {
  return guarded([&] {
    const Operands converted = to_cpp(operands);
    make_plan(problem, values, nullptr, nullptr).run(converted);
  });
}

}  // extern "C"
