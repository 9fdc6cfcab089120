// Runs of one plan at the same time, and any number of threads inside a run,
// give the bits that one thread gives.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "cases.hpp"
#include "combination.hpp"
#include "data.hpp"
#include "harness.hpp"
#include "kept.hpp"
#include "targets.hpp"

namespace conformance {
namespace {

template <class T>
const Data<WideOf<T>>& kept_random_data(const kronsparse::Problem& problem, std::uint64_t seed) {
  return kept().get<Data<WideOf<T>>>(problem, seed, [&] { return random_data<T>(problem, seed); });
}

class Threads : public testing::TestWithParam<Combination> {
 protected:
  /// Calls test(type, problem) for every one of the problems that is not refused.
  template <class Test>
  static void for_each_problem(const std::vector<kronsparse::Problem>& problems, Test&& test) {
    for (const kronsparse::Problem& problem : problems) {
      if (!GetParam().target.refusal(problem).empty()) continue;
      SCOPED_TRACE(problem.to_string());
      const CrashNote note(test_reproduction());
      with_element_type(problem.dtype, [&](auto element) { test(element, problem); });
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(Threads, ConcurrentRunsOfOnePlan) {
  constexpr int kThreads = 4;
  const int rounds = options().quick ? 2 : 5;
  const auto& [target, dtype, layout, operation] = GetParam();
  const auto device = make_test_device(target.device);
  const auto problems = sample_problems(dtype, layout, operation);
  for_each_problem(problems, [&](auto element, const kronsparse::Problem& problem) {
    using T = typename decltype(element)::type;
    const auto& values = kept_random_data<T>(problem, 99).values;
    std::vector<std::unique_ptr<Harness<T>>> harnesses;
    std::vector<std::vector<unsigned char>> alone;
    std::unique_ptr<kronsparse::Plan> plan;
    for (int thread = 0; thread < kThreads; ++thread) {
      const auto seed = static_cast<std::uint64_t>(thread);
      harnesses.push_back(std::make_unique<Harness<T>>(*device, problem, seed));
      Data<WideOf<T>> data = kept_random_data<T>(problem, seed);
      data.values = values;
      harnesses.back()->load(data);
      if (plan == nullptr)
        plan = std::make_unique<kronsparse::Plan>(problem, harnesses.back()->values(),
                                                  GetParam().target.device, GetParam().target.implementation);
      ASSERT_EQ(harnesses.back()->run(*plan), "");
      alone.push_back(harnesses.back()->output_bytes());
    }
    for (int round = 0; round < rounds; ++round) {
      for (auto& harness : harnesses) harness->prepare_output();
      std::atomic<int> waiting{kThreads};
      std::vector<std::thread> threads;
      threads.reserve(kThreads);
      for (auto& harness : harnesses)
        threads.emplace_back([&] {
          --waiting;
          while (waiting.load() > 0) std::this_thread::yield();
          plan->run(harness->operands());
        });
      for (std::thread& thread : threads) thread.join();
      for (std::size_t thread = 0; thread < harnesses.size(); ++thread) {
        ASSERT_EQ(harnesses[thread]->collect_output(), "");
        ASSERT_TRUE(harnesses[thread]->output_bytes() == alone[thread]) << "thread " << thread;
      }
    }
  });
}

#if defined(_OPENMP)
TEST_P(Threads, AnyNumberGivesTheSameBits) {
  const auto& [target, dtype, layout, operation] = GetParam();
  if (target.device.backend != kronsparse::Backend::cpu) GTEST_SKIP() << "the host's threads take no part";
  const int before = omp_get_max_threads();
  const auto device = make_test_device(target.device);
  // The reference is slow enough to share the work of small problems, and too slow for large ones.
  const auto problems = target.implementation == "reference" ? sample_problems(dtype, layout, operation)
                                                             : threaded_problems(dtype, layout, operation);
  for_each_problem(problems, [&](auto element, const kronsparse::Problem& problem) {
    using T = typename decltype(element)::type;
    Harness<T> harness(*device, problem, 1);
    harness.load(kept_random_data<T>(problem, 1));
    const auto make_plan = [&] {
      return kronsparse::Plan(problem, harness.values(), GetParam().target.device,
                              GetParam().target.implementation);
    };
    omp_set_num_threads(1);
    const kronsparse::Plan planned_by_one = make_plan();
    ASSERT_EQ(harness.run(planned_by_one), "");
    const std::vector<unsigned char> one = harness.output_bytes();
    for (const int threads : options().quick ? std::vector{3} : std::vector{2, 3, 5, 8}) {
      omp_set_num_threads(threads);
      ASSERT_EQ(harness.run(planned_by_one), "");
      ASSERT_TRUE(harness.output_bytes() == one) << "planned by 1 thread, run by " << threads;
      const kronsparse::Plan planned_by_many = make_plan();
      ASSERT_EQ(harness.run(planned_by_many), "");
      ASSERT_TRUE(harness.output_bytes() == one) << "planned and run by " << threads;
      omp_set_num_threads(1);
      ASSERT_EQ(harness.run(planned_by_many), "");
      ASSERT_TRUE(harness.output_bytes() == one) << "planned by " << threads << ", run by 1 thread";
    }
  });
  omp_set_num_threads(before);
}
#endif

INSTANTIATE_TEST_SUITE_P(All, Threads, testing::ValuesIn(combinations()), combination_name);

}  // namespace
}  // namespace conformance
