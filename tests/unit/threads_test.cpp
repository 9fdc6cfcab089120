// How many threads a piece of work gets, and which runs start some.
#include "cpu/threads.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "child.hpp"
#include "cpu/thread_pool.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// Makes a plan and runs it; whether every answer is right.
bool multiplies(const Problem& problem, std::string_view implementation) {
  const auto elements = [&](std::int64_t features, float value) {
    return std::vector<float>(static_cast<std::size_t>(features * problem.batch), value);
  };
  const std::vector<float> values(static_cast<std::size_t>(problem.pattern().nnz()), 1);
  const std::vector<float> x = elements(problem.pattern().cols(), 1);
  std::vector<float> y = elements(problem.pattern().rows(), 0);
  Plan(problem, values.data(), {}, implementation).run({.x = x.data(), .y = y.data()});
  return y == elements(problem.pattern().rows(), static_cast<float>(problem.pattern().c));
}

std::vector<std::string> accepting(const Problem& problem) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates(problem))
    if (candidate.refusal.empty()) names.push_back(candidate.implementation);
  return names;
}

const Problem small = Problem::parse("f32 batch_first B=7 2x3x4x5");
const Problem large = Problem::parse("f32 batch_first B=512 4x32x32x4");

TEST(Threads, AllOrOneWhicheverIsFaster) {
  EXPECT_EQ(threads_for(0), 1);
  EXPECT_EQ(threads_for(1e-6), 1);
  EXPECT_EQ(threads_for(1), thread_count());
  EXPECT_EQ(seconds_on_threads(1e-6), 1e-6);
  double seconds = 1e-7;
  for (int step = 0; step < 40; ++step, seconds *= 1.5) {
    EXPECT_LE(seconds_on_threads(seconds), seconds);
    EXPECT_LT(seconds_on_threads(seconds), seconds_on_threads(1.5 * seconds));
  }
}

TEST(Threads, ASmallProductStartsNone) {
  for (const std::string& implementation : accepting(small)) {
    EXPECT_TRUE(holds_in_child([&] { return multiplies(small, implementation) && helper_count() == 0; }))
        << implementation;
  }
  for (const std::string& implementation : accepting(large)) {
    EXPECT_TRUE(holds_in_child([&] {
      return multiplies(large, implementation) && helper_count() == thread_count() - 1;
    })) << implementation;
  }
}

TEST(Threads, AForkedChildHasAsManyAgain) {
  const int threads = thread_count();
  for (const std::string& implementation : accepting(large)) {
    EXPECT_TRUE(multiplies(large, implementation));  // the parent's threads are there now
    EXPECT_TRUE(holds_in_child([&] {
      return helper_count() == 0 && thread_count() == threads && multiplies(large, implementation) &&
             helper_count() == threads - 1 &&
             holds_in_child([&] { return multiplies(large, implementation); });
    })) << implementation;
    EXPECT_TRUE(multiplies(large, implementation));
  }
}

}  // namespace
}  // namespace kronsparse
