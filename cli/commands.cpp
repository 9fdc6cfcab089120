#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "arguments.hpp"
#include "files.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view white = " \t\r\v\f";
  const std::size_t begin = text.find_first_not_of(white);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(white) - begin + 1);
}

/// By its name, or as the family before a dash.
bool has_implementation(Backend backend, std::string_view name_or_family) {
  const std::vector<ImplementationInfo> all = implementations();
  return std::any_of(all.begin(), all.end(), [&](const ImplementationInfo& info) {
    return info.backend == backend &&
           (info.name == name_or_family || info.name.starts_with(std::string(name_or_family) + "-"));
  });
}

}  // namespace

void ProblemList::add_options(const Command& command) {
  command.option(
      "problem", texts,
      "Problems in quotes, such as \"f32 batch_first B=64 4x64x64x16\": dtype, layout, B=batch, and a\n"
      "pattern axbxcxd or several joined by '*'. May also have an operation (transposed, adjoint,\n"
      "gradient), a mode (ieee, tf32), +bias, +relu|+gelu|+gelu_tanh|+silu, cols_stride=n,\n"
      "rows_stride=n");
  command.option("--file", file, "File with problems, one a line; '#' starts a comment").type_name("FILE");
}

std::vector<Problem> ProblemList::problems() const {
  std::vector<Problem> list;
  for (const std::string& text : texts) list.push_back(Problem::parse(text));
  if (!file.empty()) {
    const std::string content = read_text(file);
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < content.size();) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view whole = std::string_view(content).substr(begin, end - begin);
      const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
      ++number;
      begin = end + 1;
      if (line.empty()) continue;
      try {
        list.push_back(Problem::parse(line));
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}:{}: {}", file, number, error.what()));
      }
    }
  }
  if (list.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        file.empty()
            ? "no problem was given; name one, e.g. \"f32 batch_first B=64 4x64x64x16\", or use --file"
            : fmt::format("{}: holds no problem", file));
  }
  return list;
}

void add_seed_option(const Command& command, std::uint64_t& seed) {
  // CLI11 itself takes -1 for 2^64 - 1, and the largest number for those beyond it.
  const auto refuse = [](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stopped == end) return "";
    return fmt::format("'{}' given, must be a whole number from 0 to 18446744073709551615", text);
  };
  command.option("--seed", seed, "Seed of the random data, a whole number").check(refuse).show_default();
}

Device choose_device(const std::string& text, const std::string& implementation) {
  if (!text.empty()) return Device::parse(text);
  const char* variable = std::getenv("KRONSPARSE_IMPL");
  const std::string forced = !implementation.empty() ? implementation : variable == nullptr ? "" : variable;
  const std::vector<DeviceInfo> present = devices();
  Device best;
  for (const DeviceInfo& info : present) {
    if (!info.is_cpu_again) best = info.device;  // the last is the best
  }
  // A name that nobody has is unknown there too, which its error will say.
  for (const DeviceInfo& info : present) {
    if (!forced.empty() && has_implementation(info.device.backend, forced)) best = info.device;
  }
  return best;
}

DeviceInfo describe(Device device) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == device) return info;
  }
  throw Error(ErrorCode::device,
              fmt::format("device: {} cannot be used, {}", device.to_string(), why_unusable(device)));
}

std::vector<std::string> choose_implementations(const Problem& problem, Device device,
                                                const std::string& forced, bool all) {
  if (!forced.empty() || !all) return {forced};
  // Everyone who takes the chain in one pass or all of its steps, and the choice where that is not one for
  // all.
  std::vector<std::string> names;
  if (problem.chain.size() > 1)
    for (const Candidate& candidate : candidates(problem, device))
      if (candidate.refusal.empty()) names.push_back(candidate.implementation);
  const bool has_whole = !names.empty();
  const std::vector<Problem> steps = steps_of(problem);
  for (const Candidate& candidate : candidates(steps.front(), device)) {
    const auto takes = [&](const Problem& step) {
      const std::vector<Candidate> all_of_step = candidates(step, device);
      return std::any_of(all_of_step.begin(), all_of_step.end(), [&](const Candidate& other) {
        return other.implementation == candidate.implementation && other.refusal.empty();
      });
    };
    if (std::all_of(steps.begin(), steps.end(), takes)) names.push_back(candidate.implementation);
  }
  const std::string first = candidates(steps.front(), device).front().implementation;
  const bool is_mixed = std::any_of(steps.begin(), steps.end(), [&](const Problem& step) {
    return candidates(step, device).front().implementation != first;
  });
  if (names.empty() || is_mixed || has_whole)
    names.emplace(names.begin());  // where nobody takes it, its plan says why
  return names;
}

std::string forcing(const Plan& plan, const std::string& forced) {
  if (!forced.empty()) return " --impl " + forced;
  return plan.problem().chain.size() == 1 ? " --impl " + plan.implementation() : "";
}

std::string shell_quoted(std::string_view word) {
  std::string out = "'";
  for (const char character : word) {
    if (character == '\'') {
      out += "'\\''";
    } else {
      out += character;
    }
  }
  return out + "'";
}

}  // namespace kronsparse::cli
