#include "terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kronsparse/error.hpp"

namespace kronsparse::cli {
namespace {

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

bool shows_colour(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return is_terminal(stream) && (no_colour == nullptr || *no_colour == '\0') && term != nullptr &&
         std::strcmp(term, "dumb") != 0;
}

/// Characters a terminal shows: colour sequences take no room, nor do the later bytes of UTF-8.
std::size_t shown_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t index = 0; index < text.size(); ++index) {
    if (text[index] == '\x1b') {
      index = std::min(text.find('m', index), text.size());
    } else if ((static_cast<unsigned char>(text[index]) & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string coloured(std::string_view text, Colour colour, std::FILE* stream) {
  if (!shows_colour(stream)) return std::string(text);
  const char* code = "0";
  switch (colour) {
    case Colour::green:
      code = "32";
      break;
    case Colour::red:
      code = "1;31";
      break;
    case Colour::yellow:
      code = "33";
      break;
    case Colour::bold:
      code = "1";
      break;
    case Colour::dim:
      code = "2";
      break;
  }
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) throw Error(ErrorCode::internal, "a table row of the wrong length");
  rows_.push_back(std::move(cells));
}

std::string Table::render(std::FILE* stream) const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    std::size_t width = shown_width(columns_[column].title);
    for (const auto& row : rows_) width = std::max(width, shown_width(row[column]));
    widths.push_back(width);
  }
  std::string out;
  const auto append_line = [&](const auto& cell_at) {
    std::string line;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const std::string cell = cell_at(column);
      const std::string padding(widths[column] - shown_width(cell), ' ');
      line += columns_[column].align == Align::right ? padding + cell : cell + padding;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  append_line([&](std::size_t column) { return coloured(columns_[column].title, Colour::bold, stream); });
  for (const auto& row : rows_) append_line([&](std::size_t column) { return row[column]; });
  return out;
}

void print_to_stderr(std::string_view text) noexcept {
  // fmt::print would throw where this fails; what cannot be said needs no answer either.
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
  std::fflush(stderr);
}

Progress::Progress(std::size_t steps) : steps_(steps), terminal_(is_terminal(stderr)) {}

Progress::~Progress() {
  if (terminal_) print_to_stderr("\r\x1b[K");
}

void Progress::step(const std::string& what) {
  ++done_;
  if (!terminal_) {
    print_to_stderr(fmt::format("[{}/{}] {}\n", done_, steps_, what));
    return;
  }
  constexpr std::size_t bar_width = 24;
  const std::size_t filled = std::min(bar_width, bar_width * (done_ - 1) / std::max<std::size_t>(steps_, 1));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string line = fmt::format("[{}{}] {}/{} {:.0f} s  {}", std::string(filled, '#'),
                                 std::string(bar_width - filled, '.'), done_, steps_, elapsed, what);
  line.resize(std::min(line.size(), terminal_columns() - 1));
  print_to_stderr("\r\x1b[K" + line);
}

std::string duration_text(double seconds) {
  // Limits are where three digits round up to the next unit.
  if (seconds >= 999.5) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 0.9995) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 0.9995e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t end = digits.size(); end > 3 + (number < 0 ? 1U : 0U); end -= 3)
    digits.insert(end - 3, 1, ',');
  return digits;
}

}  // namespace kronsparse::cli
