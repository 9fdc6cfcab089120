// Measuring who is fastest, instead of predicting it.
//
// A plan takes the implementation with the least predicted seconds. tune() runs those that accept a problem
// on the device, and remembers what they took: for this process, and for the user in
// $XDG_CACHE_HOME/kronsparse/tuning (or ~/.cache, or KRONSPARSE_CACHE_DIR; empty: nowhere). Plans that decide
// for the same problem on the same device, with the same version of the library, then take the one that was
// fastest. A folder that cannot be written is no error, and a damaged file is ignored, with a line on stderr.
//
// With the variable KRONSPARSE_TUNE=k, making or preparing a plan, and asking for its workspace, measures the
// k best predictions of each problem that was not measured yet. Plan::run measures nothing, nor does anything
// while the stream of the call, or one that the default stream would wait for, records a CUDA graph.
#pragma once

#include <string>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/export.h"
#include "kronsparse/problem.hpp"

namespace kronsparse {

/// How tune() measures.
struct TuneOptions {
  int most = 0;           ///< implementations of each problem, the best predictions; 0: all that accept
  double seconds = 0.05;  ///< to measure each of them for, at least
  bool keeps = true;      ///< in the user's file, too; else in this process alone
  bool again = true;      ///< also what was measured before
};

/// One implementation, measured.
struct Measurement {
  Problem problem;  ///< one step of the problem that was tuned, or all of its chain in one pass
  std::string implementation;
  double seconds = 0;            ///< of a run, values being packed
  double packing_seconds = 0;    ///< of packing them
  double predicted_seconds = 0;  ///< by the cost model
};

/// Measures the implementations that accept the problem: for a chain those of each step that `steps_of`
/// lists, and those that compute all of it in one pass. Each problem's fastest comes first. Operands are made
/// for it, as often as it takes to exceed a GPU's cache. What is predicted to take ten times as long as the
/// fastest so far is left out. KRONSPARSE_IMPL has no say.
///
///     using namespace kronsparse;
///     const Problem problem = Problem::parse("f32 batch_first B=16 2x8x8x4");
///     const auto times = tune(problem, {}, {.seconds = 1e-3, .keeps = false});
///     assert(times.front().seconds > 0);
///     assert(candidates(problem).front().implementation == times.front().implementation);
///     assert(candidates(problem).front().is_measured);
KRONSPARSE_API std::vector<Measurement> tune(const Problem& problem, Device device = {},
                                             const TuneOptions& options = {});

/// The file that keeps the times of a device; empty where KRONSPARSE_CACHE_DIR is.
///
///     assert(kronsparse::tuning_file({}) == kronsparse::tuning_file({}));
[[nodiscard]] KRONSPARSE_API std::string tuning_file(Device device = {});

/// While one lives, KRONSPARSE_TUNE has no say in its thread: for code that knows of a recording stream that
/// the library is not told of.
///
///     const kronsparse::TuningPause pause;  // no plan that is made here measures anything
class KRONSPARSE_API TuningPause {
 public:
  TuningPause() noexcept;
  ~TuningPause();
  TuningPause(const TuningPause&) = delete;
  TuningPause& operator=(const TuningPause&) = delete;
};

}  // namespace kronsparse
