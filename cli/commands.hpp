// The subcommands, one file each, and what they share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::cli {

class Arguments;
class Command;

/// The exit codes of the process; scripts rely on the numbers.
enum class ExitCode : int { ok = 0, wrong_result = 1, bad_input = 2, failure = 3 };

// Each adds its command to `arguments`; when the command was given, its callback
// sets `exit_code` or throws.
void add_info_command(Arguments& arguments, ExitCode& exit_code);
void add_run_command(Arguments& arguments, ExitCode& exit_code);
void add_check_command(Arguments& arguments, ExitCode& exit_code);
void add_bench_command(Arguments& arguments, ExitCode& exit_code);
void add_tune_command(Arguments& arguments, ExitCode& exit_code);
void add_profile_command(Arguments& arguments, ExitCode& exit_code);
void add_demo_command(Arguments& arguments, ExitCode& exit_code);

/// Problems named on the command line or in a file: the common half of `check`, `bench` and `tune`.
struct ProblemList {
  std::vector<std::string> texts;
  std::string file;

  void add_options(const Command& command);
  /// Parsed, in order. Errors name the file and line; an empty list is an error.
  [[nodiscard]] std::vector<Problem> problems() const;
};

/// --seed of a command: decimal digits, at most 2^64 - 1.
void add_seed_option(const Command& command, std::uint64_t& seed);

/// The text of --device. When it is empty, the best device present; if an
/// implementation is forced (by --impl or KRONSPARSE_IMPL), the best that has it.
[[nodiscard]] Device choose_device(const std::string& text, const std::string& implementation);
/// The help of that option in every command.
inline constexpr const char* device_help =
    "Device that computes: cpu, cuda:0, ... (default: the best present)";
/// The line of devices() for a device that is there.
[[nodiscard]] DeviceInfo describe(Device device);

/// Names to try: the one given (a name or a family), else every implementation
/// that accepts with `all` (for a chain those that take every factor, after the choice for each factor where
/// that is a mixture), else the chosen one, which has no name here.
[[nodiscard]] std::vector<std::string> choose_implementations(const Problem& problem, Device device,
                                                              const std::string& forced, bool all);

/// " --impl NAME" that makes the plan again: what was forced, or what was chosen where that has one name.
[[nodiscard]] std::string forcing(const Plan& plan, const std::string& forced);

/// A word that a shell reads back unchanged.
[[nodiscard]] std::string shell_quoted(std::string_view word);

}  // namespace kronsparse::cli
