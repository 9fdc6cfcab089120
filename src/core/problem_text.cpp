// The text form of a problem and of its enumerations.

#include <algorithm>
#include <array>
#include <optional>

#include "core/message.hpp"
#include "core/names.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {
namespace {

constexpr std::string_view batch_key = "B=";
constexpr std::string_view cols_stride_key = "cols_stride=";
constexpr std::string_view rows_stride_key = "rows_stride=";

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& words, std::string_view word) {
  for (std::string_view candidate : words)
    if (candidate == word) return true;
  return false;
}

// Collects the words of one text; each may come once.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  void read(std::string_view word) {
    if (contains(dtype_names, word)) {
      set(dtype_, parse_dtype(word), "dtype", word);
    } else if (contains(layout_names, word)) {
      set(layout_, parse_layout(word), "layout", word);
    } else if (contains(operation_names, word)) {
      set(operation_, parse_operation(word), "operation", word);
    } else if (contains(mode_names, word)) {
      set(mode_, parse_mode(word), "mode", word);
    } else if (word.starts_with(batch_key)) {
      set_number(batch_, batch_key, "batch", word);
    } else if (word.starts_with(cols_stride_key)) {
      set_number(cols_stride_, cols_stride_key, "cols_stride", word);
    } else if (word.starts_with(rows_stride_key)) {
      set_number(rows_stride_, rows_stride_key, "rows_stride", word);
    } else if (word == "+bias") {
      set(bias_, true, "bias", word);
    } else if (word.starts_with('+') && contains(activation_names, word.substr(1))) {
      set(activation_, parse_activation(word.substr(1)), "activation", word);
    } else if (word.front() >= '0' && word.front() <= '9') {
      set(pattern_, Pattern::parse(word), "pattern", word);
    } else {
      throw Error(ErrorCode::parse,
                  message("problem: unknown word {} in {}; the words are dtype ({}), layout ({}), B=n, "
                          "axbxcxd, operation ({}), mode ({}), cols_stride=n, rows_stride=n, +bias, "
                          "+activation ({})",
                          quoted(word), quoted(text_), listed(dtype_names), listed(layout_names),
                          listed(operation_names), listed(mode_names), listed(activation_names)));
    }
  }

  [[nodiscard]] Problem finish() const {
    Problem problem;
    problem.pattern = required(pattern_, "a pattern, as in 2x3x4x5");
    problem.batch = required(batch_, "a batch, as in B=64");
    problem.dtype = required(dtype_, "a dtype, as in f32");
    problem.layout = required(layout_, "a layout, batch_first or batch_last");
    problem.operation = operation_.value_or(problem.operation);
    problem.mode = mode_.value_or(problem.mode);
    problem.bias = bias_.value_or(problem.bias);
    problem.activation = activation_.value_or(problem.activation);
    problem.cols_stride = cols_stride_.value_or(problem.cols_stride);
    problem.rows_stride = rows_stride_.value_or(problem.rows_stride);
    problem.validate();
    return problem;
  }

 private:
  template <class T>
  void set(std::optional<T>& field, T value, std::string_view field_name, std::string_view word) const {
    if (field)
      throw Error(ErrorCode::parse, message("problem: {} in {} gives the {} a second time, allowed is one",
                                            quoted(word), quoted(text_), field_name));
    field = value;
  }

  void set_number(std::optional<std::int64_t>& field, std::string_view key, std::string_view field_name,
                  std::string_view word) const {
    set(field, parse_number(word.substr(key.size()), field_name, text_), field_name, word);
  }

  template <class T>
  T required(const std::optional<T>& field, std::string_view what) const {
    if (!field) throw Error(ErrorCode::parse, message("problem: {} lacks {}", quoted(text_), what));
    return *field;
  }

  std::string_view text_;
  std::optional<Pattern> pattern_;
  std::optional<std::int64_t> batch_;
  std::optional<DType> dtype_;
  std::optional<Layout> layout_;
  std::optional<Operation> operation_;
  std::optional<Mode> mode_;
  std::optional<bool> bias_;
  std::optional<Activation> activation_;
  std::optional<std::int64_t> cols_stride_;
  std::optional<std::int64_t> rows_stride_;
};

}  // namespace

std::string Problem::to_string() const {
  std::string text;
  if (operation != Operation::multiply) text += message("{} ", name(operation));
  text += name(dtype);
  if (mode != Mode::fp32) text += message(" {}", name(mode));
  text += message(" {} {}{} {}", name(layout), batch_key, batch, pattern.to_string());
  if (cols_stride != 0) text += message(" {}{}", cols_stride_key, cols_stride);
  if (rows_stride != 0) text += message(" {}{}", rows_stride_key, rows_stride);
  if (bias) text += " +bias";
  if (activation != Activation::none) text += message(" +{}", name(activation));
  return text;
}

Problem Problem::parse(std::string_view text) {
  constexpr std::string_view whitespace = " \t\n\r\f\v";
  Reader reader(text);
  std::size_t begin = text.find_first_not_of(whitespace);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(whitespace, begin), text.size());
    reader.read(text.substr(begin, end - begin));
    begin = text.find_first_not_of(whitespace, end);
  }
  return reader.finish();
}

std::string_view name(Layout layout) { return enum_name(layout, layout_names, "layout"); }
std::string_view name(Operation operation) { return enum_name(operation, operation_names, "operation"); }
std::string_view name(Activation activation) { return enum_name(activation, activation_names, "activation"); }
std::string_view name(Mode mode) { return enum_name(mode, mode_names, "mode"); }

Layout parse_layout(std::string_view text) { return parse_enum<Layout>(text, layout_names, "layout"); }
Operation parse_operation(std::string_view text) {
  return parse_enum<Operation>(text, operation_names, "operation");
}
Activation parse_activation(std::string_view text) {
  return parse_enum<Activation>(text, activation_names, "activation");
}
Mode parse_mode(std::string_view text) { return parse_enum<Mode>(text, mode_names, "mode"); }

}  // namespace kronsparse
