// How long the host takes to decide for a batch size that a plan has not seen: the search for the best way of
// each kernel, without what CUDA takes to make it ready. It prints the times:
//
//     kronsparse_unit_tests --gtest_filter='CudaChoiceTime.*'
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/decision.hpp"
#include "core/steps.hpp"
#include "pretended_gpu.hpp"

namespace kronsparse::cuda {
namespace {

/// Small, middling and large batches, of one and two factors, with few and many ways to cut them.
constexpr const char* problems[] = {
    "f16 batch_first B=1 1x64x64x64*64x64x64x1",
    "f16 batch_first B=7 1x64x64x64*64x64x64x1",
    "f16 batch_first B=64 1x64x64x64*64x64x64x1",
    "f16 batch_first B=128 1x256x16x16*16x16x64x1",
    "f16 batch_first B=1000 1x64x64x64*64x64x64x1",
    "f16 batch_first B=25088 1x64x64x64*64x64x64x1",
    "f16 batch_last B=16 1x32x32x32*32x32x32x1",
    "f16 batch_last B=4096 1x32x32x32*32x32x32x1",
    "f32 batch_first B=1 1x32x32x32*32x32x32x1",
    "f32 batch_first B=48 1x172x64x64*64x64x64x1",
    "f32 batch_first B=3000 1x32x32x32*32x32x32x1",
    "f32 batch_last B=25088 1x64x64x64*64x64x64x1",
    "bf16 batch_first B=33 1x8x8x8*8x8x8x1",
    "f16 batch_first B=64 1x172x64x64",
    "f16 batch_first B=25088 1x1024x1024x16",
    "gradient f16 batch_first B=25088 1x64x64x64*64x64x64x1",
    "gradient f32 batch_first B=64 1x64x64x64*64x64x64x1",
};

/// Microseconds of this thread, the least of many runs: others may use the machine.
template <class Body>
double microseconds(const Body& body) {
  const auto now = [] {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
  };
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 30; ++run) {
    const double begun = now();
    body();
    least = std::min(least, now() - begun);
  }
  return least;
}

double search(const Problem& problem, Learned learned) {
  const Ways ways = cheapest_ways(problem, cuda_backend(), first_gpu, {}, false, learned);
  double seconds = 0;
  for (const auto& [step, chosen] : ways)
    seconds += chosen.proposal.seconds + chosen.proposal.packing_seconds;
  return seconds;
}

/// What is known after a batch of this size.
Learned learned_of(const Problem& problem) {
  Learned learned;
  (void)cheapest_ways(problem, cuda_backend(), first_gpu, {}, false, learned);
  return learned;
}

TEST(CudaChoiceTime, OfNewBatchSizes) {
  const PretendedGpus machine({h200()});
  double first_sum = 0, later_sum = 0;
  std::printf("first of its class, others: microseconds\n");
  for (const char* text : problems) {
    const Problem problem = Problem::parse(text);
    const Learned learned = learned_of(problem);
    const double first = microseconds([&] { (void)search(problem, {}); });
    const double later = microseconds([&] { (void)search(problem, learned); });
    first_sum += first;
    later_sum += later;
    std::printf("%6.1f %6.1f  %-55s", first, later, text);
    std::vector<std::pair<double, std::string>> parts;
    for (const Implementation& one : cuda_backend().implementations) {
      const double part = microseconds([&] {
        if (one.takes_chains) {
          if (problem.chain.size() > 1) (void)one.propose(problem, first_gpu, nullptr);
        } else {
          for (const Step& step : make_steps(problem)) (void)one.propose(step.problem, first_gpu, nullptr);
        }
      });
      parts.emplace_back(-part, std::string(one.name));
    }
    std::ranges::sort(parts);
    for (std::size_t at = 0; at < 4; ++at)
      std::printf(" %s %.1f", parts[at].second.c_str(), -parts[at].first);
    std::printf("\n");
  }
  const auto count = static_cast<double>(std::size(problems));
  std::printf("%6.1f %6.1f  in the mean\n", first_sum / count, later_sum / count);
  // The goal is 50; other processes and sanitizers slow this down.
  EXPECT_LT(first_sum / count, 500);
  EXPECT_LT(later_sum, first_sum);
}

/// Who was far slower for one batch of a class is not the fastest for another.
TEST(CudaChoiceTime, ClassesOfBatchesLoseLittle) {
  const PretendedGpus machine({h200()});
  double worst = 1;
  int count = 0;
  for (const char* text : problems) {
    Problem problem = Problem::parse(text);
    for (const std::int64_t largest : {2, 4, 8, 16, 32, 64, 128, 256, 1024, 8192, 32768}) {
      const auto with = [&](std::int64_t batch) {
        problem.batch = batch;
        return problem;
      };
      for (const auto& [known, other] :
           {std::pair{largest, largest / 2 + 1}, {largest / 2 + 1, largest}, {largest, largest * 3 / 4}}) {
        const BatchClass kind(with(known), false);
        const Learned learned = learned_of(problem);
        if (kind != BatchClass(with(other), false)) continue;
        ++count;
        const double ratio = search(problem, learned) / search(problem, {});
        EXPECT_LE(ratio, 1.1) << problem.to_string() << " after a batch of " << known;
        worst = std::max(worst, ratio);
      }
    }
  }
  std::printf("%d pairs, worst %.3f\n", count, worst);
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace kronsparse::cuda
