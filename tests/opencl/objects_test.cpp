// Contexts, queues and buffers of the caller's; threads.
#include <array>
#include <thread>

#include "../unit/expect_error.hpp"
#include "kronsparse/kronsparse.h"
#include "kronsparse/opencl.hpp"
#include "opencl/api.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

using opencl::api;

const Problem problem = Problem::parse("f32 batch_first B=9 2x3x4x5");

/// A program's own OpenCL, as it would be beside the library.
class Objects : public OpenclTest {
 protected:
  void SetUp() override {
    OpenclTest::SetUp();
    if (IsSkipped()) return;
    id = static_cast<cl_device_id>(opencl_handles(opencl_0).device_id);
    cl_int status = CL_SUCCESS;
    context = api().create_context(nullptr, 1, &id, nullptr, nullptr, &status);
    ASSERT_EQ(status, CL_SUCCESS);
    queue = api().create_command_queue(context, id, 0, &status);
    ASSERT_EQ(status, CL_SUCCESS);
    device = opencl_device(context, id);
  }

  [[nodiscard]] cl_mem buffer_of(const std::vector<float>& host, std::size_t front = 0) const {
    cl_int status = CL_SUCCESS;
    cl_mem buffer = api().create_buffer(context, CL_MEM_READ_WRITE, (front + host.size()) * sizeof(float),
                                        nullptr, &status);
    EXPECT_EQ(status, CL_SUCCESS);
    EXPECT_EQ(api().enqueue_write_buffer(queue, buffer, CL_TRUE, front * sizeof(float),
                                         host.size() * sizeof(float), host.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    return buffer;
  }

  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  Device device;
};

TEST_F(Objects, OfTheCallerAreUsedAsTheyAre) {
  EXPECT_EQ(device, opencl_device(context, id));
  EXPECT_NE(device, opencl_0);
  EXPECT_EQ(opencl_handles(device).context, context);
  const Numbers<float> numbers(problem);
  constexpr std::size_t front = 3;  // elements before x and y
  cl_mem x = buffer_of(numbers.x, front);
  cl_mem values = buffer_of(numbers.second);
  cl_mem y = buffer_of(std::vector<float>(numbers.y.size(), -1.0f), front);
  auto* const x_address = static_cast<float*>(opencl_address(device, x));
  auto* const y_address = static_cast<float*>(opencl_address(device, y));
  void* const values_address = opencl_address(device, values);
  ASSERT_EQ(api().release_mem_object(x), CL_SUCCESS);  // the address keeps it

  const Plan plan(problem, values_address, device);
  plan.run({.x = x_address + front, .y = y_address + front, .stream = queue});
  std::vector<float> answer(numbers.y.size());
  ASSERT_EQ(api().enqueue_read_buffer(queue, y, CL_TRUE, front * sizeof(float), answer.size() * sizeof(float),
                                      answer.data(), 0, nullptr, nullptr),
            CL_SUCCESS);
  EXPECT_EQ(answer, numbers.y);
  opencl_forget(device, x_address);
  opencl_forget(device, y_address);
  opencl_forget(device, values_address);
  expect_beginning(ErrorCode::bad_pointer, "x: address",
                   [&] { plan.run({.x = x_address + front, .y = y_address + front, .stream = queue}); });
}

TEST_F(Objects, OfAnotherContextAreRefused) {
  cl_mem other = buffer_of({1.0f});
  expect_error(ErrorCode::invalid_argument,
               "buffer: one of another context given, must be of that of opencl:0",
               [&] { static_cast<void>(opencl_address(opencl_0, other)); });
  expect_error(ErrorCode::invalid_argument,
               "stream: a queue of another context or device given, must be of opencl:0",
               [&] { synchronise(opencl_0, queue); });
  expect_error(ErrorCode::invalid_argument, "device: cpu given, must be one of OpenCL",
               [&] { static_cast<void>(opencl_address({}, other)); });
  expect_beginning(ErrorCode::bad_pointer, "address: ", [&] { opencl_forget(device, &other); });
  expect_error(ErrorCode::bad_pointer, "buffer: null given",
               [&] { static_cast<void>(opencl_address(device, nullptr)); });
  expect_error(ErrorCode::bad_pointer, "context: null given",
               [&] { static_cast<void>(opencl_device(nullptr, id)); });
}

TEST_F(Objects, QueuesMustBeInOrder) {
  cl_int status = CL_SUCCESS;
  cl_command_queue unordered =
      api().create_command_queue(context, id, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &status);
  if (status != CL_SUCCESS) GTEST_SKIP() << "the device has no other queues";
  expect_error(ErrorCode::invalid_argument, "stream: a queue out of order given, must be one in order",
               [&] { synchronise(device, unordered); });
}

TEST_F(Objects, QueuesWithoutTimesHaveNone) {
  Timer timer(device, queue);
  timer.mark();
  timer.mark();
  expect_beginning(ErrorCode::device, "opencl: measuring time on " + device.to_string(),
                   [&] { static_cast<void>(timer.seconds()); });
}

TEST_F(Objects, AreReachedFromCToo) {
  kronsparse_device made{};
  ASSERT_EQ(kronsparse_opencl_device(context, id, &made), KRONSPARSE_OK) << kronsparse_last_error();
  EXPECT_EQ(made.name, device.to_string());
  void* own = nullptr;
  ASSERT_EQ(kronsparse_opencl_handles(made.name, &own, nullptr, nullptr), KRONSPARSE_OK);
  EXPECT_EQ(own, context);
  void* address = nullptr;
  ASSERT_EQ(kronsparse_opencl_address(made.name, buffer_of({1.0f, 2.0f}), &address), KRONSPARSE_OK);
  std::array<float, 2> back{};
  ASSERT_EQ(kronsparse_copy_to_host(made.name, back.data(), address, sizeof back, queue), KRONSPARSE_OK);
  EXPECT_EQ(back, (std::array{1.0f, 2.0f}));
  EXPECT_EQ(kronsparse_opencl_forget(made.name, address), KRONSPARSE_OK);
  EXPECT_EQ(kronsparse_opencl_forget(made.name, address), KRONSPARSE_BAD_POINTER);
}

TEST_F(Objects, TwoThreadsRunOnePlan) {
  const Numbers<float> numbers(problem);
  const Buffer values = on_device(numbers.second, opencl_0);
  const Plan plan(problem, values.data(), opencl_0);
  std::array<bool, 2> is_right{};
  std::vector<std::thread> threads;
  threads.reserve(is_right.size());
  for (bool& right : is_right)
    threads.emplace_back([&plan, &numbers, &right] {
      const Buffer x = on_device(numbers.x, opencl_0);
      Buffer y(numbers.y.size() * sizeof(float), opencl_0);
      right = true;
      for (int repeat = 0; repeat < 50; ++repeat) {
        y.clear();
        plan.run({.x = x.data(), .y = y.data()});
        right = right && on_host<float>(y) == numbers.y;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(is_right[0] && is_right[1]);
}

}  // namespace
}  // namespace kronsparse
