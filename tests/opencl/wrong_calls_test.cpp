// Calls that are wrong on OpenCL devices alone, each with its error.
#include "../unit/expect_error.hpp"
#include "opencl/runtime.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

using WrongCalls = OpenclTest;

const Problem problem = Problem::parse("f32 batch_first B=9 2x3x4x5");

TEST_F(WrongCalls, MemoryOfTheHostIsRefused) {
  const Numbers<float> numbers(problem);
  std::vector<float> y(numbers.y.size(), 7.0f);
  const Buffer values = on_device(numbers.second, opencl_0);
  const Plan plan(problem, values.data(), opencl_0);
  expect_beginning(ErrorCode::bad_pointer, "x: address ",
                   [&] { plan.run({.x = numbers.x.data(), .y = y.data()}); });
  const Buffer x = on_device(numbers.x, opencl_0);
  expect_beginning(ErrorCode::bad_pointer, "y: address ", [&] { plan.run({.x = x.data(), .y = y.data()}); });
  EXPECT_EQ(y, std::vector<float>(y.size(), 7.0f));
  expect_beginning(ErrorCode::bad_pointer, "values: address ",
                   [&] { Plan(problem, numbers.second.data(), opencl_0); });
}

TEST_F(WrongCalls, BuffersThatAreTooShortAreNotWritten) {
  const Numbers<float> numbers(problem);
  const Buffer x = on_device(numbers.x, opencl_0);
  const Buffer values = on_device(numbers.second, opencl_0);
  const Buffer y = on_device(std::vector<float>(numbers.y.size() - 1, 7.0f), opencl_0);
  const Plan plan(problem, values.data(), opencl_0);
  expect_error(ErrorCode::bad_pointer, "y: 1076 bytes of a buffer lie at the address given, 1080 are needed",
               [&] { plan.run({.x = x.data(), .y = y.data()}); });
  EXPECT_EQ(on_host<float>(y), std::vector<float>(numbers.y.size() - 1, 7.0f));
}

TEST_F(WrongCalls, MemoryRunsOut) {
  const std::size_t most = opencl::facts_of(opencl_0).buffer_bytes;
  expect_error(ErrorCode::out_of_memory,
               "buffer: " + std::to_string(most + 1) + " bytes given, opencl:0 has at most " +
                   std::to_string(most) + " in one buffer (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
               [&] { Buffer(most + 1, opencl_0); });
}

TEST_F(WrongCalls, DevicesThatAreNotThere) {
  expect_beginning(ErrorCode::device,
                   "device: opencl:99 cannot be used, there is no such device; present: cpu", [] {
                     Buffer(1, {Backend::opencl, 99});
                   });
  expect_beginning(ErrorCode::parse, "device: 'no such words' in 'opencl:no such words'",
                   [] { static_cast<void>(Device::parse("opencl:no such words")); });
}

}  // namespace
}  // namespace kronsparse
