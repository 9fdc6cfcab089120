// The CUDA backend as far as it goes without a GPU: which GPUs this build takes,
// what its table says of a GPU that is made up, what is said where there is none.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "cuda/host/architectures.hpp"
#include "cuda/host/divisor.hpp"
#include "cuda/host/launch.hpp"
#include "expect_error.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

GpuFacts t4(int index) {
  GpuFacts facts = h200();
  facts.index = index;
  facts.name = "Tesla T4";
  facts.compute_capability = 75;
  facts.unusable = misfit(parse_architectures("80-real 90a"), facts.compute_capability);
  return facts;
}

constexpr Device second_gpu{Backend::cuda, 1};

TEST(CudaArchitectures, AreReadAsCMakeWritesThem) {
  EXPECT_EQ(parse_architectures("75-real 90a-real 100f 120 86-virtual nonsense "),
            (std::vector<Architecture>{{75, ' ', true, false},
                                       {90, 'a', true, false},
                                       {100, 'f', true, true},
                                       {120, ' ', true, true},
                                       {86, ' ', false, true}}));
  EXPECT_FALSE(built_architectures().empty());
}

TEST(CudaArchitectures, SayWhoseCodeAGpuRuns) {
  const auto code = [](const char* architectures, int gpu) {
    const auto found = code_for(parse_architectures(architectures), gpu);
    return found ? std::to_string(found->compute_capability) + found->kind : "none";
  };
  EXPECT_EQ(code("80-real 86-real 90a", 86), "86 ");
  EXPECT_EQ(code("80-real 90a", 89), "80 ");
  EXPECT_EQ(code("80 90a", 90), "90a");
  EXPECT_EQ(code("80 90a", 100), "80 ");  // as PTX
  EXPECT_EQ(code("90-virtual 90a-real", 90), "90a");
  EXPECT_EQ(code("75 86-virtual", 90), "86 ");
  EXPECT_EQ(code("80-real 86-virtual", 86), "80 ") << "machine code comes before PTX";
  EXPECT_EQ(code("90a", 100), "none");
}

TEST(CudaArchitectures, SayWhichGpuTheyFit) {
  const auto fits = [](const char* architectures, int gpu) {
    return misfit(parse_architectures(architectures), gpu).empty();
  };
  EXPECT_TRUE(fits("80-real", 80));
  EXPECT_TRUE(fits("80-real", 86));   // machine code runs on later ones of its major number
  EXPECT_FALSE(fits("86-real", 80));  // not on earlier ones
  EXPECT_FALSE(fits("80-real", 90));
  EXPECT_TRUE(fits("80", 90));  // PTX runs on all later ones
  EXPECT_TRUE(fits("80-virtual", 120));
  EXPECT_FALSE(fits("80-virtual", 75));
  EXPECT_TRUE(fits("90a", 90));
  EXPECT_FALSE(fits("90a", 100));  // 'a' is for this one alone, PTX and all
  EXPECT_TRUE(fits("100f", 103));
  EXPECT_FALSE(fits("100f", 120));
  for (const int gpu : {75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121})
    EXPECT_TRUE(fits("75-real 80-real 86-real 89-real 90a-real 100-real 120", gpu) || gpu == 110) << gpu;
}

TEST(CudaArchitectures, NameBothSidesOfAMisfit) {
  EXPECT_EQ(misfit(parse_architectures("90a"), 75), "this build has kernels for sm_90a, the GPU is sm_75");
  EXPECT_EQ(misfit(parse_architectures("80-real 90a-real 120"), 75),
            "this build has kernels for sm_80, sm_90a, sm_120 and PTX for 12.0 or later, the GPU is sm_75");
  EXPECT_EQ(misfit(parse_architectures("90-virtual"), 80),
            "this build has kernels for PTX for 9.0 or later, the GPU is sm_80");
}

TEST(CudaBackend, IsInTheTable) {
  EXPECT_EQ(backends().back().backend, Backend::cuda);
  std::set<std::string_view> names;
  for (const Implementation& implementation : cuda_backend().implementations) {
    EXPECT_EQ(implementation.backend, Backend::cuda) << implementation.name;
    EXPECT_FALSE(implementation.summary.empty()) << implementation.name;
    EXPECT_TRUE(names.insert(implementation.name).second) << implementation.name;
  }
}

/// The GPUs among the devices, and the names of all others: this machine may have some of OpenCL.
std::vector<DeviceInfo> listed_gpus() {
  std::vector<DeviceInfo> all = devices();
  std::erase_if(all, [](const DeviceInfo& info) { return info.device.backend != Backend::cuda; });
  return all;
}
std::string others() {
  std::string names;
  for (const DeviceInfo& info : devices())
    if (info.device.backend != Backend::cuda) names += (names.empty() ? "" : ", ") + info.device.to_string();
  return names;
}

TEST(CudaBackend, SaysWhyThereIsNoGpu) {
  const PretendedGpus none({}, "no NVIDIA driver was found");
  EXPECT_TRUE(listed_gpus().empty());
  EXPECT_EQ(why_unusable(first_gpu), "no NVIDIA driver was found");
  const std::string text = "device: cuda:0 cannot be used, no NVIDIA driver was found; present: " + others();
  const Problem problem = Problem::parse("f32 batch_first B=8 1x2x3x4");
  expect_error(ErrorCode::device, text, [&] {
    float value = 0;
    Plan(problem, &value, first_gpu);
  });
  expect_error(ErrorCode::device, text, [&] { (void)candidates(problem, first_gpu); });
  expect_error(ErrorCode::device, text, [] { Buffer buffer(1, first_gpu); });
  expect_error(ErrorCode::device, "device: cuda:0 is not a GPU of this machine",
               [] { (void)gpu(first_gpu); });
}

TEST(CudaBackend, LeavesOutAGpuThatTakesNoKernel) {
  const PretendedGpus machine({h200(), t4(1)});
  ASSERT_EQ(listed_gpus().size(), 1U);
  EXPECT_EQ(devices().back().device, first_gpu);
  EXPECT_EQ(devices().back().description, "NVIDIA H200, sm_90, 132 SMs, 140 GiB, 50 MiB L2");
  EXPECT_EQ(devices().back().cache_bytes, std::size_t{50} << 20);
  EXPECT_EQ(why_unusable(first_gpu), "");
  EXPECT_EQ(why_unusable(second_gpu), "Tesla T4: this build has kernels for sm_80, sm_90a, the GPU is sm_75");
  EXPECT_EQ(why_unusable(Device{Backend::cuda, 2}), "the NVIDIA driver found 2 GPUs");
  expect_error(
      ErrorCode::device,
      "device: cuda:1 cannot be used, Tesla T4: this build has kernels for sm_80, sm_90a, the GPU is "
      "sm_75; present: " +
          others() + ", cuda:0",
      [] { Buffer buffer(1, second_gpu); });
}

TEST(CudaBackend, ListsTheFastestLast) {
  GpuFacts second = h200();
  second.index = 1;
  const PretendedGpus machine({h200(), second});
  ASSERT_EQ(listed_gpus().size(), 2U);
  EXPECT_EQ(listed_gpus()[0].device, second_gpu);
  EXPECT_EQ(devices().back().device, first_gpu);
}

std::vector<Problem> varied_problems() {
  std::vector<Problem> all;
  for (const char* dtype : {"f32", "f32 ieee", "f32 tf32", "f64", "f16", "bf16", "complex64", "complex128"})
    for (const char* layout : {"batch_first", "batch_last"})
      for (const char* operation : {"multiply", "transposed", "adjoint", "gradient"})
        for (const char* shape : {"B=0 2x3x5x7", "B=1 1x1024x1024x4", "B=17 3x5x7x9 cols_stride=300",
                                  "B=64 64x64x64x1", "B=25088 8x64x64x16", "B=25088 1x1024x1024x16"}) {
          std::string text = std::string(operation) + " " + dtype + " " + layout + " " + shape;
          if (std::string_view(operation) == "multiply") text += " +bias";
          all.push_back(Problem::parse(text));
        }
  return all;
}

TEST(CudaTable, AnswersEveryProblemOnAMadeUpGpu) {
  const PretendedGpus machine({h200()});
  std::set<std::string> with_answers;
  for (const Problem& problem : varied_problems()) {
    int accepting = 0;
    for (const Candidate& candidate : candidates(problem, first_gpu)) {
      SCOPED_TRACE(candidate.implementation + ": " + problem.to_string());
      with_answers.insert(candidate.implementation);
      if (!candidate.refusal.empty()) continue;
      ++accepting;
      EXPECT_TRUE(std::isfinite(candidate.predicted_seconds));
      EXPECT_GT(candidate.predicted_seconds, 0.0);
      EXPECT_LT(candidate.predicted_seconds, 60.0);
      // No prediction promises more than the memory gives: weights may be in L2, X and Y are not.
      if (problem.batch == 25088) {
        const double traffic = problem.bytes() - static_cast<double>(problem.pattern().nnz()) *
                                                     static_cast<double>(size_of(problem.dtype));
        EXPECT_GT(candidate.predicted_seconds, 0.5 * traffic / h200().memory_rate);
      }
    }
    ASSERT_GE(accepting, 1) << "nobody takes " << problem.to_string();
  }
  EXPECT_EQ(with_answers.size(), cuda_backend().implementations.size());
}

TEST(CudaTable, GemmTakesContiguousRowsOfHalfTypes) {
  const PretendedGpus machine({h200()});
  const auto gemm = [](const std::string& text) { return refusal("gemm", text); };
  for (const char* text :
       {"f16 batch_last B=64 3x17x19x5", "bf16 batch_first B=63 3x16x24x1", "f16 batch_last B=63 3x17x19x5",
        "f16 batch_last B=64 3x17x19x5 cols_stride=72 rows_stride=80",
        "f16 batch_last B=64 3x17x19x5 cols_stride=67", "f16 batch_first B=64 3x17x23x1"})
    EXPECT_EQ(gemm(text), "") << text;
  expect_mentions(gemm("f16 batch_first B=64 1x16x16x4"), "d = 1 only, not d = 4");
  expect_mentions(gemm("f32 batch_last B=64 1x16x16x4"), "half types");
  expect_mentions(gemm("gradient f16 batch_last B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, StagedTakesHalfTypesInBatchFirst) {
  const PretendedGpus machine({h200()});
  const auto staged = [](const std::string& text) { return refusal("staged", text); };
  for (const char* text :
       {"f16 batch_first B=1000 3x16x24x6 +bias +gelu", "f16 batch_first B=0 3x16x24x6",
        "transposed bf16 batch_first B=1000 1x24x16x256 rows_stride=7000", "f16 batch_first B=1 3x17x23x5",
        "transposed f16 batch_first B=1000 3x16x24x7 cols_stride=507 rows_stride=337"})
    EXPECT_EQ(staged(text), "") << text;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(staged("f16 batch_first B=1000 134217000x8x8x2"), "");  // not one i after the other
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
  expect_mentions(staged("f16 batch_first B=1000 134217728x8x8x2"), "fewer than 2^31 features");
  expect_mentions(staged("f16 batch_first B=1000 3x16x24x1"), "d from 2 to 1024");
  expect_mentions(staged("f16 batch_first B=1000 3x16x24x1025"), "d from 2 to 1024");
  expect_mentions(staged("f16 batch_last B=1000 3x16x24x6"), "batch_first");
  expect_mentions(staged("f32 batch_first B=1000 3x16x24x6"), "half types");
  expect_mentions(staged("gradient f16 batch_first B=1000 3x16x24x6"), "gradient");
}

TEST(CudaTable, StagedNeedsWorkspaceForAPartOfL2) {
  const PretendedGpus machine({h200()});
  const auto all = candidates(Problem::parse("f16 batch_first B=25088 3x111x222x33"), first_gpu);
  for (const Candidate& candidate : all) {
    if (candidate.implementation == "staged") {
      EXPECT_GT(candidate.workspace_bytes, std::size_t{1} << 20);
      EXPECT_LE(static_cast<double>(candidate.workspace_bytes), 0.7 * static_cast<double>(h200().l2_bytes));
    } else {
      EXPECT_EQ(candidate.workspace_bytes, 0U) << candidate.implementation;
    }
  }
}

TEST(CudaTable, LargeBlocksOfManyProductsAreStaged) {
  const PretendedGpus machine({h200()});
  const auto chosen = [](const std::string& text) {
    return candidates(Problem::parse("f16 batch_first B=25088 " + text), first_gpu).front().implementation;
  };
  for (const char* pattern :
       {"1x1024x1024x32", "3x768x768x16", "1x384x384x64", "1x256x256x96", "1x512x128x128"})
    EXPECT_EQ(chosen(pattern), "staged") << pattern;
  for (const char* pattern : {"8x256x256x16", "1x96x96x64", "12x1024x1024x4", "1x192x192x32", "1x64x64x64"})
    EXPECT_EQ(chosen(pattern), "wgmma") << pattern;
}

// tools/gpu-sanitize stops at a problem that its implementation does not accept.
TEST(CudaTable, EveryKernelGoesThroughComputeSanitizer) {
  const PretendedGpus machine({h200()});
  std::ifstream file(KRONSPARSE_SANITIZE_PROBLEMS);
  std::set<std::string> all, looked_at;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t end = line.find(' ');
    const std::string name = line.substr(0, end);
    for (const Candidate& candidate :
         candidates(Problem::parse(line.substr(end + 1)), Device{Backend::cuda, 0})) {
      all.insert(candidate.implementation);
      if (candidate.implementation != name) continue;
      EXPECT_EQ(candidate.refusal, "") << line;
      looked_at.insert(name);
    }
  }
  EXPECT_GT(all.size(), 10u);
  EXPECT_EQ(looked_at, all);
}

TEST(CudaTable, GradientsOfHalvesGoToTensorCores) {
  const PretendedGpus machine({h200()});
  for (const char* text : {"f16 batch_first B=25088 8x128x128x16", "bf16 batch_first B=25088 48x64x64x4",
                           "f16 batch_first B=25088 64x64x64x1", "f16 batch_first B=25088 1x768x192x3",
                           "f16 batch_first B=1000 1x16x16x2", "bf16 batch_last B=25088 64x48x48x16",
                           "f16 batch_first B=25088 1x48x48x16", "f16 batch_last B=4096 1x1024x1024x4"})
    EXPECT_NE(candidates(Problem::parse("gradient " + std::string(text)), first_gpu)[0].implementation,
              "gradient-simt")
        << text;
  const auto mma = [](const std::string& text) { return refusal("gradient-mma", text); };

  EXPECT_EQ(mma("gradient f16 batch_first B=0 1x1x1x1"), "");
  EXPECT_EQ(mma("gradient f16 batch_last B=63 3x17x19x9"), "");
  EXPECT_EQ(mma("gradient f16 batch_first B=1000000 1x16x16x16"), "");
  EXPECT_EQ(mma("gradient bf16 batch_first B=64 1x16x16x24 cols_stride=999"), "");
  expect_mentions(mma("gradient f32 batch_first B=64 1x16x16x4"), "f16 and bf16, not f32");
  expect_mentions(mma("f16 batch_first B=64 1x16x16x4"), "not products");
  expect_mentions(mma("gradient f16 batch_first B=64 1x16x16x9"), "odd d up to 7, not 9");
  expect_mentions(mma("gradient f16 batch_first B=2000000 1x16x16x16"), "truncate");
}

TEST(CudaTable, GradientsOnHopperNeedTheCopyEngine) {
  const PretendedGpus machine({h200()});
  const auto wgmma = [](const std::string& text) { return refusal("gradient-wgmma", "gradient " + text); };
  for (const char* text :
       {"f16 batch_first B=63 3x18x20x4", "bf16 batch_first B=1 3x16x24x1", "f16 batch_first B=64 2x5x7x8",
        "f16 batch_first B=64 2x5x7x48", "f16 batch_last B=64 3x17x19x9",
        "f16 batch_first B=63 3x16x24x4 cols_stride=296 rows_stride=200"})
    EXPECT_EQ(wgmma(text), "") << text;
  expect_mentions(wgmma("f16 batch_first B=64 1x16x16x24"), "d = 1, 2, 4, 8 or multiples of 16");
  expect_mentions(wgmma("f16 batch_first B=64 1x17x16x1"), "16 bytes");
  expect_mentions(wgmma("f16 batch_first B=64 1x16x16x4 cols_stride=66"), "16 bytes");
  expect_mentions(wgmma("f16 batch_last B=63 3x16x16x4"), "16 bytes");
  expect_mentions(wgmma("f16 batch_first B=0 1x16x16x4"), "a batch of 0");
  expect_mentions(wgmma("f32 batch_first B=64 1x16x16x4"), "f16 and bf16, not f32");
  GpuFacts b200 = h200();
  b200.compute_capability = 100;
  b200.code = {.compute_capability = 100};
  const PretendedGpus newer({b200});
  expect_mentions(wgmma("f16 batch_first B=64 1x16x16x4"), "needs compute capability 9.0");
}

TEST(CudaTable, GradientsOnTensorCoresNeedThem) {
  GpuFacts a100 = h200();
  a100.compute_capability = 80;
  a100.code = {.compute_capability = 80};
  a100.shared_bytes = 163 << 10;
  const PretendedGpus machine({a100});
  const std::string text = "gradient f16 batch_first B=25088 1x64x64x16";
  EXPECT_EQ(refusal("gradient-mma", text), "");

  a100.compute_capability = 75;
  a100.code = {.compute_capability = 75};
  const PretendedGpus older({a100});
  expect_mentions(refusal("gradient-mma", text), "needs compute capability 8.0");
}

// A build for earlier GPUs runs on later ones, without what only those have.
TEST(CudaTable, KernelsNeedWhatTheyWereCompiledFor) {
  const auto with_code = [](int gpu, const char* architectures) {
    GpuFacts facts = h200();
    facts.compute_capability = gpu;
    facts.code = code_for(parse_architectures(architectures), gpu).value();
    return facts;
  };
  const std::string text = "f16 batch_first B=8 4x64x128x1";
  const std::string gradient = "gradient f16 batch_first B=25088 1x64x64x16";
  for (const char* architectures : {"80", "90-virtual", "80-real 90-virtual"}) {
    const PretendedGpus machine({with_code(90, architectures)});
    for (const char* name : {"gemm", "wgmma", "x-stays-wgmma", "sums-stay"})
      expect_mentions(refusal(name, text), "needs code for sm_90a");
    if (with_code(90, architectures).code.compute_capability == 90)
      EXPECT_EQ(refusal("direct", "f16 batch_first B=8 4x64x64x2"), "");
    else
      expect_mentions(refusal("direct", "f16 batch_first B=8 4x64x64x2"),
                      "needs code for compute capability 9.0");
    expect_mentions(refusal("gradient-wgmma", gradient), "needs code for sm_90a");
    for (const char* name : {"mma", "x-stays-mma", "simt"}) EXPECT_EQ(refusal(name, text), "") << name;
  }
  {
    const PretendedGpus machine({with_code(80, "75")});
    for (const char* name : {"mma", "x-stays-mma"})
      expect_mentions(refusal(name, text),
                      "needs code for compute capability 8.0, this build's for NVIDIA H200 is for 7.5");
    expect_mentions(refusal("gradient-mma", gradient), "needs code for compute capability 8.0");
    EXPECT_EQ(refusal("simt", text), "");
  }
  EXPECT_FALSE(with_code(100, "80 90a").has_clusters());
  EXPECT_TRUE(with_code(120, "80 100f 90-virtual").has_clusters());
}

TEST(CudaDivisor, DividesAsTheProcessorDoes) {
  for (const std::uint32_t by : {1u, 2u, 3u, 5u, 7u, 64u, 97u, 196u, 641u, 65535u, 65536u, 1000003u,
                                 (1u << 30) + 1u, (1u << 31) - 1u, 1u << 31}) {
    const Divisor divisor(by);
    EXPECT_EQ(divisor.value(), by);
    for (std::uint64_t number = 0; number < 1u << 31; number = number * 3 / 2 + 1)
      for (const std::uint64_t near : {number, number / by * by, number / by * by + by - 1})
        if (near < 1u << 31) {
          const auto small = static_cast<std::uint32_t>(near);
          ASSERT_EQ(divisor.quotient(small), small / by) << small << " / " << by;
        }
    constexpr std::uint32_t largest = (1u << 31) - 1;
    ASSERT_EQ(divisor.quotient(largest), largest / by) << by;
  }
}

TEST(CudaTable, PlansNothingOnAMadeUpGpu) {
  if (!gpus().empty()) GTEST_SKIP() << "this machine has a GPU";
  const PretendedGpus machine({h200()});
  const Problem problem = Problem::parse("f32 batch_first B=8 1x2x3x4");
  const std::vector<float> values(24);
  expect_code(ErrorCode::device, "a plan on a made-up GPU", [&] { Plan(problem, values.data(), first_gpu); });
  expect_code(ErrorCode::device, "memory of a made-up GPU", [] { Buffer buffer(1, first_gpu); });
}

}  // namespace
}  // namespace kronsparse::cuda
