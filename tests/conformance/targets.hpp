// Who is tested (every implementation of every device that is present), with
// which options, and how a failure says how to see it again.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/problem.hpp"

namespace conformance {

/// An implementation on a device; without a name, what is chosen for each factor.
struct Target {
  kronsparse::Device device;
  std::string implementation;

  /// "cpu_simd_avx2", fit for a GoogleTest name.
  [[nodiscard]] std::string label() const;
  /// Why it does not take the problem, or a step of its chain; empty when it does.
  [[nodiscard]] std::string refusal(const kronsparse::Problem& problem) const;
  /// Whether it computes a chain in one pass.
  [[nodiscard]] bool takes_whole(const kronsparse::Problem& problem) const;
};
std::ostream& operator<<(std::ostream& out, const Target& target);

/// Asked of the library at run time: a new entry of its table is tested by itself.
[[nodiscard]] std::vector<Target> targets();

/// Command line of the test program, besides GoogleTest's own.
struct Options {
  bool quick = false;                          ///< a part of the cases, for slow (sanitized, emulated) runs
  bool large = false;                          ///< also what takes minutes
  std::optional<kronsparse::Problem> problem;  ///< run only this one, by `target`, with `seed`
  Target target;
  std::uint64_t seed = 0;
};
[[nodiscard]] Options& options();
/// Takes what is ours out of argv; throws kronsparse::Error for what cannot be read.
void read_options(int& argc, char** argv);

/// The command that runs one problem of the conformance body again.
[[nodiscard]] std::string reproduction(const Target& target, const kronsparse::Problem& problem,
                                       std::uint64_t seed);

/// The command that runs the current GoogleTest test again.
[[nodiscard]] std::string test_reproduction();

/// While it lives, a crash first prints the command that shows it again.
class CrashNote {
 public:
  explicit CrashNote(const std::string& command);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;
  CrashNote& operator=(const CrashNote&) = delete;
};
/// Called once, first thing in main.
void install_crash_note();

}  // namespace conformance
