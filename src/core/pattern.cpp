#include "kronsparse/pattern.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/checked.hpp"
#include "core/message.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse {

double Pattern::density() const noexcept { return 1.0 / (static_cast<double>(a) * static_cast<double>(d)); }

double Pattern::h() const noexcept {
  return (static_cast<double>(b) + static_cast<double>(c)) /
         (static_cast<double>(b) * static_cast<double>(c));
}

std::int64_t Pattern::rank_with(const Pattern& right) const noexcept {
  if (right.a % a != 0 || d % right.d != 0 || a * c % right.a != 0) return 0;
  return a * c / right.a;
}

std::optional<Pattern> Pattern::times(const Pattern& right) const noexcept {
  if (b == 1 && c == 1) return right;  // a diagonal matrix fits whatever comes
  if (right.b == 1 && right.c == 1) return *this;
  const Pattern product{std::gcd(a, right.a), 1, 1, std::gcd(d, right.d)};
  if (product.a != std::min(a, right.a) || product.d != std::min(d, right.d)) return std::nullopt;
  // Crossed neighbours fill the larger pattern only where the columns of one reach every block.
  const bool goes_up = a <= right.a && d >= right.d;
  const bool goes_down = a >= right.a && d <= right.d;
  if ((goes_up && right.b * right.d < d) || (goes_down && c * d < right.d)) return std::nullopt;
  return Pattern{product.a, rows() / (product.a * product.d), right.cols() / (product.a * product.d),
                 product.d};
}

void Pattern::validate() const {
  constexpr std::int64_t widest_element = 16;
  for (const auto& [letter, size] :
       {std::pair('a', a), std::pair('b', b), std::pair('c', c), std::pair('d', d)})
    if (size < 1)
      throw Error(ErrorCode::invalid_argument,
                  message("pattern: {} of {} is {}, must be at least 1", letter, to_string(), size));
  // Rows and columns are no larger than the number of values.
  if (!checked_product({widest_element, a, b, c, d}))
    throw Error(ErrorCode::overflow,
                message("pattern: {} has too many values, their bytes must fit in 63 bits", to_string()));
}

std::string Pattern::to_string() const { return message("{}x{}x{}x{}", a, b, c, d); }

Pattern Pattern::parse(std::string_view text) {
  std::array<std::int64_t, 4> sizes{};
  std::string_view rest = text;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const bool is_last = index + 1 == sizes.size();
    const std::size_t end = is_last ? rest.size() : rest.find('x');
    if (end == std::string_view::npos)
      throw Error(ErrorCode::parse,
                  message("pattern: {} is not four numbers joined by 'x', as in 2x3x4x5", quoted(text)));
    sizes[index] = parse_number(rest.substr(0, end), "pattern", text);
    if (!is_last) rest.remove_prefix(end + 1);
  }
  const Pattern pattern{sizes[0], sizes[1], sizes[2], sizes[3]};
  pattern.validate();
  return pattern;
}

}  // namespace kronsparse
