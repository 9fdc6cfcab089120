// The choice on GPUs that nobody here has: by their facts alone. What is asserted must hold whatever the
// exact rates are: half types go to tensor cores, predictions are possible, refusals name the true reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../conformance/cases.hpp"
#include "../conformance/chain_cases.hpp"
#include "cuda/backend.hpp"
#include "cuda/host/speeds.hpp"
#include "made_up_gpus.hpp"
#include "paper_grid.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

/// Kernels on FMA units, which half types should not meet.
bool is_on_fma_units(const std::string& implementation) {
  return implementation == "simt" || implementation == "gradient-simt";
}

Problem of_grid(const std::string& beginning, const Pattern& pattern) {
  return Problem::parse(beginning + " B=" + std::to_string(paper_batch) + " " + pattern.to_string());
}

/// Seconds that memory and arithmetic need at least.
double floor_of(const Problem& problem, const GpuFacts& facts) {
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const auto per_clock = [&](Units units) { return multiply_adds_per_clock(facts, units); };
  double most = per_clock(Units::fma32);
  if (half) most = per_clock(Units::f16);
  if (problem.dtype == DType::f32 && problem.mode != Mode::ieee)
    most = std::max(most, per_clock(Units::tf32) / (problem.mode == Mode::tf32 ? 1 : 3));
  const double rate = 2 * most * facts.multiprocessors * facts.clock_hz;
  return std::max(problem.bytes() / facts.memory_rate, problem.flops() / rate);
}

TEST(MadeUpGpus, HaveThePapersGrid) { EXPECT_EQ(paper_grid().size(), 627u); }

TEST(MadeUpGpus, MultiplyHalfTypesOnTensorCores) {
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    for (const char* beginning : {"f16 batch_first", "bf16 batch_last", "transposed f16 batch_first"})
      for (const Pattern& pattern : paper_grid()) {
        const std::vector<Candidate> all = candidates(of_grid(beginning, pattern), first_gpu);
        ASSERT_FALSE(is_on_fma_units(all.front().implementation))
            << facts.name << ", " << beginning << " " << pattern.to_string();
      }
  }
}

/// A profile as `kronsparse profile` may measure it: memory and clocks below the datasheet's, tensor cores of
/// cards for workstations at twice a GeForce's rate.
MeasuredRates profile_of(const GpuFacts& facts) {
  const double clocks = 0.85 * facts.multiprocessors * facts.clock_hz;
  const double tensor = clocks * (facts.name.ends_with("L40S") ? 2 : 1);
  const auto per_clock = [&](Units units) { return multiply_adds_per_clock(facts, units); };
  return {.l2 = 2.5 * facts.memory_rate,
          .copy = 0.85 * facts.memory_rate,
          .f16 = tensor * per_clock(Units::f16),
          .bf16 = tensor * per_clock(Units::bf16),
          .tf32 = tensor * per_clock(Units::tf32),
          .fma32 = clocks * per_clock(Units::fma32),
          .fma64 = clocks * per_clock(Units::fma64)};
}

// With a profile as without one, for products, gradients, small batches and chains.
TEST(MadeUpGpus, ChooseAlikeWithAProfile) {
  std::vector<Problem> problems;
  const std::vector<Pattern> grid = paper_grid();
  for (std::size_t index = 0; index < grid.size(); index += 3)
    for (const char* beginning :
         {"f16 batch_first", "bf16 batch_last", "f32 batch_first", "f32 tf32 batch_last"})
      problems.push_back(of_grid(beginning, grid[index]));
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    set_measured_rates(facts.name, profile_of(facts));
    for (const Problem& problem : problems) {
      const Candidate best = candidates(problem, first_gpu).front();
      ASSERT_TRUE(problem.dtype == DType::f32 || !is_on_fma_units(best.implementation))
          << facts.name << ", " << problem.to_string();
      const double least = floor_of(problem, facts);
      ASSERT_GE(best.predicted_seconds, 0.9 * least) << facts.name << ", " << problem.to_string();
      ASSERT_LE(best.predicted_seconds, 120 * least) << facts.name << ", " << problem.to_string();
    }
    forget_measured_rates();
  }
}

// Small batches read weights more than x: predictions lie between their bytes at the copy rate and some tens
// of microseconds more.
TEST(MadeUpGpus, HaveKernelsForSmallBatches) {
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    for (const char* beginning :
         {"f16 batch_first", "bf16 batch_last", "transposed f16 batch_first", "f32 batch_first"})
      for (const char* pattern :
           {"64x64x64x1", "1x64x64x64", "1x256x688x16", "4x1024x1024x1", "1x1024x1024x4", "7x120x72x20",
            "3x33x65x10", "1x48x48x3", "128x8x8x2", "1x2752x1024x1"})
        for (const int batch : {1, 3, 16, 33, 64}) {
          const Problem problem =
              Problem::parse(std::string(beginning) + " B=" + std::to_string(batch) + " " + pattern);
          const Candidate best = candidates(problem, first_gpu).front();
          SCOPED_TRACE(facts.name + ", " + problem.to_string() + ": " + best.implementation);
          ASSERT_EQ(best.refusal, "");
          EXPECT_TRUE(problem.dtype == DType::f32 || !is_on_fma_units(best.implementation));
          EXPECT_GT(best.predicted_seconds, 0.5e-6 + 0.3 * problem.bytes() / facts.memory_rate);
          EXPECT_LT(best.predicted_seconds, 60e-6 + 20 * problem.bytes() / facts.memory_rate);
        }
  }
}

// Few blocks wait for their loads more than they multiply: there, either is as good.
TEST(MadeUpGpus, ComputeGradientsOfHalfTypesOnTensorCores) {
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    for (const char* beginning : {"gradient f16 batch_first", "gradient bf16 batch_last"})
      for (const Pattern& pattern : paper_grid()) {
        const std::string chosen = candidates(of_grid(beginning, pattern), first_gpu).front().implementation;
        ASSERT_TRUE(pattern.nnz() < 64 * 64 * 64 || pattern.d == 1 || !is_on_fma_units(chosen))
            << facts.name << ", " << beginning << " " << pattern.to_string();
      }
  }
}

TEST(MadeUpGpus, HaveKernelsForEveryProblemAndPossiblePredictions) {
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    for (const char* beginning : {"f16 batch_first", "bf16 batch_last", "f32 batch_first", "f32 batch_last",
                                  "f32 tf32 batch_first", "f32 ieee batch_last"})
      for (const Pattern& pattern : paper_grid()) {
        const Problem problem = of_grid(beginning, pattern);
        const double seconds = candidates(problem, first_gpu).front().predicted_seconds;
        const double least = floor_of(problem, facts);
        ASSERT_GE(seconds, least) << facts.name << ", " << problem.to_string();
        ASSERT_LE(seconds, 100 * least) << facts.name << ", " << problem.to_string();
      }
    for (const char* rest :
         {"f16 batch_first B=1 1x1024x1024x4", "f16 batch_first B=64 64x64x64x1",
          "f32 batch_last B=17 1x688x256x16", "bf16 batch_first B=33 3x33x65x10",
          "f16 batch_first B=16384 9x56x56x9", "f16 batch_last B=16384 512x2x2x1",
          "f32 batch_first B=4096 5x80x112x7", "f64 batch_first B=100 2x3x5x7",
          "complex128 batch_last B=100 2x3x5x7", "gradient f32 batch_first B=1000 2x48x48x12",
          "gradient f16 batch_first B=25088 1x192x192x24", "adjoint complex64 batch_first B=5 4x8x8x2"}) {
      const Problem problem = Problem::parse(rest);
      const Candidate best = candidates(problem, first_gpu).front();
      ASSERT_EQ(best.refusal, "") << facts.name << ", " << rest;
      EXPECT_GT(best.predicted_seconds, 0.3 * problem.bytes() / facts.memory_rate) << facts.name << rest;
      EXPECT_LT(best.predicted_seconds, 1e-3 + 100 * problem.bytes() / facts.memory_rate)
          << facts.name << ", " << rest << ": " << best.implementation;
    }
  }
}

/// Problems of all kinds: those of the conformance suite, a part of the grid, small batches, gradients of
/// long batches, chains.
std::vector<Problem> problems_of_all_kinds() {
  std::vector<Problem> all;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::complex64})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last})
      for (const Operation operation : {Operation::multiply, Operation::transposed, Operation::gradient}) {
        for (const conformance::Case& item : conformance::cases(dtype, layout, operation, true))
          all.push_back(item.problem);
        for (const conformance::Case& item : conformance::chain_cases(dtype, layout, operation, true))
          all.push_back(item.problem);
      }
  const std::vector<Pattern> grid = paper_grid();
  for (std::size_t index = 0; index < grid.size(); index += 11)
    for (const char* beginning : {"f16 batch_first", "bf16 batch_last", "f32 batch_first",
                                  "gradient f16 batch_first", "gradient bf16 batch_last"})
      all.push_back(of_grid(beginning, grid[index]));
  for (const char* text :
       {"bf16 batch_first B=16 1x1024x1024x4", "f16 batch_first B=8 1x64x64x64",
        "f16 batch_first B=64 1x256x688x16", "f16 batch_first B=64 1x64x512x8",
        "f32 batch_first B=64 1x1024x4096x1", "f16 batch_first B=14 1x328x720x16",
        "bf16 batch_first B=41 1x520x1432x32", "gradient f16 batch_first B=100000 1x64x64x64",
        "gradient f16 batch_first B=3000000 1x64x64x16", "gradient f16 batch_first B=19 9x751x72x7",
        "gradient bf16 batch_first B=25088 1x96x96x24", "f16 batch_first B=4096 1x64x64x64*64x64x64x1",
        "f32 batch_first B=8196 1x32x32x64*32x64x64x1", "f16 batch_first B=25088 1x1024x1024x1"})
    all.push_back(Problem::parse(text));
  return all;
}

// A refusal that does not name the GPU blames the problem: then an H200 must refuse it, too, and for the same
// reason. One that does names what the GPU has.
TEST(MadeUpGpus, RefuseForTheTrueReason) {
  const std::vector<Problem> problems = problems_of_all_kinds();
  std::map<std::string, std::string> on_h200;
  {
    const PretendedGpus machine({h200()});
    for (const Problem& problem : problems)
      for (const Candidate& one : candidates(problem, first_gpu))
        on_h200[problem.to_string() + one.implementation] = one.refusal;
  }
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    const std::string capability = " has " + std::to_string(facts.compute_capability / 10) + "." +
                                   std::to_string(facts.compute_capability % 10);
    for (const Problem& problem : problems) {
      const std::vector<Candidate> all = candidates(problem, first_gpu);
      ASSERT_TRUE(all.front().refusal.empty() || problem.chain.size() > 1) << problem.to_string();
      for (const Candidate& one : all) {
        if (one.refusal.empty()) continue;
        SCOPED_TRACE(one.implementation + " on " + facts.name + ", " + problem.to_string() + ": " +
                     one.refusal);
        EXPECT_EQ(one.refusal.find("1073741824"), std::string::npos);
        if (one.refusal.find(facts.name) == std::string::npos) {
          EXPECT_EQ(one.refusal, on_h200.at(problem.to_string() + one.implementation));
        } else if (one.refusal.find("compute capability") != std::string::npos) {
          expect_mentions(one.refusal, capability.c_str());
        } else if (one.refusal.find("shared memory") != std::string::npos) {
          expect_mentions(one.refusal, std::to_string(facts.shared_bytes).c_str());
        }
      }
    }
  }
}

// If a chain is refused as a whole, its factors are taken one by one.
TEST(MadeUpGpus, HaveKernelsForChains) {
  for (const GpuFacts& facts : made_up_gpus()) {
    const PretendedGpus machine({facts});
    for (const char* beginning : {"f16 batch_first B=4096 ", "transposed bf16 batch_first B=16 ",
                                  "f32 batch_last B=8192 ", "gradient f16 batch_first B=4096 "})
      for (const char* chain : {"1x64x64x64*64x64x64x1", "1x192x48x2*2x48x192x1", "1x8x8x64*8x8x8x8*64x8x8x1",
                                "1x25x40x40*40x40x25x1", "1x1024x64x1*1x64x1024x1"}) {
        const Problem problem = Problem::parse(std::string(beginning) + chain);
        SCOPED_TRACE(facts.name + ", " + problem.to_string());
        double apart = 0;
        for (const Problem& step : steps_of(problem)) {
          const Candidate best = candidates(step, first_gpu).front();
          ASSERT_EQ(best.refusal, "");
          apart += best.predicted_seconds;
        }
        const double seconds = predicted_seconds(problem, first_gpu);
        EXPECT_LE(seconds, apart * (1 + 1e-12));
        EXPECT_GT(seconds, 0.3 * problem.bytes() / facts.memory_rate);
      }
  }
}

// Kernels that were compiled for Ampere run on everything later, and say what they lack.
TEST(MadeUpGpus, RunTheCodeOfEarlierOnes) {
  for (const GpuFacts& facts : made_up_gpus("80")) {
    const PretendedGpus machine({facts});
    EXPECT_EQ(refusal("mma", "f16 batch_first B=25088 8x64x64x16"), "") << facts.name;
    EXPECT_EQ(refusal("x-stays-mma", "f16 batch_first B=8 8x64x64x16"), "") << facts.name;
    EXPECT_EQ(refusal("gradient-mma", "gradient f16 batch_first B=25088 8x64x64x16"), "") << facts.name;
    expect_mentions(refusal("direct", "f16 batch_first B=8 8x64x64x16"),
                    facts.compute_capability < 90 ? "needs compute capability 9.0"
                                                  : "needs code for compute capability 9.0");
  }
}

TEST(MadeUpGpus, AreMeasuredByTheH200) {
  EXPECT_EQ(clocks_per_byte(h200()), 1.0);
  EXPECT_EQ(l2_per_byte(h200()), 1.0);
  EXPECT_EQ(relative_clock(h200()), 1.0);
  EXPECT_EQ(relative_l2(h200()), 1.0);
  EXPECT_EQ(relative_l2_of_one(h200()), 1.0);
  GpuFacts reported = h200();  // what a driver says of the same GPU
  reported.memory_rate = 4.278e12;
  reported.clock_hz = 1.965e9;
  EXPECT_EQ(clocks_per_byte(reported), 1.0);
  EXPECT_EQ(relative_clock(reported), 1.0);
  const std::vector<GpuFacts> all = made_up_gpus();
  EXPECT_NEAR(clocks_per_byte(all[2]), 6.0, 0.1) << "RTX 4090";
  EXPECT_NEAR(clocks_per_byte(all[4]), 0.68, 0.01) << "B200";
  EXPECT_EQ(reached_rate(h200(), Units::f16, 400), 400);
  EXPECT_NEAR(reached_rate(all[2], Units::f16, 400), 205, 1) << "80 % of 256";
}

/// Implementations that take no problem of the conformance suite on a GPU.
std::set<std::string> without_a_case(const GpuFacts& facts) {
  const PretendedGpus machine({facts});
  std::set<std::string> left;
  for (const Implementation& one : cuda_backend().implementations) left.emplace(one.name);
  const auto look = [&](const std::vector<conformance::Case>& all) {
    for (const conformance::Case& item : all)
      for (const Candidate& candidate : candidates(item.problem, first_gpu))
        if (candidate.refusal.empty()) left.erase(candidate.implementation);
  };
  for (const DType dtype : {DType::f16, DType::f32})
    for (const Layout layout : {Layout::batch_first, Layout::batch_last})
      for (const Operation operation : {Operation::multiply, Operation::gradient}) {
        look(conformance::cases(dtype, layout, operation, false));
        look(conformance::chain_cases(dtype, layout, operation, false));
      }
  return left;
}

// The suite itself fails on a GPU for a kernel that it does not test; here the same without one.
TEST(MadeUpGpus, HaveConformanceCasesForEveryKernel) {
  EXPECT_EQ(without_a_case(h200()), std::set<std::string>());
  const std::set<std::string> left = without_a_case(made_up_gpus()[0]);
  for (const char* portable : {"mma", "x-stays-mma", "simt", "gradient-mma", "gradient-simt", "fused"})
    EXPECT_FALSE(left.contains(portable)) << portable << " on an A100";
}

// Rates of a profile take the place of estimates, unless they are near to them.
TEST(MadeUpGpus, TakeMeasuredRates) {
  const GpuFacts l40s = made_up_gpus()[1];
  const double clocks = l40s.multiprocessors * l40s.clock_hz;
  EXPECT_EQ(multiply_adds_per_clock(l40s, Units::f16), 256);
  MeasuredRates rates;
  rates.copy = 0.5 * l40s.memory_rate;
  rates.f16 = 500 * clocks;
  rates.fma32 = 125 * clocks;
  set_measured_rates(l40s.name, rates);
  EXPECT_NEAR(multiply_adds_per_clock(l40s, Units::f16), 500, 1e-6);
  EXPECT_EQ(multiply_adds_per_clock(l40s, Units::tf32), 128) << "was not measured";
  EXPECT_EQ(multiply_adds_per_clock(l40s, Units::fma32), 128) << "is near to the estimate";
  EXPECT_EQ(copy_rate(l40s), 0.5 * l40s.memory_rate);
  EXPECT_EQ(copy_rate(h200()), h200().memory_rate) << "another GPU";
  // The H200's own, with some noise: predictions stay as they are.
  const double of_h200 = h200().multiprocessors * h200().clock_hz;
  set_measured_rates(h200().name, {.l2 = 7e12,
                                   .copy = 1.02 * h200().memory_rate,
                                   .f16 = 980 * of_h200,
                                   .bf16 = 980 * of_h200,
                                   .tf32 = 500 * of_h200,
                                   .fma32 = 122 * of_h200,
                                   .fma64 = 62 * of_h200});
  EXPECT_EQ(copy_rate(h200()), h200().memory_rate);
  EXPECT_EQ(l2_per_byte(h200()), 1.0);
  EXPECT_EQ(reached_rate(h200(), Units::f16, 400), 400);
  EXPECT_EQ(multiply_adds_per_clock(h200(), Units::fma32), 128);
  EXPECT_EQ(multiply_adds_per_clock(h200(), Units::fma64), 64);
  forget_measured_rates();
  EXPECT_EQ(multiply_adds_per_clock(l40s, Units::f16), 256);
}

}  // namespace
}  // namespace kronsparse::cuda
