// The problems every implementation is asked to solve.
#pragma once

#include <cstdint>
#include <vector>

#include "kronsparse/problem.hpp"

namespace conformance {

/// A problem and the seed of its data and of where its operands lie.
struct Case {
  kronsparse::Problem problem;
  std::uint64_t seed;
};

/// The cases of one test: fixed sizes that meet every edge, each epilogue,
/// then pseudo-random sizes that differ from one (dtype, layout, operation) to
/// the next. `quick` keeps about a fifth.
[[nodiscard]] std::vector<Case> cases(kronsparse::DType dtype, kronsparse::Layout layout,
                                      kronsparse::Operation operation, bool quick);

/// A short list for tests that need only a few shapes: small, odd, wide d, long c.
[[nodiscard]] std::vector<kronsparse::Problem> sample_problems(kronsparse::DType dtype,
                                                               kronsparse::Layout layout,
                                                               kronsparse::Operation operation);

/// Some with work enough for every implementation to share it among threads: a
/// large batch of each of the above, and one of blocks too large for that.
[[nodiscard]] std::vector<kronsparse::Problem> threaded_problems(kronsparse::DType dtype,
                                                                 kronsparse::Layout layout,
                                                                 kronsparse::Operation operation);

/// Epilogues that a dtype and operation allow, "none" first.
struct Epilogue {
  bool bias;
  kronsparse::Activation activation;
};
[[nodiscard]] std::vector<Epilogue> epilogues(kronsparse::DType dtype, kronsparse::Operation operation);

}  // namespace conformance
