// Runs the executable as a script would: arguments in, exit code and streams out.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "npy.hpp"

namespace kronsparse::cli {

struct CommandResult {
  int exit_code;
  std::string out;
  std::string err;
};

/// A directory of its own, removed afterwards, that commands run in.
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kronsparse-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::filesystem::path path(const std::string& name) const { return directory_ / name; }

  /// `arguments` are shell words; `environment` stands before the command.
  [[nodiscard]] CommandResult run(const std::string& arguments, const std::string& environment = "") const {
    const int exit_code = exit_code_of(arguments + " >.stdout 2>.stderr </dev/null", environment);
    CommandResult result{exit_code, read(".stdout"), read(".stderr")};
    std::filesystem::remove(path(".stdout"));
    std::filesystem::remove(path(".stderr"));
    return result;
  }

  /// The same with streams left to `arguments`; -1 when a signal ended the command.
  [[nodiscard]] int exit_code_of(const std::string& arguments, const std::string& environment = "") const {
    // In a sanitizer build the search for leaks takes seconds a process; tests in this process do it once.
    const std::string no_leak_search = "ASAN_OPTIONS=\"${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0\" ";
    const std::string line = "cd '" + directory_.string() + "' && " + no_leak_search + environment +
                             " '" KRONSPARSE_COMMAND "' " + arguments;
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }

  template <class T>
  void save(const std::string& name, NpyType type, std::vector<std::int64_t> shape,
            const std::vector<T>& data) const {
    save_npy(path(name), type, shape, std::as_bytes(std::span(data)));
  }

  template <class T>
  [[nodiscard]] std::vector<T> elements(const std::string& name) const {
    const NpyArray array = load_npy(path(name));
    std::vector<T> out(array.data.size() / sizeof(T));
    std::copy(array.data.begin(), array.data.end(), std::as_writable_bytes(std::span(out)).begin());
    return out;
  }

  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator entries(directory_);
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace kronsparse::cli
