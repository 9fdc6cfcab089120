// Between the structs of the C API and those of C++, and the checks of what C callers give.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "core/implementation.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/kronsparse.h"
#include "kronsparse/plan.hpp"

struct kronsparse_plan {
  kronsparse::Plan plan;
};

struct kronsparse_packed {
  kronsparse::PackedValues values;
};

struct kronsparse_timer {
  kronsparse::Timer timer;
};

namespace kronsparse::c_api {

/// The text of this thread's last error.
[[nodiscard]] const char* last_error() noexcept;
/// Keeps the text, and returns the status of the code.
kronsparse_status fail(ErrorCode code, std::string_view text) noexcept;

/// Nothing thrown by `body` gets past here.
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

void check_not_null(const char* argument, const void* pointer);

/// C callers can store any number in an enum; reading that as a C++ enum would be undefined.
template <class Enum>
int number_of(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

[[nodiscard]] Problem to_cpp(const kronsparse_problem* c);
[[nodiscard]] kronsparse_problem to_c(const Problem& problem);
[[nodiscard]] Operands to_cpp(const kronsparse_operands* c);
[[nodiscard]] Batch batch_of(const Problem& problem);
/// That of the plan if none is given.
[[nodiscard]] Batch to_cpp(const kronsparse_batch* c, const Plan& plan);
/// The CPU if no device is given.
[[nodiscard]] Device device_of(const char* text);
[[nodiscard]] std::string_view forced_of(const char* implementation);
[[nodiscard]] std::span<const void* const> values_of(const void* const* values, const Chain& chain);
[[nodiscard]] const Plan& plan_of(const kronsparse_plan* plan);
[[nodiscard]] Plan& plan_of(kronsparse_plan* plan);

/// All of a text and its zero; Error size_mismatch where that is too much.
void print_text(const std::string& printed, char* text, size_t size);

/// As much of the text as there is room for, and a zero.
template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::copy_n(text.data(), length, to);
  to[length] = '\0';
}

void copy_device(const DeviceInfo& info, kronsparse_device& c);

/// Writes items of a list to an array of `capacity`, each with `write(item, place)`, and their number.
template <class List, class Item, class Write>
void copy_list(const List& list, Item* items, size_t capacity, size_t* count, const char* argument,
               const Write& write) {
  check_not_null("count", count);
  if (capacity > 0) check_not_null(argument, items);
  for (std::size_t index = 0; index < std::min(capacity, list.size()); ++index) {
    items[index] = Item{};
    write(list[index], items[index]);
  }
  *count = list.size();
}

}  // namespace kronsparse::c_api
