#include "targets.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>

#include "device.hpp"
#include "kronsparse/error.hpp"
#include "kronsparse/plan.hpp"

// There in a sanitized build only: sanitizers end the process without a signal.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace conformance {
namespace {

std::string program_name = "kronsparse_conformance_tests";

// Written by the thread that starts a problem, read by a signal handler: a
// plain array, cut at its size.
std::array<char, 1024> crash_text{};

constexpr std::array kFatalSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
std::array<struct sigaction, kFatalSignals.size()> previous_actions{};

void print_crash_note() {
  constexpr std::string_view kIntroduction = "\ncrashed while running:\n  ";
  if (crash_text[0] != 0) {
    [[maybe_unused]] auto written = write(STDERR_FILENO, kIntroduction.data(), kIntroduction.size());
    written = write(STDERR_FILENO, crash_text.data(), std::strlen(crash_text.data()));
    written = write(STDERR_FILENO, "\n", 1);
  }
}

void handle_fatal_signal(int signal) {
  print_crash_note();
  // Back to what was there before (a sanitizer's report, or the default), which
  // the repeated instruction or raise() then meets.
  for (std::size_t index = 0; index < kFatalSignals.size(); ++index)
    if (kFatalSignals[index] == signal) sigaction(signal, &previous_actions[index], nullptr);
  if (signal == SIGABRT) raise(signal);
}

}  // namespace

std::string Target::label() const {
  std::string text = device.to_string() + "_" + (implementation.empty() ? "chosen" : implementation);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return text;
}

std::string Target::refusal(const kronsparse::Problem& problem) const {
  if (implementation.empty()) return {};  // somebody takes everything
  if (problem.chain.size() > 1) {
    if (takes_whole(problem)) return {};
    for (const kronsparse::Problem& step : kronsparse::steps_of(problem))
      if (std::string step_refusal = refusal(step); !step_refusal.empty())
        return step.to_string() + ": " + step_refusal;
    return {};
  }
  for (const kronsparse::Candidate& candidate : kronsparse::candidates(problem, device))
    if (candidate.implementation == implementation) return candidate.refusal;
  return "not among the candidates";
}

bool Target::takes_whole(const kronsparse::Problem& problem) const {
  if (problem.chain.size() == 1) return false;
  const std::vector<kronsparse::Candidate> all = kronsparse::candidates(problem, device);
  return std::any_of(all.begin(), all.end(), [&](const kronsparse::Candidate& candidate) {
    return candidate.implementation == implementation && candidate.refusal.empty();
  });
}

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << (target.implementation.empty() ? "what is chosen" : target.implementation) << " on "
             << target.device.to_string();
}

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const kronsparse::DeviceInfo& info : kronsparse::devices()) {
    if (make_test_device(info.device) == nullptr) continue;
    for (const kronsparse::ImplementationInfo& implementation : kronsparse::implementations())
      if (implementation.backend == info.device.backend) all.push_back({info.device, implementation.name});
  }
  return all;
}

Options& options() {
  static Options instance = [] {
    Options defaults;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // gcc
    defaults.quick = true;
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    defaults.quick = true;
#endif
#endif
    return defaults;
  }();
  return instance;
}

void read_options(int& argc, char** argv) {
  if (argc > 0) program_name = argv[0];
  int kept = 0;
  for (int index = 0; index < argc; ++index) {
    const std::string_view argument = argv[index];
    const auto value_of = [argument](std::string_view flag) -> std::optional<std::string_view> {
      if (!argument.starts_with(flag)) return std::nullopt;
      return argument.substr(flag.size());
    };
    if (argument == "--quick") {
      options().quick = true;
    } else if (argument == "--large") {
      options().large = true;
    } else if (argument == "--full") {
      options().quick = false;
    } else if (auto problem = value_of("--problem=")) {
      options().problem = kronsparse::Problem::parse(*problem);
    } else if (auto device = value_of("--device=")) {
      options().target.device = kronsparse::Device::parse(*device);
    } else if (auto implementation = value_of("--impl=")) {
      options().target.implementation = *implementation;
    } else if (auto seed = value_of("--seed=")) {
      const auto result = std::from_chars(seed->data(), seed->data() + seed->size(), options().seed);
      if (result.ec != std::errc{} || result.ptr != seed->data() + seed->size())
        throw kronsparse::Error(kronsparse::ErrorCode::parse,
                                "--seed must be a number, not '" + std::string(*seed) + "'");
    } else {
      argv[kept++] = argv[index];
    }
  }
  argc = kept;
  argv[argc] = nullptr;
}

std::string reproduction(const Target& target, const kronsparse::Problem& problem, std::uint64_t seed) {
  return program_name + " --problem='" + problem.to_string() + "' --device=" + target.device.to_string() +
         " --impl=" + target.implementation + " --seed=" + std::to_string(seed);
}

std::string test_reproduction() {
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  return program_name + " --gtest_filter='" + test->test_suite_name() + "." + test->name() + "'";
}

CrashNote::CrashNote(const std::string& command) {
  const std::size_t length = std::min(command.size(), crash_text.size() - 1);
  std::copy_n(command.begin(), length, crash_text.begin());
  crash_text[length] = 0;
}

CrashNote::~CrashNote() { crash_text[0] = 0; }

void install_crash_note() {
  struct sigaction action {};
  action.sa_handler = handle_fatal_signal;
  for (std::size_t index = 0; index < kFatalSignals.size(); ++index)
    sigaction(kFatalSignals[index], &action, &previous_actions[index]);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_crash_note);
}

}  // namespace conformance
