// What the decision for one batch size says of others: who is asked again, and who is not.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <string>

#include "core/decision.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse {
namespace {

BatchClass class_of(const std::string& text, bool stores = false) {
  return BatchClass(Problem::parse(text), stores);
}

TEST(BatchClass, HasBatchesUpToAPowerOfTwo) {
  const BatchClass of_65 = class_of("f32 batch_first B=65 1x8x8x8*8x8x8x1");
  EXPECT_EQ(of_65, class_of("f32 batch_first B=128 1x8x8x8*8x8x8x1"));
  EXPECT_NE(of_65, class_of("f32 batch_first B=64 1x8x8x8*8x8x8x1")) << "kernels for small batches end at 64";
  EXPECT_NE(of_65, class_of("f32 batch_first B=129 1x8x8x8*8x8x8x1"));
  EXPECT_NE(class_of("f32 batch_first B=1 1x8x8x8"), class_of("f32 batch_first B=2 1x8x8x8"));
  EXPECT_NE(of_65, class_of("f32 batch_first B=65 1x8x8x8*8x8x8x1", true));
}

TEST(BatchClass, HasRowsThatAreAlignedAlike) {
  EXPECT_NE(class_of("f16 batch_last B=96 1x8x8x8"), class_of("f16 batch_last B=97 1x8x8x8"));
  EXPECT_EQ(class_of("f16 batch_first B=96 1x8x8x8"), class_of("f16 batch_first B=97 1x8x8x8"));
  Problem strided = Problem::parse("f16 batch_first B=96 1x8x8x8");
  const BatchClass dense(strided, false);
  strided.cols_stride = 65;
  EXPECT_NE(BatchClass(strided, false), dense);
}

std::map<std::string, int> asked;

template <int Seconds, char name>
Proposal answer(const Problem& problem, Device, const PackedOrder*) {
  ++asked[std::string(1, name)];
  if (problem.batch == 99 && name != 's') return {.refusal = "not 99"};
  return {.seconds = Seconds, .make = [] { return std::unique_ptr<Executor>(); }};
}

/// One factor: the best, one that is nearly as good, one that is far slower, one that says so itself; then
/// one for whole chains.
BackendEntry made_up(bool whole_is_fast) {
  static const std::array<Implementation, 4> singles = {{
      {"best", Backend::cpu, "", answer<10, 'b'>},
      {"near", Backend::cpu, "", answer<12, 'n'>},
      {"slow", Backend::cpu, "", answer<40, 's'>},
      {"bound", Backend::cpu, "", answer<30, 'l'>, false, [](const Problem&, Device) { return 20.0; }},
  }};
  static const std::array<Implementation, 5> fast = {
      {singles[0], singles[1], singles[2], singles[3], {"whole", Backend::cpu, "", answer<5, 'w'>, true}}};
  static const std::array<Implementation, 5> slow = {
      {singles[0], singles[1], singles[2], singles[3], {"whole", Backend::cpu, "", answer<90, 'w'>, true}}};
  BackendEntry backend = cpu_backend();
  backend.implementations = whole_is_fast ? fast : slow;
  return backend;
}

std::string names_for(const std::string& text, bool whole_is_fast, Learned& learned, bool stores = false) {
  asked.clear();
  std::string names;
  for (const auto& [step, chosen] :
       cheapest_ways(Problem::parse(text), made_up(whole_is_fast), {}, {}, stores, learned))
    names += std::string(chosen.implementation->name) + " ";
  return names;
}

TEST(Learned, WhoIsFarSlowerIsNotAskedAgain) {
  Learned learned;
  EXPECT_EQ(names_for("f32 batch_first B=100 1x8x8x8*8x8x8x1", false, learned), "best best ");
  EXPECT_EQ(asked["b"] + asked["n"] + asked["s"], 6);
  EXPECT_EQ(asked["l"], 0) << "it says that it takes longer than the best";
  EXPECT_EQ(asked["w"], 1);
  EXPECT_EQ(names_for("f32 batch_first B=101 1x8x8x8*8x8x8x1", false, learned), "best best ");
  EXPECT_EQ(asked["b"], 2);
  EXPECT_EQ(asked["n"], 2);
  EXPECT_EQ(asked["s"] + asked["l"] + asked["w"], 0);
}

TEST(Learned, WhereAllOthersRefuseEveryoneIsAsked) {
  Learned learned;
  (void)names_for("f32 batch_first B=100 1x8x8x8", false, learned);
  EXPECT_EQ(names_for("f32 batch_first B=99 1x8x8x8", false, learned), "slow ");
}

TEST(Learned, StepsAreNotAskedWhereTheWholeIsFarFaster) {
  Learned learned;
  EXPECT_EQ(names_for("f32 batch_first B=100 1x8x8x8*8x8x8x1", true, learned), "whole ");
  EXPECT_EQ(names_for("f32 batch_first B=101 1x8x8x8*8x8x8x1", true, learned), "whole ");
  EXPECT_EQ(asked["b"] + asked["n"] + asked["s"], 0);
  EXPECT_EQ(names_for("f32 batch_first B=99 1x8x8x8*8x8x8x1", true, learned), "slow slow ")
      << "where it refuses they are";
  EXPECT_EQ(names_for("f32 batch_first B=100 1x8x8x8*8x8x8x1", true, learned, true), "best best ")
      << "and where a run writes the intermediates";
}

}  // namespace
}  // namespace kronsparse
