// Ranking, forcing and refusal: on a made-up table, then on the real one.
#include "core/choice.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/decision.hpp"
#include "expect_error.hpp"

namespace kronsparse {
namespace {

template <int Seconds>
Proposal accept(const Problem&, Device, const PackedOrder*) {
  return {.seconds = Seconds};
}
Proposal refuse_odd(const Problem& problem, Device, const PackedOrder*) {
  return problem.batch % 2 == 0 ? Proposal{.seconds = 2} : Proposal{.refusal = "odd batch"};
}
Proposal refuse_all(const Problem&, Device, const PackedOrder*) { return {.refusal = "needs a unicorn"}; }

constexpr std::array<Implementation, 5> table = {{
    {"fast-narrow", Backend::cpu, "", refuse_all},
    {"fast-even", Backend::cpu, "", refuse_odd},
    {"fast-wide", Backend::cpu, "", accept<3>},
    {"faster", Backend::cpu, "", accept<3>},
    {"plain", Backend::cpu, "", accept<9>},
}};
const Problem even = Problem::parse("f32 batch_first B=8 1x2x3x4");
const Problem odd = Problem::parse("f32 batch_first B=7 1x2x3x4");

std::string_view chosen(const Problem& problem, std::string_view forced) {
  return accepted_from(table, problem, {}, {forced}).front().implementation->name;
}

std::vector<std::string> order(const Problem& problem) {
  std::vector<std::string> names;
  for (const Assessment& assessment : assess(table, problem, {}))
    names.emplace_back(assessment.implementation->name);
  return names;
}

TEST(Choice, AcceptingOnesByCostThenRefusingOnesInTableOrder) {
  EXPECT_EQ(order(even),
            (std::vector<std::string>{"fast-even", "fast-wide", "faster", "plain", "fast-narrow"}));
  EXPECT_EQ(order(odd),
            (std::vector<std::string>{"fast-wide", "faster", "plain", "fast-narrow", "fast-even"}));
  EXPECT_EQ(assess(table, odd, {}).back().proposal.refusal, "odd batch");
}

TEST(Choice, CheapestUnlessForced) {
  EXPECT_EQ(chosen(even, ""), "fast-even");
  EXPECT_EQ(chosen(odd, ""), "fast-wide");
  EXPECT_EQ(chosen(even, "plain"), "plain");
  EXPECT_EQ(chosen(even, "fast-wide"), "fast-wide");
  EXPECT_EQ(chosen(even, "fast"), "fast-even");  // the family's best, and not "faster"
  EXPECT_EQ(chosen(odd, "fast"), "fast-wide");
}

TEST(Choice, AForcedOneThatRefusesSaysWhy) {
  expect_error(
      ErrorCode::unsupported,
      "implementation: 'fast-even' does not accept f32 batch_first B=7 1x2x3x4 (fast-even: odd batch)",
      [] { (void)chosen(odd, "fast-even"); });
  const std::span<const Implementation> first_two = std::span(table).first(2);
  expect_error(
      ErrorCode::unsupported,
      "KRONSPARSE_IMPL: 'fast' does not accept f32 batch_first B=7 1x2x3x4 (fast-narrow: needs a unicorn; "
      "fast-even: odd batch)",
      [&] {
        (void)accepted_from(first_two, odd, {}, {"fast", "KRONSPARSE_IMPL"});
      });
  expect_error(ErrorCode::unsupported,
               "problem: no implementation on cpu accepts f32 batch_first B=7 1x2x3x4 (fast-narrow: needs a "
               "unicorn; fast-even: odd batch)",
               [&] {
                 (void)accepted_from(first_two, odd, {}, {"", "KRONSPARSE_IMPL"});
               });
}

TEST(Choice, UnknownNamesListTheKnown) {
  for (const std::string unknown : {"fas", "fast-", "fast-wid", "FAST", "plain ", "-", "plain-"})
    expect_error(
        ErrorCode::invalid_argument,
        "implementation: '" + unknown +
            "' is neither an implementation for cpu nor a family of them; there are fast-narrow, fast-even, "
            "fast-wide, faster, plain",
        [&] { (void)chosen(even, unknown); });
}

// Sets KRONSPARSE_IMPL for a scope.
class ForcedBy {
 public:
  explicit ForcedBy(const char* value) { setenv("KRONSPARSE_IMPL", value, 1); }
  ForcedBy(const ForcedBy&) = delete;
  ForcedBy& operator=(const ForcedBy&) = delete;
  ~ForcedBy() { unsetenv("KRONSPARSE_IMPL"); }
};

TEST(Choice, TheVariableForcesUnlessTheArgumentDoes) {
  const ForcedBy reference("reference");
  EXPECT_EQ(Plan(even).implementation(), "reference");
  const ForcedBy unknown("nonsense");
  EXPECT_EQ(Plan(even, Device{}, "reference").implementation(), "reference");
  expect_code(ErrorCode::invalid_argument, "nonsense", [] { (void)Plan(even); });
  const ForcedBy nothing("");
  EXPECT_EQ(Plan(even).implementation(), candidates(even).front().implementation);
}

TEST(Candidates, TheVariableRefusesTheOthers) {
  const std::size_t count = candidates(even).size();
  const ForcedBy reference("reference");
  const std::vector<Candidate> all = candidates(even);
  ASSERT_EQ(all.size(), count);
  EXPECT_EQ(all[0].implementation, Plan(even).implementation());
  EXPECT_EQ(all[0].refusal, "");
  for (std::size_t index = 1; index < count; ++index)
    EXPECT_EQ(all[index].refusal, "left out, because KRONSPARSE_IMPL is 'reference'")
        << all[index].implementation;
  const ForcedBy unknown("nonsense");
  expect_code(ErrorCode::invalid_argument, "nonsense", [] { (void)candidates(even); });
}

TEST(Candidates, TheReferenceIsTheLastThatAccepts) {
  for (const char* text :
       {"f32 batch_first B=1 1x1x1x1", "complex128 batch_last B=1000 4x64x64x16",
        "gradient bf16 batch_first B=3 2x3x5x7", "f16 batch_first B=0 2x3x5x7 +bias +silu"}) {
    std::string last;
    for (const Candidate& candidate : candidates(Problem::parse(text)))
      if (candidate.refusal.empty()) last = candidate.implementation;
    EXPECT_EQ(last, "reference") << text;
  }
}

TEST(Candidates, EveryImplementationOfTheDeviceAnswersOnce) {
  std::vector<std::string> of_the_cpu;
  for (const ImplementationInfo& info : implementations()) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.summary.empty());
    if (info.backend == Backend::cpu) of_the_cpu.push_back(info.name);
  }
  EXPECT_EQ(candidates(even).size(), of_the_cpu.size());
  EXPECT_EQ(of_the_cpu.back(), "reference");
}

TEST(Candidates, AnInvalidProblemIsAnError) {
  Problem bad = even;
  bad.batch = -1;
  expect_code(ErrorCode::invalid_argument, "batch", [&] { (void)candidates(bad); });
}

int made_executors = 0;

/// Runs nothing, and is counted.
class CountedExecutor final : public Executor {
 public:
  CountedExecutor() { ++made_executors; }
  [[nodiscard]] const PackedOrder& order() const noexcept override { return no_order; }
  void pack(const void*, void*, Stream) const override {}
  void run(const Operands&, const Weights&) const override {}
};

template <int Seconds, int PackingSeconds>
Proposal accept_counted(const Problem&, Device, const PackedOrder*) {
  return {.seconds = Seconds, .packing_seconds = PackingSeconds, .make = [] {
            return std::make_unique<CountedExecutor>();
          }};
}

// To compare the steps of a chain with the chain in one pass, none of them is made.
TEST(Choice, FindsTheCheapestWithoutMakingIt) {
  constexpr std::array<Implementation, 3> ways = {{
      {"packs-long", Backend::cpu, "", accept_counted<1, 9>},
      {"packs-fast", Backend::cpu, "", accept_counted<3, 1>},
      {"slow", Backend::cpu, "", accept_counted<9, 0>},
  }};
  BackendEntry backend = cpu_backend();
  backend.implementations = ways;
  const Step step = whole_step(even);
  const auto cheapest = [&] { return cheapest_packing(step, Operation::multiply, backend, {}, {}); };
  made_executors = 0;
  EXPECT_EQ(cheapest().implementation->name, "packs-fast");
  EXPECT_EQ(made_executors, 0);
  const DecidedStep decided = with_executor(step, cheapest());
  EXPECT_EQ(decided.implementation->name, "packs-fast");
  EXPECT_EQ(decided.seconds + decided.packing_seconds, 4);
  EXPECT_EQ(made_executors, 1);
}

}  // namespace
}  // namespace kronsparse
