// Shared by everything that reads or prints a text form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kronsparse/error.hpp"

namespace kronsparse {

/// The text in quotes for a message: unprintable characters escaped, long text cut.
[[nodiscard]] std::string quoted(std::string_view text);

/// Reads a number as the text forms write it: decimal digits, no sign, no
/// leading zero. `argument` and `whole` (the text it stands in) are for messages.
[[nodiscard]] std::int64_t parse_number(std::string_view digits, std::string_view argument,
                                        std::string_view whole);

/// The number that is all of the text, whatever the locale writes for a decimal point; NaN where it is none.
[[nodiscard]] double parse_real(std::string_view text) noexcept;

/// The strings of a range with a separator between them.
template <class Range>
[[nodiscard]] std::string joined(const Range& strings, std::string_view separator) {
  std::string result;
  for (std::string_view text : strings) result.append(result.empty() ? "" : separator).append(text);
  return result;
}

/// "f32, f64, f16".
template <std::size_t N>
[[nodiscard]] std::string listed(const std::array<std::string_view, N>& words) {
  return joined(words, ", ");
}

/// The word of an enumerator, words being in the order of the enumerators.
template <class Enum, std::size_t N>
[[nodiscard]] std::string_view enum_name(Enum value, const std::array<std::string_view, N>& words,
                                         std::string_view argument) {
  const auto index = static_cast<std::size_t>(value);
  if (index < N) return words[index];
  throw Error(ErrorCode::invalid_argument, std::string(argument) + ": the number " + std::to_string(index) +
                                               " given, must be one of " + listed(words));
}

/// The enumerator of a word.
template <class Enum, std::size_t N>
[[nodiscard]] Enum parse_enum(std::string_view text, const std::array<std::string_view, N>& words,
                              std::string_view argument) {
  for (std::size_t index = 0; index < N; ++index)
    if (words[index] == text) return static_cast<Enum>(index);
  throw Error(ErrorCode::parse,
              std::string(argument) + ": " + quoted(text) + " given, must be one of " + listed(words));
}

}  // namespace kronsparse
