#include "arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace kronsparse::cli {
namespace {

/// The message for wrong arguments. CLI11 asks for a subcommand before it looks at words it does not know.
std::string usage_error(const CLI::App& app, const CLI::Error& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return error.what();
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  return fmt::format("'{}' is neither a command nor an option; the commands are {}", unknown.front(),
                     fmt::join(commands, ", "));
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::excludes(const std::string& name) {
  option_->excludes(name);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::between(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::between(double least, double most) {
  option_->check(CLI::Range(least, most));
  return check([least, most](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && !std::isnan(value)) return "";
    return fmt::format("'{}' given, must be a number from {} to {}", text, least, most);
  });
}

Option& Option::check(std::function<std::string(const std::string&)> refusal) {
  option_->check(
      CLI::Validator([refusal = std::move(refusal)](std::string& text) { return refusal(text); }, ""));
  return *this;
}

template <class Value>
Option Command::option(const std::string& name, Value& value, const std::string& help) const {
  return Option(*app_->add_option(name, value, help));
}
template Option Command::option(const std::string&, std::string&, const std::string&) const;
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Command::option(const std::string&, std::uint64_t&, const std::string&) const;
template Option Command::option(const std::string&, double&, const std::string&) const;

void Command::flag(const std::string& name, bool& value, const std::string& help) const {
  app_->add_flag(name, value, help);
}

void Command::footer(const std::string& text) const { app_->footer(text); }

void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

bool Command::was_given(const std::string& option) const { return app_->count(option) > 0; }

Arguments::Arguments(const std::string& description, const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, "kronsparse")) {
  app_->set_version_flag("--version", version, "Print the version and exit");
  app_->require_subcommand(1);
  app_->footer(footer);
  app_->failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format("kronsparse: {}\nRun kronsparse --help, or kronsparse COMMAND --help.\n",
                       usage_error(*failed, error));
  });
}

Arguments::~Arguments() = default;

Command Arguments::add_command(const std::string& name, const std::string& description) {
  return Command(*app_->add_subcommand(name, description));
}

bool Arguments::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0;
  }
}

}  // namespace kronsparse::cli
