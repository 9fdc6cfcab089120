// Text for messages, in fmt's format strings checked at compile time.
#pragma once

#include <fmt/core.h>

#include <string>

namespace kronsparse {

/// The one place (text.cpp) where fmt's formatting itself is compiled: it takes
/// longer to compile than the rest of the core.
[[nodiscard]] std::string format_message(fmt::string_view text, fmt::format_args arguments);

template <class... Arguments>
[[nodiscard]] std::string message(fmt::format_string<const Arguments&...> text,
                                  const Arguments&... arguments) {
  return format_message(text, fmt::make_format_args(arguments...));
}

}  // namespace kronsparse
