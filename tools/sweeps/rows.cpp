#include "rows.hpp"

#include <algorithm>
#include <charconv>
#include <istream>
#include <ostream>
#include <string_view>

#include "core/message.hpp"
#include "core/text.hpp"
#include "kronsparse/error.hpp"

namespace kronsparse::sweep {
namespace {

constexpr std::string_view gpu_mark = "# gpu ";

[[noreturn]] void refuse(int line, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, message("rows: line {}: {}", line, what));
}

/// The fields of a line; a field may stand in double quotes.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> all(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"')
      is_quoted = !is_quoted;
    else if (c == ',' && !is_quoted)
      all.emplace_back();
    else if (c != '\r')
      all.back() += c;
  }
  return all;
}

double number_of(std::string_view text, int line) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !(value > 0))
    refuse(line, message("{} is not a time", quoted(text)));
  return value;
}

std::string gpu_line(const cuda::GpuFacts& facts) {
  return message("{}\"{}\",{},{},{},{},{},{},{},{}", gpu_mark, facts.name, facts.compute_capability,
                 facts.code.compute_capability, facts.multiprocessors, facts.memory_bytes, facts.shared_bytes,
                 facts.l2_bytes, facts.clock_hz, facts.memory_rate);
}

cuda::GpuFacts gpu_of(std::string_view text, int line) {
  const std::vector<std::string> fields = fields_of(text);
  if (fields.size() != 9) refuse(line, "a GPU has nine facts");
  const auto whole = [&](std::size_t at) { return static_cast<std::size_t>(number_of(fields[at], line)); };
  cuda::GpuFacts facts;
  facts.name = fields[0];
  facts.compute_capability = static_cast<int>(whole(1));
  facts.code = {.compute_capability = static_cast<int>(whole(2)), .kind = whole(2) == 90 ? 'a' : ' '};
  facts.multiprocessors = static_cast<int>(whole(3));
  facts.memory_bytes = whole(4);
  facts.shared_bytes = whole(5);
  facts.l2_bytes = whole(6);
  facts.clock_hz = number_of(fields[7], line);
  facts.memory_rate = number_of(fields[8], line);
  return facts;
}

}  // namespace

cuda::GpuFacts h200_facts() {
  cuda::GpuFacts facts;
  facts.name = "NVIDIA H200";
  facts.compute_capability = 90;
  facts.code = {.compute_capability = 90, .kind = 'a'};
  facts.multiprocessors = 132;
  facts.memory_bytes = std::size_t{140} << 30;
  facts.shared_bytes = 227 << 10;
  facts.l2_bytes = std::size_t{50} << 20;
  facts.clock_hz = 1.98e9;
  facts.memory_rate = 4.26e12;
  return facts;
}

void write_header(std::ostream& out, const Subject& subject, const cuda::GpuFacts& facts) {
  out << gpu_line(facts) << "\nproblem," << subject.columns << ",predicted_us,measured_us\n";
}

void write_row(std::ostream& out, const Problem& problem, const std::string& label, double predicted_seconds,
               double measured_seconds) {
  out << message("\"{}\",{},{:.3f},{:.3f}\n", problem.to_string(), label, predicted_seconds * 1e6,
                 measured_seconds * 1e6);
}

Rows read_rows(std::istream& in, const Subject& subject) {
  Rows all{.facts = h200_facts(), .problems = {}, .rows = {}};
  const std::size_t label_fields = fields_of(subject.columns).size();
  std::vector<std::string> names;
  bool has_header = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.starts_with(gpu_mark))
      all.facts = gpu_of(std::string_view(line).substr(gpu_mark.size()), number);
    if (line.empty() || line.starts_with('#')) continue;
    const std::vector<std::string> fields = fields_of(line);
    if (!has_header) {
      if (!line.starts_with("problem," + std::string(subject.columns) + ","))
        refuse(number, message("the columns of {} are problem,{},predicted_us,measured_us; here {}",
                               subject.name, subject.columns, quoted(line)));
      has_header = true;
      continue;
    }
    if (fields.size() < label_fields + 3) refuse(number, "has too few fields");
    if (std::ranges::find(names, fields[0]) == names.end()) {
      names.push_back(fields[0]);
      all.problems.push_back(Problem::parse(fields[0]));
    }
    const auto problem = static_cast<std::size_t>(std::ranges::find(names, fields[0]) - names.begin());
    const std::vector<std::string> label(fields.begin() + 1,
                                         fields.begin() + 1 + static_cast<std::ptrdiff_t>(label_fields));
    all.rows.push_back({problem, joined(label, ","), 1e-6 * number_of(fields[label_fields + 2], number)});
  }
  if (all.rows.empty()) throw Error(ErrorCode::invalid_argument, "rows: there are none");
  return all;
}

}  // namespace kronsparse::sweep
