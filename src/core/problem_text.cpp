// The text form of a problem and of its enumerations.

#include <algorithm>
#include <array>
#include <utility>

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
      set(problem_.dtype, parse_dtype(word), Field::dtype, word);
    } else if (contains(layout_names, word)) {
      set(problem_.layout, parse_layout(word), Field::layout, word);
    } else if (contains(operation_names, word)) {
      set(problem_.operation, parse_operation(word), Field::operation, word);
    } else if (contains(mode_names, word)) {
      set(problem_.mode, parse_mode(word), Field::mode, word);
    } else if (word.starts_with(batch_key)) {
      set_number(problem_.batch, batch_key, Field::batch, word);
    } else if (word.starts_with(cols_stride_key)) {
      set_number(problem_.cols_stride, cols_stride_key, Field::cols_stride, word);
    } else if (word.starts_with(rows_stride_key)) {
      set_number(problem_.rows_stride, rows_stride_key, Field::rows_stride, word);
    } else if (word == "+bias") {
      set(problem_.bias, true, Field::bias, word);
    } else if (word.starts_with('+') && contains(activation_names, word.substr(1))) {
      set(problem_.activation, parse_activation(word.substr(1)), Field::activation, word);
    } else if (word.front() >= '0' && word.front() <= '9') {
      set(problem_.chain, Chain::parse(word), Field::chain, word);
    } else {
      throw Error(
          ErrorCode::parse,
          message("problem: unknown word {} in {}; the words are dtype ({}), layout ({}), B=n, "
                  "axbxcxd or several of them joined by '*', operation ({}), mode ({}), cols_stride=n, "
                  "rows_stride=n, +bias, +activation ({})",
                  quoted(word), quoted(text_), listed(dtype_names), listed(layout_names),
                  listed(operation_names), listed(mode_names), listed(activation_names)));
    }
  }

  [[nodiscard]] Problem finish() && {
    require(Field::chain, "a pattern, as in 2x3x4x5");
    require(Field::batch, "a batch, as in B=64");
    require(Field::dtype, "a dtype, as in f32");
    require(Field::layout, "a layout, batch_first or batch_last");
    problem_.validate();
    return std::move(problem_);
  }

 private:
  enum class Field : std::uint8_t {
    chain,
    batch,
    dtype,
    layout,
    operation,
    mode,
    bias,
    activation,
    cols_stride,
    rows_stride
  };
  static constexpr std::array<std::string_view, 10> field_names = {
      "chain", "batch", "dtype",      "layout",      "operation",
      "mode",  "bias",  "activation", "cols_stride", "rows_stride"};

  template <class T>
  void set(T& field, T value, Field which, std::string_view word) {
    if (is_set(which))
      throw Error(ErrorCode::parse,
                  message("problem: {} in {} gives the {} a second time, allowed is one", quoted(word),
                          quoted(text_), field_names[static_cast<std::size_t>(which)]));
    field = std::move(value);
    seen_ |= bit(which);
  }

  void set_number(std::int64_t& field, std::string_view key, Field which, std::string_view word) {
    const std::string_view name = field_names[static_cast<std::size_t>(which)];
    set(field, parse_number(word.substr(key.size()), name, text_), which, word);
  }

  static constexpr unsigned bit(Field which) { return 1U << static_cast<unsigned>(which); }
  [[nodiscard]] bool is_set(Field which) const { return (seen_ & bit(which)) != 0; }
  void require(Field which, std::string_view what) const {
    if (!is_set(which)) throw Error(ErrorCode::parse, message("problem: {} lacks {}", quoted(text_), what));
  }

  std::string_view text_;
  Problem problem_;
  unsigned seen_ = 0;  ///< a bit for each field
};

}  // namespace

std::string Problem::to_string() const {
  std::string text;
  if (operation != Operation::multiply) text += message("{} ", name(operation));
  text += name(dtype);
  if (mode != Mode::fp32) text += message(" {}", name(mode));
  text += message(" {} {}{} {}", name(layout), batch_key, batch, chain.to_string());
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
  return std::move(reader).finish();
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
