// The words behind `kronsparse`, and what they set. CLI11 reads them; its headers take
// longer to compile than any command, so they are seen by arguments.cpp alone.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kronsparse::cli {

/// One option of a command, for what else there is to say of it.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  /// The name of its value in the help.
  Option& type_name(const std::string& name);
  Option& required();
  /// Not together with another option of the command that was added before.
  Option& excludes(const std::string& name);
  /// The help tells the value that the variable has now.
  Option& show_default();
  Option& between(int least, int most);
  /// A nan is not between any two numbers.
  Option& between(double least, double most);
  /// `refusal` says why a text is not taken, or nothing.
  Option& check(std::function<std::string(const std::string&)> refusal);

 private:
  CLI::Option* option_;
};

/// A command of the program, such as `check`. Variables live until it has run.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  /// For a Value std::string, std::vector<std::string>, std::uint64_t or double. Without dashes, `name` is
  /// of the words that belong to no option.
  template <class Value>
  Option option(const std::string& name, Value& value, const std::string& help) const;
  void flag(const std::string& name, bool& value, const std::string& help) const;
  /// The text at the end of the help.
  void footer(const std::string& text) const;
  /// Called when the command was given, after every variable is set.
  void callback(std::function<void()> run) const;

  [[nodiscard]] bool was_given(const std::string& option) const;

 private:
  CLI::App* app_;
};

/// The program.
class Arguments {
 public:
  Arguments(const std::string& description, const std::string& version, const std::string& footer);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  Command add_command(const std::string& name, const std::string& description);

  /// Runs the command that was given, or prints the help or version that was asked for. False when the
  /// arguments were wrong, as stderr then tells. Throws what the command throws.
  [[nodiscard]] bool run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace kronsparse::cli
