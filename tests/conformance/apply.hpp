// A product by one implementation, on operands as the oracle lays them out.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "data.hpp"
#include "harness.hpp"
#include "targets.hpp"

namespace conformance {

template <class T>
std::vector<WideOf<T>> apply(const Target& target, const kronsparse::Problem& problem,
                             const Data<WideOf<T>>& data) {
  const CrashNote note(test_reproduction());
  const auto device = make_test_device(target.device);
  Harness<T> harness(*device, problem, 0);
  harness.load(data);
  const kronsparse::Plan plan(problem, harness.values(), target.device, target.implementation);
  EXPECT_EQ(harness.run(plan), "") << problem.to_string();
  return harness.output();
}

/// The same problem for another operation.
inline kronsparse::Problem with(kronsparse::Problem problem, kronsparse::Operation operation) {
  problem.operation = operation;
  return problem;
}

}  // namespace conformance
