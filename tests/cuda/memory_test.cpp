// A GPU's memory: what runs leave of it, and what happens when it runs out.
#include <algorithm>
#include <optional>

#include "kronsparse/error.hpp"
#include "operands.hpp"

namespace gpu_tests {
namespace {

using kronsparse::Buffer;
using kronsparse::Error;
using kronsparse::ErrorCode;
using kronsparse::Plan;
using kronsparse::Problem;
using Memory = GpuTest;

std::size_t free_memory() {
  std::size_t available = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  return available;
}

TEST_F(Memory, BuffersCopyClearAndMove) {
  std::vector<char> text(1000, 'a');
  Buffer buffer(text.size(), gpu);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  buffer.copy_from_host(text.data(), text.size());
  buffer.copy_from_host("xyz", 3, 500);
  Buffer copy(text.size(), gpu);
  copy.copy_from(buffer);
  buffer.clear();
  std::vector<char> back(text.size());
  copy.copy_to_host(back.data(), back.size());
  std::copy_n("xyz", 3, text.begin() + 500);
  EXPECT_EQ(back, text);
  const Buffer moved = std::move(buffer);
  moved.copy_to_host(back.data(), back.size());
  EXPECT_EQ(back, std::vector<char>(1000, '\0'));
}

TEST_F(Memory, TimersMeasureTheGpu) {
  constexpr std::size_t bytes = std::size_t{256} << 20;
  Buffer from(bytes, gpu);
  Buffer to(bytes, gpu);
  from.clear();
  kronsparse::Timer timer(gpu);
  timer.mark();
  to.copy_from(from);
  timer.mark();
  for (int repeat = 0; repeat < 10; ++repeat) to.copy_from(from);
  timer.mark();
  const std::vector<double> seconds = timer.seconds();
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_GT(seconds[0], bytes / 20e12);  // no GPU copies 20 TB/s
  EXPECT_GT(seconds[1], 2 * seconds[0]);
}

TEST_F(Memory, PlansThatShareAKernelDoNotShareItsLimits) {
  // Each pair takes the same kernel with much and with little shared memory.
  constexpr std::pair<const char*, const char*> pairs[] = {
      {"f16 batch_last B=64 1x64x512x2", "f16 batch_last B=64 1x64x16x2"},
      {"f16 batch_first B=64 1x64x512x1", "f16 batch_first B=64 1x64x16x1"},
      {"bf16 batch_first B=64 1x64x512x4", "bf16 batch_first B=64 1x64x16x4"},
      {"f32 batch_first B=64 1x64x512x8", "f32 batch_first B=64 1x64x16x8"},
      {"f64 batch_last B=64 1x64x512x2", "f64 batch_last B=64 1x64x16x2"},
      {"gradient f32 batch_first B=64 1x64x512x8", "gradient f32 batch_first B=64 1x64x16x8"},
  };
  for (const auto& [large_text, small_text] : pairs) {
    const Problem large = Problem::parse(large_text);
    const Problem small = Problem::parse(small_text);
    const GpuOperands large_operands(large, 1);
    const GpuOperands small_operands(small, 2);
    for (const kronsparse::Candidate& candidate : kronsparse::candidates(large, gpu)) {
      if (!candidate.refusal.empty()) continue;
      SCOPED_TRACE(std::string(large_text) + " by " + candidate.implementation);
      const Plan plan(large, large_operands.values(), gpu, candidate.implementation);
      plan.run(large_operands.operands());
      const std::vector<std::byte> before = large_operands.result();
      const Plan other(small, small_operands.values(), gpu, candidate.implementation);
      other.run(small_operands.operands());
      plan.run(large_operands.operands());
      EXPECT_EQ(large_operands.result(), before);
    }
  }
}

TEST_F(Memory, RunsTakeNone) {
  for (const Job& job : jobs()) {
    SCOPED_TRACE(job.implementation + ": " + job.problem.to_string());
    const GpuOperands work(job.problem, 1);
    const Plan plan(job.problem, work.values(), gpu, job.implementation);
    plan.run(work.operands());  // the driver may load the kernel now
    ASSERT_CUDA(cudaDeviceSynchronize());
    const std::size_t before = free_memory();
    for (int run = 0; run < 100; ++run) plan.run(work.operands());
    ASSERT_CUDA(cudaDeviceSynchronize());
    EXPECT_GE(free_memory(), before);
  }
}

TEST_F(Memory, PlansGiveBackWhatTheyTook) {
  const Problem problem = Problem::parse("f32 batch_first B=64 4x1024x1024x16");
  const GpuOperands work(problem, 1);
  for (const kronsparse::Candidate& candidate : candidates(problem, gpu)) {
    if (!candidate.refusal.empty()) continue;
    SCOPED_TRACE(candidate.implementation);
    { const Plan warm_up(problem, work.values(), gpu, candidate.implementation); }
    const std::size_t before = free_memory();
    {
      const Plan plan(problem, work.values(), gpu, candidate.implementation);
      EXPECT_GT(plan.packed_bytes(), 0U);
      EXPECT_LE(free_memory() + plan.packed_bytes(), before);
    }
    EXPECT_GE(free_memory(), before);
  }
}

TEST_F(Memory, ABufferThatDoesNotFitSaysSo) {
  try {
    const Buffer buffer(std::size_t{1} << 50, gpu);
    FAIL() << "a pebibyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    const std::string text = error.what();
    EXPECT_NE(text.find("1125899906842624 bytes on cuda:0"), std::string::npos) << text;
    EXPECT_NE(text.find("free"), std::string::npos) << text;
  }
  // CUDA must not hand that error to the next who asks.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

/// Takes memory until less than `left` bytes remain.
std::vector<Buffer> take_all_but(std::size_t left) {
  std::vector<Buffer> taken;
  for (std::size_t part = std::size_t{64} << 30; part >= left; part /= 2) {
    try {
      while (true) taken.emplace_back(part, gpu);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
  }
  return taken;
}

TEST_F(Memory, APlanThatDoesNotFitSaysSoAndHarmsNothing) {
  const Problem small = Problem::parse("f32 batch_first B=64 4x32x32x16");
  GpuOperands small_work(small, 1);
  const Plan small_plan(small, small_work.values(), gpu);
  small_plan.run(small_work.operands());
  const std::vector<std::byte> expected = small_work.result();

  // Values of 512 MiB, and then no room to pack them.
  const Problem large = Problem::parse("f32 batch_first B=1 8x1024x1024x16");
  const Buffer values(static_cast<std::size_t>(large.pattern().nnz()) * sizeof(float), gpu);
  for (const kronsparse::Candidate& candidate : candidates(large, gpu)) {
    if (!candidate.refusal.empty()) continue;
    SCOPED_TRACE(candidate.implementation);
    std::vector<Buffer> taken = take_all_but(std::size_t{32} << 20);
    try {
      const Plan plan(large, values.data(), gpu, candidate.implementation);
      ADD_FAILURE() << "half a gibibyte was found, packed_bytes " << plan.packed_bytes();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    small_work.spoil_result();
    small_plan.run(small_work.operands());
    EXPECT_EQ(small_work.result(), expected);
    taken.clear();
    EXPECT_NO_THROW(Plan(large, values.data(), gpu, candidate.implementation));
  }
}

}  // namespace
}  // namespace gpu_tests
