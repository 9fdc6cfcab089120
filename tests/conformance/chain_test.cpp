// Chains: the body over every implementation x dtype x layout x operation, and one plan and one PackedValues
// for many batches and threads.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "chain_body.hpp"
#include "chain_cases.hpp"
#include "chain_compare.hpp"
#include "combination.hpp"
#include "kronsparse/error.hpp"

namespace conformance {
namespace {

using kronsparse::Batch;
using kronsparse::Chain;
using kronsparse::Operation;
using kronsparse::PackedValues;
using kronsparse::Plan;
using kronsparse::Problem;

/// Those of single factors, and the choice of each device.
std::vector<Combination> chain_combinations() {
  std::vector<Target> everyone = targets();
  std::vector<kronsparse::Device> present;
  for (const Target& target : targets())
    if (present.empty() || !(present.back() == target.device)) present.push_back(target.device);
  for (const kronsparse::Device device : present) everyone.push_back({device, ""});
  std::vector<Combination> all;
  for (Combination combination : combinations_of({}))
    for (const Target& target : everyone) {
      combination.target = target;
      all.push_back(combination);
    }
  return all;
}

class Chains : public testing::TestWithParam<Combination> {};

TEST_P(Chains, EveryCase) {
  const auto& [target, dtype, layout, operation] = GetParam();
  const auto device = make_test_device(target.device);
  int run = 0;
  int wrong = 0;
  std::string refusal;
  for (const Case& item : chain_cases(dtype, layout, operation, options().quick)) {
    if (refusal = target.refusal(item.problem); !refusal.empty()) continue;
    ++run;
    const std::string failure = check_chain(*device, target, item.problem, item.seed);
    if (failure.empty()) continue;
    ADD_FAILURE() << target << ": " << item.problem.to_string() << "\n  " << failure;
    if (++wrong == 5) FAIL() << "five failures are enough";
  }
  if (run == 0) GTEST_SKIP() << target << " refuses all of these problems: " << refusal;
}

INSTANTIATE_TEST_SUITE_P(All, Chains, testing::ValuesIn(chain_combinations()), combination_name);

/// The list of cases must keep meeting what it was written for.
TEST(ChainCases, MeetEveryEdge) {
  using kronsparse::DType;
  using kronsparse::Layout;
  std::set<std::size_t> lengths;
  bool has_empty_batch = false;
  for (const Case& item : chain_cases(DType::f32, Layout::batch_first, Operation::gradient, false)) {
    EXPECT_NO_THROW(item.problem.validate()) << item.problem.to_string();
    lengths.insert(item.problem.chain.size());
    has_empty_batch |= item.problem.batch == 0;
  }
  EXPECT_EQ(lengths, (std::set<std::size_t>{1, 2, 3, 4}));
  EXPECT_TRUE(has_empty_batch);
}

/// One chain, and everything that runs it: in changing order, prepared and not.
class ChainBatches : public testing::TestWithParam<Combination> {
 protected:
  static constexpr std::int64_t kBatches[] = {5, 64, 1, 0, 33, 5, 17};

  static Problem problem_of(std::int64_t batch) {
    return {.chain = Chain{{1, 12, 8, 8}, {4, 16, 12, 1}, {1, 6, 5, 8}},
            .batch = batch,
            .dtype = GetParam().dtype,
            .layout = GetParam().layout,
            .operation = GetParam().operation};
  }

  /// Harnesses of all batches with the values of the first.
  template <class T>
  struct Runs {
    struct One {
      ChainHarness<T> harness;
      ChainOutcome<std::vector<WideOf<T>>> expected;
    };
    explicit Runs(const TestDevice& device) {
      const ChainData<WideOf<T>>& first = chain_answers_for<T>(problem_of(5), 1).integers;
      std::uint64_t seed = 20;
      for (const std::int64_t batch : kBatches) {
        const Problem problem = problem_of(batch);
        ChainData<WideOf<T>> data = chain_answers_for<T>(problem, 1).integers;
        data.values = first.values;
        all.push_back({ChainHarness<T>(device, problem, seed++), rounded(evaluate_chain(problem, data))});
        all.back().harness.load(data);
      }
    }
    static ChainOutcome<std::vector<WideOf<T>>> rounded(ChainOutcome<std::vector<WideOf<T>>> outcome) {
      const auto round = [](std::vector<WideOf<T>>& numbers) {
        for (auto& number : numbers) number = round_to(number, traits<T>.digits);
      };
      round(outcome.y);
      round(outcome.grad_x);
      for (auto& one : outcome.gradients) round(one);
      return outcome;
    }
    std::vector<One> all;
  };

  /// The result of f, or the other where the library says that no kernel reads the values as they are packed.
  template <class F, class Other>
  static std::string unless_unsupported(F&& f, Other&& other) {
    try {
      return f();
    } catch (const kronsparse::Error& error) {
      if (error.code() != kronsparse::ErrorCode::unsupported) throw;
    }
    return other();
  }
};

TEST_P(ChainBatches, OfOnePlanAndOnePackedValues) {
  const Target& target = GetParam().target;
  if (const std::string refusal = target.refusal(problem_of(5)); !refusal.empty()) GTEST_SKIP() << refusal;
  const auto device = make_test_device(target.device);
  const CrashNote note(test_reproduction());
  with_element_type(GetParam().dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    Runs<T> runs(*device);
    const auto values = runs.all.front().harness.values();
    Plan keeping(problem_of(5), values, target.device, target.implementation);
    const Plan plan(problem_of(5), target.device, target.implementation);
    PackedValues packed(plan);
    const bool first_has_room = packed.prepare(plan, runs.all.front().harness.batch(), values);
    const std::size_t first_bytes = packed.bytes();
    const std::size_t limit =
        std::max(3 * static_cast<std::size_t>(problem_of(5).chain.nnz()) * sizeof(T), first_bytes);
    for (const bool prepares : {false, true})
      for (auto& [harness, expected] : runs.all) {
        SCOPED_TRACE("batch " + std::to_string(harness.batch().size) + (prepares ? ", prepared" : ""));
        // Kept by the plan.
        const auto prepared_run = [&] {
          keeping.prepare(harness.batch(), values);
          return harness.run(keeping);
        };
        ASSERT_EQ(prepares ? prepared_run()
                           : unless_unsupported([&] { return harness.run(keeping); }, prepared_run),
                  "");
        EXPECT_EQ(compare_exactly(harness, expected), "");
        // Packed apart.
        const auto packed_run = [&] {
          const bool has_room = packed.prepare(plan, harness.batch(), values);
          return harness.run(plan, {.values = has_room ? nullptr : values.data(), .packed = &packed});
        };
        ASSERT_EQ(
            prepares || !first_has_room
                ? packed_run()
                : unless_unsupported([&] { return harness.run(plan, {.packed = &packed}); }, packed_run),
            "");
        EXPECT_EQ(compare_exactly(harness, expected), "");
        // Given to the run, packed or not.
        ASSERT_EQ(harness.run(plan, {.values = values.data(), .packed = &packed}), "");
        EXPECT_EQ(compare_exactly(harness, expected), "");
        ASSERT_EQ(harness.run(plan, {.values = values.data()}), "");
        EXPECT_EQ(compare_exactly(harness, expected), "");
        if (!target.implementation.empty()) continue;  // who is forced keeps whatever it reads
        EXPECT_LE(packed.bytes(), limit);
      }
  });
}

TEST_P(ChainBatches, FromSeveralThreads) {
  constexpr std::size_t kThreads = 4;
  const Target& target = GetParam().target;
  if (const std::string refusal = target.refusal(problem_of(5)); !refusal.empty()) GTEST_SKIP() << refusal;
  const auto device = make_test_device(target.device);
  const CrashNote note(test_reproduction());
  with_element_type(GetParam().dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    const Plan plan(problem_of(5), target.device, target.implementation);
    PackedValues packed(plan);
    std::vector<Runs<T>> runs;
    for (std::size_t thread = 0; thread < kThreads; ++thread) runs.emplace_back(*device);
    const auto values = runs.front().all.front().harness.values();
    std::vector<std::string> wrong(kThreads);
    std::atomic<std::size_t> waiting{kThreads};
    const auto work = [&](std::size_t thread) {
      auto& mine = runs[thread].all;
      for (std::size_t turn = 0; turn < mine.size() && wrong[thread].empty(); ++turn) {
        auto& [harness, expected] = mine[(turn + thread) % mine.size()];
        const bool is_ready = packed.is_ready(plan, harness.batch());
        const bool has_room = is_ready || packed.prepare(plan, harness.batch(), values);
        wrong[thread] = harness.run(
            plan, {.values = has_room && thread != 1 ? nullptr : values.data(), .packed = &packed});
        if (wrong[thread].empty()) wrong[thread] = compare_exactly(harness, expected);
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        --waiting;
        while (waiting.load() > 0) std::this_thread::yield();
        try {
          work(thread);
        } catch (const std::exception& error) {
          wrong[thread] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& one : wrong) EXPECT_EQ(one, "");
  });
}

INSTANTIATE_TEST_SUITE_P(All, ChainBatches, testing::ValuesIn(chain_combinations()), combination_name);

/// The product, its adjoint and its gradient read the same packed values.
class SharedValues : public testing::TestWithParam<Combination> {};

TEST_P(SharedValues, ServeEveryOperation) {
  const auto& [target, dtype, layout, ignored] = GetParam();
  const auto device = make_test_device(target.device);
  const Problem forward{.chain = Chain::monarch(48, 64, 8), .batch = 9, .dtype = dtype, .layout = layout};
  const CrashNote note(test_reproduction());
  with_element_type(dtype, [&, &target = target](auto element) {
    using T = typename decltype(element)::type;
    std::unique_ptr<PackedValues> packed;
    std::vector<std::vector<WideOf<T>>> values;
    for (int round = 0; round < 2; ++round)
      for (const Operation operation : {Operation::multiply, Operation::adjoint, Operation::gradient}) {
        Problem problem = forward;
        problem.operation = operation;
        if (!target.refusal(problem).empty()) continue;
        SCOPED_TRACE(problem.to_string());
        ChainData<WideOf<T>> data = chain_answers_for<T>(problem, 1).integers;
        // All three have the values of the gradient, whose sums are the longest.
        Problem strictest = forward;
        strictest.operation = Operation::gradient;
        if (values.empty()) values = make_chain_answers<T>(strictest, 1).integers.values;
        data.values = values;
        const Plan plan(problem, target.device, target.implementation);
        if (packed == nullptr) packed = std::make_unique<PackedValues>(plan);
        ChainHarness<T> harness(*device, problem, 3);
        harness.load(data);
        const bool has_room = packed->is_ready(plan, harness.batch()) ||
                              packed->prepare(plan, harness.batch(), harness.values());
        ASSERT_EQ(harness.run(
                      plan, {.values = has_room ? nullptr : harness.values().data(), .packed = packed.get()}),
                  "");
        auto expected = evaluate_chain(problem, data);
        const auto round_all = [](std::vector<WideOf<T>>& numbers) {
          for (auto& number : numbers) number = round_to(number, traits<T>.digits);
        };
        round_all(expected.y);
        round_all(expected.grad_x);
        for (auto& one : expected.gradients) round_all(one);
        EXPECT_EQ(compare_exactly(harness, expected), "");
      }
  });
}

std::vector<Combination> multiplications_of_chains() {
  std::vector<Combination> all;
  for (const Combination& item : chain_combinations())
    if (item.operation == Operation::multiply) all.push_back(item);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, SharedValues, testing::ValuesIn(multiplications_of_chains()), combination_name);

}  // namespace
}  // namespace conformance
