// Which GPU works, and that nobody notices: the caller's current device stays.
#include <gtest/gtest.h>

#include "kronsparse/kronsparse.h"
#include "kronsparse/multiply.hpp"
#include "operands.hpp"

namespace gpu_tests {
namespace {

using kronsparse::Device;
using kronsparse::Plan;
using kronsparse::Problem;
using Devices = GpuTest;

std::vector<Device> all_gpus() {
  std::vector<Device> all;
  for (const kronsparse::DeviceInfo& info : kronsparse::devices())
    if (info.device.backend == kronsparse::Backend::cuda) all.push_back(info.device);
  return all;
}

const char* const problem_text = "f32 batch_first B=100 4x32x32x8 +bias";

TEST_F(Devices, EveryGpuGivesTheSameResult) {
  const Problem problem = Problem::parse(problem_text);
  std::vector<std::byte> expected;
  for (const Device device : all_gpus()) {
    GpuOperands work(problem, 1, device);
    const Plan plan(problem, work.values(), device, "simt");
    plan.run(work.operands());
    if (expected.empty()) expected = work.result();
    EXPECT_EQ(work.result(), expected) << device.to_string();
  }
}

TEST_F(Devices, TheCurrentOneStays) {
  const Problem problem = Problem::parse(problem_text);
  for (const Device current : all_gpus()) {
    ASSERT_CUDA(cudaSetDevice(current.index));
    for (const Device device : all_gpus()) {
      GpuOperands work(problem, 1, device);
      const Plan plan(problem, work.values(), device);
      plan.run(work.operands());
      static_cast<void>(work.result());
      int now = -1;
      ASSERT_CUDA(cudaGetDevice(&now));
      EXPECT_EQ(now, current.index);
    }
  }
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST_F(Devices, PlansOfSeveralGpusRunSideBySide) {
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2) GTEST_SKIP() << "one GPU only";
  const Problem problem = Problem::parse("f32 batch_first B=4096 4x32x32x8");
  std::vector<GpuOperands> work;
  std::vector<Plan> plans;
  for (const Device device : gpus) {
    work.emplace_back(problem, 1, device);
    plans.emplace_back(problem, work.back().values(), device);
  }
  for (int run = 0; run < 10; ++run)
    for (std::size_t at = 0; at < gpus.size(); ++at) plans[at].run(work[at].operands());
  for (const GpuOperands& one : work) EXPECT_EQ(one.result(), work.front().result());
}

/// The one-shot calls, with intermediate results on the GPU. Small integers: exact in any order.
TEST_F(Devices, OneShotChainsAreThoseOfTheCpu) {
  using kronsparse::Buffer;
  const kronsparse::Chain chain{{1, 4, 4, 4}, {2, 4, 4, 2}, {4, 4, 4, 1}};
  constexpr std::int64_t batch = 37;
  std::vector<float> values(64);
  std::vector<float> x(batch * 16);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = static_cast<float>(at % 5) - 2;
  for (std::size_t at = 0; at < x.size(); ++at) x[at] = static_cast<float>(at % 7) - 3;
  std::vector<float> expected(x.size());
  const std::vector<kronsparse::ConstVector> on_cpu(3, {values.data(), 64});
  multiply(chain, on_cpu, {x.data(), batch, 16}, {expected.data(), batch, 16});

  const std::size_t bytes = x.size() * sizeof(float);
  Buffer values_there(values.size() * sizeof(float), gpu);
  Buffer x_there(bytes, gpu);
  const Buffer y_there(bytes, gpu);
  values_there.copy_from_host(values.data(), values_there.bytes());
  x_there.copy_from_host(x.data(), bytes);
  const auto as_floats = [](const Buffer& buffer) { return static_cast<float*>(buffer.data()); };
  const std::vector<kronsparse::ConstVector> on_gpu(3, {as_floats(values_there), 64});
  multiply(chain, on_gpu, {as_floats(x_there), batch, 16}, {as_floats(y_there), batch, 16}, {.device = gpu});
  std::vector<float> y(x.size());
  y_there.copy_to_host(y.data(), bytes);
  EXPECT_EQ(y, expected);
}

TEST_F(Devices, AreReachedFromTheCApi) {
  kronsparse_problem problem{};
  ASSERT_EQ(kronsparse_problem_parse(problem_text, &problem), KRONSPARSE_OK);
  GpuOperands work(Problem::parse(problem_text), 1);
  const OwnStream stream;
  kronsparse_plan* plan = nullptr;
  const void* const values[] = {work.values()};
  ASSERT_EQ(kronsparse_plan_create(&problem, values, "cuda:0", nullptr, &plan), KRONSPARSE_OK)
      << kronsparse_last_error();
  const kronsparse::Operands operands = work.operands(stream.get());
  kronsparse_operands same{};
  same.x = operands.x;
  same.y = operands.y;
  same.bias = operands.bias;
  same.stream = operands.stream;
  EXPECT_EQ(kronsparse_plan_run(plan, nullptr, &same), KRONSPARSE_OK) << kronsparse_last_error();
  const std::vector<std::byte> result = work.result();
  kronsparse_plan_destroy(plan);
  work.spoil_result();
  Plan(Problem::parse(problem_text), work.values(), gpu).run(work.operands());
  EXPECT_EQ(work.result(), result);
}

}  // namespace
}  // namespace gpu_tests
