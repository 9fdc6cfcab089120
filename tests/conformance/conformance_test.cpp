// The conformance body over every implementation x dtype x layout x operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "body.hpp"
#include "cases.hpp"
#include "chain_cases.hpp"
#include "combination.hpp"
#include "kronsparse/plan.hpp"

namespace conformance {
namespace {

class Conformance : public testing::TestWithParam<Combination> {};

TEST_P(Conformance, EveryCase) {
  const auto& [target, dtype, layout, operation] = GetParam();
  const auto device = make_test_device(target.device);
  int run = 0;
  int wrong = 0;
  std::string refusal;
  for (const Case& item : cases(dtype, layout, operation, options().quick)) {
    if (refusal = target.refusal(item.problem); !refusal.empty()) continue;
    ++run;
    const std::string failure = check_problem(*device, target, item.problem, item.seed);
    if (failure.empty()) continue;
    ADD_FAILURE() << target << ": " << item.problem.to_string() << "\n  " << failure;
    if (++wrong == 5) FAIL() << "five failures are enough";
  }
  if (run == 0) GTEST_SKIP() << target << " refuses all of these problems: " << refusal;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(combinations()), combination_name);

TEST(Table, EveryPresentDeviceIsTested) {
  for (const kronsparse::DeviceInfo& info : kronsparse::devices())
    EXPECT_NE(make_test_device(info.device), nullptr)
        << info.device.to_string() << " is present but has no TestDevice in device.cpp";
}

/// Says what could not be tested here for want of a device.
TEST(Devices, OfEveryBackendArePresent) {
  const std::vector<kronsparse::DeviceInfo> present = kronsparse::devices();
  std::map<kronsparse::Backend, std::size_t> untested;
  for (const kronsparse::ImplementationInfo& info : kronsparse::implementations()) {
    const bool is_tested = std::any_of(present.begin(), present.end(), [&](const auto& device) {
      return device.device.backend == info.backend;
    });
    if (!is_tested) untested[info.backend] += combinations_of({{info.backend, 0}, info.name}).size();
  }
  std::string skipped;
  for (const auto& [backend, tests] : untested)
    skipped += "skipped " + std::to_string(tests) + " conformance tests on " + std::string(name(backend)) +
               ": " + kronsparse::why_unusable({backend, 0}) + "\n";
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

/// Whether a refusal is about the device: then this is not one of the kind that the implementation is for.
bool blames_device(const std::string& refusal) {
  for (const char* reason : {"compute capability", "needs code for", "this CPU", "this processor"})
    if (refusal.find(reason) != std::string::npos) return true;
  return false;
}

// A kernel whose every test is skipped has not been tested.
TEST(Table, NobodyRefusesEverything) {
  for (const Target& target : targets()) {
    bool takes_one = target.implementation.empty(), is_misplaced = false;
    const auto look = [&](const std::vector<Case>& all) {
      for (const Case& item : all) {
        if (takes_one || is_misplaced) return;
        const std::string refusal = target.refusal(item.problem);
        takes_one = refusal.empty();
        is_misplaced = blames_device(refusal);
      }
    };
    for (const auto& [_, dtype, layout, operation] : combinations_of(target)) {
      look(cases(dtype, layout, operation, false));
      look(chain_cases(dtype, layout, operation, false));
    }
    EXPECT_TRUE(takes_one || is_misplaced) << target << " refuses every case, so that nothing tests it";
  }
}

TEST(Table, ReferenceRefusesNothing) {
  for (const Target& target : targets()) {
    if (target.implementation != "reference") continue;
    for (const auto& [_, dtype, layout, operation] : combinations_of(target))
      for (const Case& item : cases(dtype, layout, operation, true))
        EXPECT_EQ(target.refusal(item.problem), "") << item.problem.to_string();
  }
}

/// The list of cases must keep meeting what it was written for.
TEST(Cases, MeetEveryEdge) {
  std::set<std::int64_t> dilations;
  std::set<std::int64_t> batches;
  std::set<std::int64_t> sums;
  int strided = 0;
  using kronsparse::DType;
  using kronsparse::Layout;
  using kronsparse::Operation;
  for (const Case& item : cases(DType::f32, Layout::batch_first, Operation::multiply, false)) {
    EXPECT_NO_THROW(item.problem.validate()) << item.problem.to_string();
    dilations.insert(item.problem.pattern().d);
    batches.insert(item.problem.batch);
    sums.insert(item.problem.pattern().c);
    strided += item.problem.cols_stride != 0 && item.problem.rows_stride != 0;
  }
  for (const std::int64_t d : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48})
    EXPECT_TRUE(dilations.contains(d)) << "d = " << d;
  for (const std::int64_t batch : {0, 1, 2, 3, 7, 13, 15, 16, 17, 31, 33, 47, 48, 49, 64, 97, 193, 251})
    EXPECT_TRUE(batches.contains(batch)) << "batch " << batch;
  for (const std::int64_t c :
       {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 47, 48, 49, 63, 64, 65, 100, 129, 300, 1000, 2500})
    EXPECT_TRUE(sums.contains(c)) << "c = " << c;
  EXPECT_GT(strided, 20);
}

}  // namespace
}  // namespace conformance
