#include "core/text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <system_error>

#include "core/message.hpp"

namespace kronsparse {

std::string format_message(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

std::string quoted(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string result = "'";
  for (char character : text.substr(0, longest)) {
    if (character >= ' ' && character <= '~')
      result += character;
    else
      result += message("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(character)));
  }
  result += '\'';
  if (text.size() > longest) result += message("... ({} characters)", text.size());
  return result;
}

std::int64_t parse_number(std::string_view digits, std::string_view argument, std::string_view whole) {
  const bool only_digits =
      !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!only_digits || (digits.size() > 1 && digits.front() == '0'))
    throw Error(ErrorCode::parse,
                message("{}: {} in {} is not a whole number written in decimal digits without sign or "
                        "leading zero",
                        argument, quoted(digits), quoted(whole)));
  std::int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ec == std::errc::result_out_of_range)
    throw Error(ErrorCode::overflow,
                message("{}: {} in {} does not fit in 63 bits", argument, quoted(digits), quoted(whole)));
  return value;
}

double parse_real(std::string_view text) noexcept {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_all = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_all ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace kronsparse
