// Text for messages, in fmt's format strings checked at compile time.
#pragma once

#ifdef __CUDACC__
// nvcc 13.0 compiles consteval functions for the device too and fails; as constexpr ones they pass.
#define FMT_CONSTEVAL
#define FMT_USE_CONSTEVAL 0  // how fmt 11 and later ask
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/core.h>

#include <string>

namespace kronsparse {

// fmt leaves types out under nvcc. Arguments must look the same to both compilers: text.cpp reads them.
static_assert(sizeof(fmt::detail::value<fmt::format_context>) == 16 &&
              alignof(fmt::detail::value<fmt::format_context>) == 16);

/// The one place (text.cpp) where fmt's formatting itself is compiled: it takes
/// longer to compile than the rest of the core.
[[nodiscard]] std::string format_message(fmt::string_view text, fmt::format_args arguments);

template <class... Arguments>
[[nodiscard]] std::string message(fmt::format_string<const Arguments&...> text,
                                  const Arguments&... arguments) {
  return format_message(text, fmt::make_format_args(arguments...));
}

}  // namespace kronsparse
