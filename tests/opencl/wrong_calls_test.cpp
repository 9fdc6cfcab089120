// Calls that are wrong on OpenCL devices alone, each with its error.
#include "../unit/expect_error.hpp"
#include "kronsparse/opencl.hpp"
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
  expect_error(
      ErrorCode::parse,
      "device: 'opencl:no such words' given, must have a number or a part of the description of exactly one "
      "device; 'no such words' is in that of none",
      [] { static_cast<void>(Device::parse("opencl:no such words")); });
  // A device of the caller's context has the same description.
  const OpenclHandles handles = opencl_handles(opencl_0);
  const Device again = opencl_device(handles.context, handles.device_id);
  expect_beginning(
      ErrorCode::parse,
      "device: 'opencl:compute units' given, must have a number or a part of the description of exactly "
      "one device; 'compute units' is in that of opencl:" +
          std::to_string(again.index),
      [] { static_cast<void>(Device::parse("opencl:compute units")); });
}

/// Neither products nor gradients cut a batch that one buffer does not hold: memory for it is refused.
TEST_F(WrongCalls, OperandsAreNotLargerThanABuffer) {
  const opencl::PretendedDevices pretended([](opencl::DeviceFacts& facts) { facts.buffer_bytes = 16384; });
  for (const char* text : {"f32 batch_first B=9 2x3x4x5", "gradient f32 batch_last B=9 2x3x4x5"}) {
    const Problem small = Problem::parse(text);
    const Numbers<float> numbers(small);
    EXPECT_EQ(computed(small, numbers, opencl_0), numbers.y) << text;
    Problem large = small;
    large.batch = 900;
    const Numbers<float> more(large);
    expect_error(ErrorCode::out_of_memory,
                 "buffer: " + std::to_string(more.x.size() * sizeof(float)) +
                     " bytes given, opencl:0 has at most 16384 in one buffer (CL_DEVICE_MAX_MEM_ALLOC_SIZE)",
                 [&] { static_cast<void>(computed(large, more, opencl_0)); });
  }
}

/// An operand that begins one element too late ends beyond its buffer.
TEST_F(WrongCalls, GradientsCheckAllTheirOperands) {
  const Problem gradient = Problem::parse("gradient f32 batch_first B=9 2x3x4x5");
  const Numbers<float> numbers(gradient);
  const Buffer x = on_device(numbers.x, opencl_0);
  const Buffer g = on_device(numbers.second, opencl_0);
  const Buffer y(numbers.y.size() * sizeof(float), opencl_0);
  const Plan plan(gradient, opencl_0);
  const auto past = [](const Buffer& buffer) { return static_cast<float*>(buffer.data()) + 1; };
  expect_beginning(ErrorCode::bad_pointer, "x: 1436 bytes of a buffer",
                   [&] { plan.run({.x = past(x), .y = y.data(), .g = g.data()}); });
  expect_beginning(ErrorCode::bad_pointer, "g: 1076 bytes of a buffer",
                   [&] { plan.run({.x = x.data(), .y = y.data(), .g = past(g)}); });
  expect_beginning(ErrorCode::bad_pointer, "y: 476 bytes of a buffer",
                   [&] { plan.run({.x = x.data(), .y = past(y), .g = g.data()}); });
}

}  // namespace
}  // namespace kronsparse
