// Output for people: colour when a terminal reads it, tables, a progress bar.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace kronsparse::cli {

enum class Colour { green, red, yellow, bold, dim };

/// The text in colour if `stream` is a terminal and neither NO_COLOR nor TERM=dumb objects.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, std::FILE* stream);

/// Rows of cells in aligned columns, two spaces apart.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add_row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  /// Ends in a newline. Titles are bold when `stream` shows colour.
  [[nodiscard]] std::string render(std::FILE* stream) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// The only way to stderr: where it is closed or full, the text is lost and the
/// command goes on, for its result and its exit code are elsewhere.
void print_to_stderr(std::string_view text) noexcept;

/// Steps of a longer job on stderr: one line that rewrites itself on a
/// terminal, a line per step elsewhere.
class Progress {
 public:
  explicit Progress(std::size_t steps);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears the bar.
  ~Progress();

  /// Announces the next step.
  void step(const std::string& what);

 private:
  std::size_t steps_;
  std::size_t done_ = 0;
  bool terminal_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A duration with three digits: "1.23 ms", "45.6 us".
[[nodiscard]] std::string duration_text(double seconds);
/// 1234567 as "1,234,567".
[[nodiscard]] std::string grouped(std::int64_t number);

}  // namespace kronsparse::cli
