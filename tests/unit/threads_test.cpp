// How many threads a piece of work gets.
#include "cpu/threads.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

/// Makes a plan and runs it, on zeros.
void multiply_once(const Problem& problem, std::string_view implementation) {
  const auto elements = [&](std::int64_t features) {
    return std::vector<float>(static_cast<std::size_t>(features * problem.batch));
  };
  const std::vector<float> values(static_cast<std::size_t>(problem.pattern.nnz()));
  const std::vector<float> x = elements(problem.pattern.cols());
  std::vector<float> y = elements(problem.pattern.rows());
  Plan(problem, values.data(), {}, implementation).run({.x = x.data(), .y = y.data()});
}

std::set<std::string> threads_of_this_process() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    names.insert(entry.path().filename());
  return names;
}

/// Whether a thread's first product starts threads.
bool starts_threads(const Problem& problem, std::string_view implementation) {
  bool started = false;
  std::thread([&] {
    const std::set<std::string> before = threads_of_this_process();
    multiply_once(problem, implementation);
    started = !std::ranges::includes(before, threads_of_this_process());
  }).join();
  return started;
}

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
  if (!std::filesystem::exists("/proc/self/task")) GTEST_SKIP() << "no /proc/self/task here";
  const Problem small = Problem::parse("f32 batch_first B=7 2x3x4x5");
  const Problem large = Problem::parse("f32 batch_first B=512 4x32x32x4");
  for (const Candidate& candidate : candidates(small)) {
    if (!candidate.refusal.empty()) continue;
    EXPECT_FALSE(starts_threads(small, candidate.implementation)) << candidate.implementation;
    EXPECT_EQ(starts_threads(large, candidate.implementation), thread_count() > 1)
        << candidate.implementation;
  }
}

/// Whether a child forked now can compute; one that hangs is ended by its alarm.
bool child_multiplies(const Problem& problem, std::string_view implementation) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    multiply_once(problem, implementation);
    _exit(thread_count() == 1 ? 0 : 1);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Threads, AForkedChildComputesAlone) {
  const Problem problem = Problem::parse("f32 batch_first B=512 4x32x32x4");
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty()) continue;
    multiply_once(problem, candidate.implementation);  // the parent's threads are there now
    EXPECT_TRUE(child_multiplies(problem, candidate.implementation)) << candidate.implementation;
  }
}

}  // namespace
}  // namespace kronsparse
