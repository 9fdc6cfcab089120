// The CUDA backend as far as it goes without a GPU: which GPUs this build takes,
// what its table says of a GPU that is made up, what is said where there is none.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "core/implementation.hpp"
#include "cuda/architectures.hpp"
#include "cuda/direct_config.hpp"
#include "cuda/divisor.hpp"
#include "cuda/held_config.hpp"
#include "cuda/launch.hpp"
#include "cuda/resident_config.hpp"
#include "cuda/runtime.hpp"
#include "expect_error.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse::cuda {
namespace {

GpuFacts h200() {
  return {.index = 0,
          .name = "NVIDIA H200",
          .compute_capability = 90,
          .code = {.compute_capability = 90, .kind = 'a'},
          .multiprocessors = 132,
          .memory_bytes = std::size_t{140} << 30,
          .shared_bytes = 227 << 10,
          .l2_bytes = std::size_t{50} << 20,
          .clock_hz = 1.98e9,
          .memory_rate = 4.26e12,
          .unusable = {}};
}

GpuFacts t4(int index) {
  GpuFacts facts = h200();
  facts.index = index;
  facts.name = "Tesla T4";
  facts.compute_capability = 75;
  facts.unusable = misfit(parse_architectures("80-real 90a"), facts.compute_capability);
  return facts;
}

constexpr Device first_gpu{Backend::cuda, 0};
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
  ASSERT_EQ(backends().size(), 2U);
  EXPECT_EQ(backends()[1].backend, Backend::cuda);
  std::set<std::string_view> names;
  for (const Implementation& implementation : backends()[1].implementations) {
    EXPECT_EQ(implementation.backend, Backend::cuda) << implementation.name;
    EXPECT_FALSE(implementation.summary.empty()) << implementation.name;
    EXPECT_TRUE(names.insert(implementation.name).second) << implementation.name;
  }
}

TEST(CudaBackend, SaysWhyThereIsNoGpu) {
  const PretendedGpus none({}, "no NVIDIA driver was found");
  EXPECT_EQ(devices().size(), 1U);
  EXPECT_EQ(why_unusable(first_gpu), "no NVIDIA driver was found");
  const std::string text = "device: cuda:0 cannot be used, no NVIDIA driver was found; present: cpu";
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
  ASSERT_EQ(devices().size(), 2U);
  EXPECT_EQ(devices().back().device, first_gpu);
  EXPECT_EQ(devices().back().description, "NVIDIA H200, sm_90, 132 SMs, 140 GiB, 50 MiB L2");
  EXPECT_EQ(devices().back().cache_bytes, std::size_t{50} << 20);
  EXPECT_EQ(why_unusable(first_gpu), "");
  EXPECT_EQ(why_unusable(second_gpu), "Tesla T4: this build has kernels for sm_80, sm_90a, the GPU is sm_75");
  EXPECT_EQ(why_unusable(Device{Backend::cuda, 2}), "the NVIDIA driver found 2 GPUs");
  expect_error(
      ErrorCode::device,
      "device: cuda:1 cannot be used, Tesla T4: this build has kernels for sm_80, sm_90a, the GPU is "
      "sm_75; present: cpu, cuda:0",
      [] { Buffer buffer(1, second_gpu); });
}

TEST(CudaBackend, ListsTheFastestLast) {
  GpuFacts second = h200();
  second.index = 1;
  const PretendedGpus machine({h200(), second});
  ASSERT_EQ(devices().size(), 3U);
  EXPECT_EQ(devices()[1].device, second_gpu);
  EXPECT_EQ(devices()[2].device, first_gpu);
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
        const double traffic = problem.bytes() - static_cast<double>(problem.pattern.nnz()) *
                                                     static_cast<double>(size_of(problem.dtype));
        EXPECT_GT(candidate.predicted_seconds, 0.5 * traffic / h200().memory_rate);
      }
    }
    ASSERT_GE(accepting, 1) << "nobody takes " << problem.to_string();
  }
  EXPECT_EQ(with_answers.size(), cuda_backend().implementations.size());
}

std::string refusal(const char* implementation, const std::string& text) {
  for (const Candidate& candidate : candidates(Problem::parse(text), first_gpu))
    if (candidate.implementation == implementation) return candidate.refusal;
  return "not in the table";
}

void expect_mentions(const std::string& refusal, const char* part) {
  EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
}

TEST(CudaTable, TensorCopiesNeedRowsOfWholeUnits) {
  const PretendedGpus machine({h200()});
  const auto gemm = [](const std::string& text) { return refusal("gemm", text); };
  EXPECT_EQ(gemm("f16 batch_last B=64 3x17x19x5"), "");
  EXPECT_EQ(gemm("bf16 batch_first B=63 3x16x24x1"), "");
  EXPECT_EQ(gemm("f16 batch_last B=64 3x17x19x5 cols_stride=72 rows_stride=80"), "");
  expect_mentions(gemm("f16 batch_last B=63 3x17x19x5"), "16 bytes");
  expect_mentions(gemm("f16 batch_last B=64 3x17x19x5 cols_stride=68"), "16 bytes");
  expect_mentions(gemm("f16 batch_first B=64 3x17x24x1"), "16 bytes");
  expect_mentions(gemm("f16 batch_first B=64 1x16x17x1"), "16 bytes");
  expect_mentions(gemm("f16 batch_first B=64 1x16x16x4"), "d = 1 only, not d = 4");
  expect_mentions(gemm("f32 batch_last B=64 1x16x16x4"), "half types");
  expect_mentions(gemm("gradient f16 batch_last B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, NarrowBlocksTakeSmallBatchesInRows) {
  const PretendedGpus machine({h200()});
  const auto narrow = [](const std::string& text) { return refusal("narrow", text); };
  for (const char* d : {"1", "2", "4", "8", "16", "24", "32"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(narrow(std::string("f16 batch_first B=") + batch + " 3x17x19x" + d), "");
  EXPECT_EQ(narrow("transposed bf16 batch_first B=64 3x17x19x4 cols_stride=999"), "");
  expect_mentions(narrow("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(narrow("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(narrow("f16 batch_first B=64 1x16x16x3"), "multiples of 8, not 3");
  expect_mentions(narrow("f16 batch_first B=64 1x16x16x12"), "multiples of 8, not 12");
  expect_mentions(narrow("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(narrow("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, DirectLoadsAreForSmallBatchesOfEvenDOrOne) {
  const PretendedGpus machine({h200()});
  const auto direct = [](const std::string& text) { return refusal("direct", text); };
  for (const char* d : {"2", "4", "6", "8", "12", "16", "24", "64"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(direct(std::string("f16 batch_first B=") + batch + " 3x17x19x" + d), "");
  EXPECT_EQ(direct("transposed bf16 batch_first B=64 3x17x20x4 rows_stride=998"), "");
  EXPECT_EQ(direct("f16 batch_first B=64 3x17x20x1"), "");
  expect_mentions(direct("f16 batch_first B=64 3x17x19x1"), "a multiple of 4 terms, not 19");
  EXPECT_EQ(direct("f16 batch_first B=1 3x17x19x4 cols_stride=999"), "");
  expect_mentions(direct("f16 batch_first B=2 3x17x19x4 cols_stride=999"), "rows of x this far apart");
  // Weights of more bytes than an int counts are no fewer than those that are a little too many.
  for (const char* pattern : {"1x16x8192x8", "1x128x1048576x8", "1x256x524288x8", "1x128x600000x16"})
    expect_mentions(direct(std::string("f16 batch_first B=1 ") + pattern), "pattern of this size");
  expect_mentions(direct("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(direct("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(direct("f16 batch_first B=64 1x16x16x3"), "even d and 1, not 3");
  expect_mentions(direct("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(direct("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, ResidentWeightsAreForShortRows) {
  const PretendedGpus machine({h200()});
  const auto resident = [](const std::string& text) { return refusal("resident", text); };
  for (const char* pattern :
       {"3x17x1024x4", "1x1x16x4", "1x40x512x8", "2x16x252x16", "1x99x128x32", "1x5x1x64"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(resident(std::string("f16 batch_first B=") + batch + " " + pattern), "");
  EXPECT_EQ(resident("transposed bf16 batch_first B=64 1x64x99x64 rows_stride=4104 cols_stride=9999"), "");
  expect_mentions(resident("f16 batch_first B=64 1x16x1040x4"), "up to 4096, not 1040 times 4");
  expect_mentions(resident("f16 batch_first B=64 1x16x10x4"),
                  "multiple of 64 elements of x, up to 4096, not 10");
  expect_mentions(resident("f16 batch_first B=64 1x16x2000000000x64"), "times 64");
  expect_mentions(resident("f16 batch_first B=64 1x16x64x4 cols_stride=260"), "rows of x this far apart");
  expect_mentions(resident("f16 batch_first B=1 1x99999999999x64x4"), "in 32 bits");
  expect_mentions(resident("f16 batch_first B=64 1x16x64x1"), "4, 8, 16, 32 or 64, not 1");
  expect_mentions(resident("f16 batch_first B=64 1x16x64x12"), "4, 8, 16, 32 or 64, not 12");
  expect_mentions(resident("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(resident("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(resident("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(resident("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

TEST(CudaTable, HeldTakesWholeRowsOfX) {
  const PretendedGpus machine({h200()});
  const auto held = [](const std::string& text) { return refusal("held", text); };
  for (const char* pattern : {"3x17x1024x4", "1x1x16x4", "1x40x512x8", "2x16x252x16"})
    for (const char* batch : {"0", "1", "33", "64"})
      EXPECT_EQ(held(std::string("f16 batch_first B=") + batch + " " + pattern), "");
  EXPECT_EQ(held("transposed bf16 batch_first B=64 1x64x99x16 rows_stride=1032 cols_stride=9999"), "");
  expect_mentions(held("f16 batch_first B=64 1x16x1040x4"), "up to 4096, not 1040 times 4");
  expect_mentions(held("f16 batch_first B=64 1x16x10x4"), "multiple of 64 elements of x, up to 4096, not 10");
  expect_mentions(held("f16 batch_first B=64 1x16x64x4 cols_stride=260"), "rows of x this far apart");
  expect_mentions(held("f16 batch_first B=1 1x99999999999x64x4"), "in 32 bits");
  expect_mentions(held("f16 batch_first B=64 1x16x64x32"), "4, 8 or 16, not 32");
  expect_mentions(held("f16 batch_first B=65 1x16x16x4"), "at most 64, not 65");
  expect_mentions(held("f16 batch_last B=64 1x16x16x4"), "batch_first only");
  expect_mentions(held("f32 batch_first B=64 1x16x16x4"), "half types");
  expect_mentions(held("gradient f16 batch_first B=64 1x16x16x4"), "gradient");
}

// The first blocks ask for others' weights where they begin early, and for no more than helps.
TEST(CudaHeld, FirstBlocksAskWhereTheyBeginEarly) {
  const auto cut = [](const std::string& text, int tiles) {
    for (const held::Choice& choice : held::choices(Problem::parse("f16 batch_first " + text), h200()))
      if (choice.cut.tiles == tiles) return choice.cut;
    return held::Cut{};
  };
  const held::Cut few_left = cut("B=64 1x688x256x16", 3);  // 116 blocks of 132
  EXPECT_EQ(few_left.early_blocks, 16);
  EXPECT_EQ(few_left.early_tiles, 3);
  const held::Cut fewer_left = cut("B=64 1x1024x1024x4", 4);  // 128
  EXPECT_EQ(fewer_left.early_blocks, 4);
  EXPECT_EQ(fewer_left.early_tiles, 1);
  EXPECT_EQ(cut("B=16 1x2752x1024x4", 4).early_tiles, 1);   // 22 MB in all
  EXPECT_EQ(cut("B=64 1x1024x1024x4", 2).early_blocks, 0);  // more blocks than multiprocessors
  EXPECT_EQ(cut("B=16 1x256x1024x4", 1).early_blocks, 0);   // two kernels fit side by side
}

// The choice for small batches, where kernels were measured beside each other.
TEST(CudaTable, SmallBatchesGoToTheFastest) {
  const PretendedGpus machine({h200()});
  const auto chosen = [](const std::string& text) {
    return candidates(Problem::parse("f16 batch_first " + text), Device{Backend::cuda, 0})
        .front()
        .implementation;
  };
  for (const char* text :
       {"B=64 1x1024x1024x4", "B=64 1x688x256x16", "B=64 1x512x512x8", "B=48 1x688x256x16",
        "B=33 1x1024x1024x4", "B=20 1x1024x1024x4", "B=32 1x688x256x16", "B=16 1x2752x1024x4",
        "B=64 1x1024x768x4", "B=64 1x1376x256x16", "B=64 3x200x512x8", "B=32 1x2752x1024x4"})
    EXPECT_EQ(chosen(text), "held") << text;
  for (const char* text :
       {"B=64 1x64x64x64", "B=64 1x172x64x64", "B=64 4x128x128x32", "B=8 1x1024x1024x4", "B=64 1x512x512x4",
        "B=64 1x256x256x16", "B=32 1x512x512x8", "B=20 1x688x256x16", "B=16 1x1024x1024x4",
        "B=8 1x2752x1024x4", "B=64 1x688x128x16", "B=64 1x1024x512x4"})
    EXPECT_EQ(chosen(text), "resident") << text;
  for (const char* text :
       {"B=1 1x64x64x64", "B=1 1x172x64x64", "B=64 64x64x64x4", "B=8 1x256x256x12", "B=1 4x1024x2752x1",
        "B=8 4x1024x1024x1", "B=64 64x64x172x1", "B=16 64x64x64x1", "B=64 32x32x64x4", "B=64 1x256x64x16"})
    EXPECT_EQ(chosen(text), "direct") << text;
  for (const char* text : {"B=64 1x2752x1024x4", "B=64 1x2048x2048x2", "B=64 16x256x688x1",
                           "B=64 4x1024x1024x1", "B=64 4x1024x2752x1", "B=64 1x2752x768x4",
                           "B=64 8x1376x1024x1", "B=64 4x512x512x2", "B=20 64x64x1024x1"})
    EXPECT_EQ(chosen(text), "narrow") << text;
  EXPECT_EQ(chosen("B=64 16x256x256x1"), "stream");
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

// The smallest share of a multiprocessor's memory that holds its blocks leaves the most to the cache.
TEST(CudaDirect, SharedMemoryIsForItsOwnBlocks) {
  const GpuFacts facts = h200();
  for (const char* text : {"f16 batch_first B=8 1x64x64x64", "f16 batch_first B=64 1x172x64x64",
                           "bf16 batch_first B=64 1x1024x1024x4", "f16 batch_first B=64 256x16x16x8"}) {
    const Problem problem = Problem::parse(text);
    const Product p = product_of(problem);
    const direct::Cut cut = direct::choose(problem, facts).cut;
    const double all = static_cast<double>(facts.shared_bytes) + 1024;
    const double one = direct::shared_layout(cut).total + 1024.0;
    const double blocks = std::ceil(static_cast<double>(direct::blocks_of(cut, p)) / facts.multiprocessors);
    const int percent = direct::shared_percent(cut, p, facts);
    EXPECT_GE(percent / 100.0 * all, std::min(all, blocks * one)) << text;
    EXPECT_LT((percent - 1) / 100.0 * all, blocks * one) << text;
    EXPECT_LE(percent, 100) << text;
  }
}

/// Whether eight lanes that load or store 16 bytes at the same time do so in different banks.
bool without_conflicts(const std::array<int, 8>& places) {
  std::set<int> banks;
  for (const int place : places) banks.insert(place / 16 % 8);
  return banks.size() == places.size();
}

TEST(CudaResident, NoLoadOfXHasConflicts) {
  for (const resident::Shape& shape : resident::shapes) {
    std::set<int> all;  // all of x is loaded, and nothing else
    for (int warp = 0; warp < resident::warps; ++warp)
      for (int step = 0; step < shape.steps(); ++step)
        for (int first_lane = 0; first_lane < 32; first_lane += 8)
          for (int at = 0; at < 4; at += 8 / shape.block_j()) {
            std::array<int, 8> places{};
            for (int lane = first_lane; lane < first_lane + 8; ++lane) {
              const int term = (warp / shape.j_warps() * shape.steps() + step) * resident::step_terms +
                               term_of(8 / shape.block_j(), lane % 4, at);
              const int bytes = term * shape.d * 2 + warp % shape.j_warps() * 16;
              const int place = shape.place(shape.sample_of(lane / 4), bytes);
              places[static_cast<std::size_t>(lane - first_lane)] = place;
              all.insert(place);
            }
            ASSERT_TRUE(without_conflicts(places)) << shape.d << " j, lane " << first_lane;
          }
    EXPECT_EQ(all.size() * 16,
              static_cast<std::size_t>(resident::tile_samples * shape.rows() * resident::row_bytes));
    EXPECT_LE(*all.rbegin() + 16, shape.buffer_bytes());
  }
}

TEST(CudaResident, SumsAreSpreadOverBanks) {
  for (const resident::Shape& shape : resident::shapes) {
    const int fours = shape.l_warps() == 1 ? 1 : shape.unit() / 4;
    std::set<int> all;  // every sum has a place of its own
    for (int part = 0; part < shape.l_warps(); ++part)
      for (int four = 0; four < fours; ++four)
        for (int sample = 0; sample < resident::tile_samples; ++sample)
          for (int output = 0; output < resident::tile_outputs; ++output)
            for (int unit = 0; unit < shape.output_units(); ++unit)
              all.insert(shape.sum_place(part, four, sample, output, unit));
    EXPECT_EQ(all.size() * 16, static_cast<std::size_t>(shape.sum_bytes()));
    EXPECT_EQ(*all.rbegin() + 16, shape.sum_bytes());
    for (int first_lane = 0; first_lane < 32; first_lane += 8)
      for (int at = 0; at < 4; ++at) {
        std::array<int, 8> written{}, read{};
        for (int lane = first_lane; lane < first_lane + 8; ++lane) {
          const int sample = shape.sample_of(lane % 4 * 2 + at % 2), output = lane / 4 + at / 2 * 8;
          const int thread = at * 64 + lane;
          const int of_sample = resident::tile_outputs * shape.output_units();
          const auto place = static_cast<std::size_t>(lane - first_lane);
          written[place] = shape.sum_place(0, 0, sample, output, 0);
          read[place] =
              shape.sum_place(0, 0, thread / of_sample % resident::tile_samples,
                              thread % of_sample / shape.output_units(), thread % shape.output_units());
        }
        EXPECT_TRUE(without_conflicts(written)) << shape.d << " j, lane " << first_lane;
        EXPECT_TRUE(without_conflicts(read)) << shape.d << " j, lane " << first_lane;
      }
  }
}

TEST(CudaHeld, XAndSumsAreSpreadOverBanks) {
  for (const held::Shape& shape : held::shapes) {
    std::set<int> loaded;  // of a box: all of it by the warps that share it
    for (int j_warp = 0; j_warp < shape.j_warps(); ++j_warp)
      for (int step = 0; step < shape.box_steps(); ++step)
        for (int at = 0; at < 8; at += 8 / shape.block_j())
          for (int first_lane = 0; first_lane < 32; first_lane += 8) {
            std::array<int, 8> places{};
            for (int lane = first_lane; lane < first_lane + 8; ++lane) {
              const int bytes = term_of(8 / shape.block_j(), lane % 4, at % 4) * shape.d * 2 + j_warp * 16;
              const int place = shape.place(shape.sample_of(lane / 4), bytes) + step * shape.step_bytes() +
                                at / 4 * held::Shape::eight_samples_bytes;
              places[static_cast<std::size_t>(lane - first_lane)] = place;
              loaded.insert(place);
            }
            ASSERT_TRUE(without_conflicts(places)) << shape.d << " j, lane " << first_lane;
          }
    EXPECT_EQ(loaded.size() * 16, static_cast<std::size_t>(held::box_bytes));
    EXPECT_EQ(*loaded.rbegin() + 16, held::box_bytes);

    for (int j_warp = 0; j_warp < shape.j_warps(); ++j_warp) {
      std::set<int> all;  // every sum of a warp has a place of its own
      for (int four = 0; four < shape.block_j() / 4; ++four)
        for (int at = 0; at < 4; ++at)
          for (int first_lane = 0; first_lane < 32; first_lane += 8) {
            std::array<int, 8> written{};
            for (int lane = first_lane; lane < first_lane + 8; ++lane) {
              const int place = shape.sum_place(j_warp, four, shape.sample_of(lane / 4) + at / 2 * 8,
                                                lane % 4 * 2 + at % 2);
              written[static_cast<std::size_t>(lane - first_lane)] = place;
              all.insert(place);
            }
            EXPECT_TRUE(without_conflicts(written)) << shape.d << " j, lane " << first_lane;
          }
      EXPECT_EQ(all.size(), static_cast<std::size_t>(32 * shape.block_j()));
      EXPECT_LE(*all.rbegin() + 16, held::warp_weight_bytes);
    }
    const int of_sample = held::tile_outputs * shape.output_units();
    for (int first_thread = 0; first_thread < shape.units(); first_thread += 8) {
      std::array<int, 8> read{};
      for (int thread = first_thread; thread < first_thread + 8; ++thread) {
        const int unit = thread % shape.output_units(), j_warp = shape.j_warps() == 1 ? 0 : unit;
        read[static_cast<std::size_t>(thread - first_thread)] =
            held::slot_place(j_warp, 0) + shape.sum_place(j_warp, shape.j_warps() == 1 ? unit : 0,
                                                          thread / of_sample,
                                                          thread % of_sample / shape.output_units());
      }
      EXPECT_TRUE(without_conflicts(read)) << shape.d << " j, thread " << first_thread;
    }
  }
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
  expect_mentions(mma("gradient f16 batch_first B=64 1x16x16x9"), "even d, or one up to 7, not 9");
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
  const std::string text = "f16 batch_first B=8 4x64x64x1";
  const std::string gradient = "gradient f16 batch_first B=25088 1x64x64x16";
  for (const char* architectures : {"80", "90-virtual", "80-real 90-virtual"}) {
    const PretendedGpus machine({with_code(90, architectures)});
    for (const char* name : {"gemm", "wgmma", "stream", "narrow"})
      expect_mentions(refusal(name, text), "needs code for sm_90a");
    if (with_code(90, architectures).code.compute_capability == 90)
      EXPECT_EQ(refusal("direct", "f16 batch_first B=8 4x64x64x2"), "");
    else
      expect_mentions(refusal("direct", "f16 batch_first B=8 4x64x64x2"),
                      "needs code for compute capability 9.0");
    expect_mentions(refusal("gradient-wgmma", gradient), "needs code for sm_90a");
    for (const char* name : {"mma", "skinny", "simt"}) EXPECT_EQ(refusal(name, text), "") << name;
  }
  {
    const PretendedGpus machine({with_code(80, "75")});
    for (const char* name : {"mma", "skinny"})
      expect_mentions(refusal(name, text),
                      "needs code for compute capability 8.0, this build's for NVIDIA H200 is for 7.5");
    expect_mentions(refusal("gradient-mma", gradient), "needs code for compute capability 8.0");
    EXPECT_EQ(refusal("simt", text), "");
  }
  EXPECT_FALSE(with_code(100, "80 90a").has_clusters());
  EXPECT_TRUE(with_code(120, "80 100f 90-virtual").has_clusters());
}

TEST(CudaFreshWeights, OneRunWaitsForThePacking) {
  FreshWeights fresh;
  const auto overlaps = [&](Stream stream) {
    bool answer = false;
    fresh.run(stream, [&](bool may_overlap) { answer = may_overlap; });
    return answer;
  };
  int one = 0, other = 0;  // streams, as far as this is concerned
  EXPECT_TRUE(overlaps(nullptr));
  fresh.packed_on(cudaStreamLegacy);
  EXPECT_THROW(fresh.run(nullptr, [](bool) { throw Error(ErrorCode::device, "no launch"); }), Error);
  EXPECT_FALSE(overlaps(nullptr)) << "another name of the same stream, after a launch that failed";
  EXPECT_TRUE(overlaps(nullptr));
  if (!gpus().empty()) GTEST_SKIP() << "with a driver, these would have to be streams";
  fresh.packed_on(&one);
  EXPECT_TRUE(overlaps(&other)) << "which waited for an event";
  EXPECT_FALSE(overlaps(&one));
  EXPECT_TRUE(overlaps(&one));
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
