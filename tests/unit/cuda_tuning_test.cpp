// The constants of the cost models as data: each entry says where it came from, and is what its model uses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <set>
#include <string>

#include "cuda/backend.hpp"
#include "cuda/tuning/entries.hpp"
#include "cuda/tuning/sm_90.hpp"
#include "made_up_gpus.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

TEST(CudaTuning, SaysWhereItsConstantsCameFrom) {
  const std::regex date("20[0-9]{2}-[01][0-9]-[0-3][0-9].*");
  for (const Tuning* const one : tunings())
    tuning::for_each_entry(*one, [&](const char* name, const auto& entry) {
      SCOPED_TRACE(name);
      const tuning::Evidence& evidence = entry.evidence;
      EXPECT_TRUE(std::regex_match(evidence.date, date));
      EXPECT_STRNE(evidence.fitted_to, "");
      EXPECT_STRNE(evidence.error, "");
      const std::string rows = evidence.rows;
      EXPECT_TRUE(rows.empty() || std::filesystem::exists(std::filesystem::path(KRONSPARSE_SOURCE) / rows))
          << rows;
    });
}

TEST(CudaTuning, HasAnEntryForEveryKernel) {
  std::set<std::string> entries;
  tuning::for_each_entry(tuning::sm_90, [&](const char* name, const auto&) { entries.emplace(name); });
  EXPECT_EQ(entries.size(), cuda_backend().implementations.size() + 1);  // packing
  for (const Implementation& one : cuda_backend().implementations)
    EXPECT_TRUE(entries.contains(std::string(one.name))) << one.name;
}

TEST(CudaTuning, HasPossibleNumbers) {
  for (const Tuning* const one : tunings()) {
    EXPECT_GT(one->gpu.multiprocessors, 0);
    EXPECT_GT(one->gpu.clock, 1e8);
    EXPECT_GT(one->gpu.copy, 1e9);
    EXPECT_TRUE(std::ranges::is_sorted(one->gpu.clusters_at_once, std::ranges::greater()));
    tuning::for_each_entry(*one, [](const char* name, const auto& entry) {
      for (const double number : tuning::numbers_of(entry.costs))
        EXPECT_TRUE(std::isfinite(number) && number >= 0) << name << ": " << number;
    });
  }
}

TEST(CudaTuning, IsThatOfTheArchitectureOrElseOfTheH200) {
  EXPECT_EQ(&tuning_of(h200()), &tuning::sm_90);
  for (const GpuFacts& facts : made_up_gpus()) EXPECT_EQ(&tuning_of(facts), &tuning::sm_90) << facts.name;
}

/// The predictions of all kernels that take the problem.
double predicted(const Implementation& one, const Problem& problem) {
  const Proposal proposal = one.propose(problem, first_gpu, nullptr);
  return proposal.refusal.empty() ? proposal.seconds : 0;
}

// A model that kept a number of its own would not follow.
TEST(CudaTuning, IsWhatPredictionsFollow) {
  const PretendedGpus machine({h200()});
  std::set<std::string> followed;
  for (const char* text :
       {"f16 batch_last B=16384 8x64x64x16", "f16 batch_first B=25088 1x256x256x16",
        "f16 batch_first B=16 1x64x64x64", "f16 batch_first B=4 64x64x256x1",
        "gradient f16 batch_first B=4096 1x64x64x64", "f16 batch_first B=4096 1x64x64x64*64x64x64x1"}) {
    const Problem problem = Problem::parse(text);
    for (const Implementation& one : cuda_backend().implementations) {
      if (one.takes_chains != (problem.chain.size() > 1)) continue;
      const double before = predicted(one, problem);
      if (before == 0) continue;
      Tuning slower = tuning::sm_90;
      // Rates grow with speed, and are left alone: small numbers are seconds. Two kernels have microseconds.
      const bool all_are_times = one.name == "mma" || one.name == "fused";
      tuning::for_each_entry(slower, [&](const char* name, auto& entry) {
        if (name != one.name) return;
        auto numbers = tuning::numbers_of(entry.costs);
        for (double& number : numbers)
          if (number < 1e-3 || all_are_times) number *= 2;
        using Constants = std::remove_cvref_t<decltype(entry.costs)>;
        entry.costs = tuning::constants_of<Constants>(numbers);
      });
      const PretendedTuning pretended(slower);
      EXPECT_GT(predicted(one, problem), before) << one.name << ", " << text;
      followed.emplace(one.name);
    }
  }
  for (const Implementation& one : cuda_backend().implementations)
    EXPECT_TRUE(followed.contains(std::string(one.name))) << one.name << " was not tried";
}

}  // namespace
}  // namespace kronsparse::cuda
