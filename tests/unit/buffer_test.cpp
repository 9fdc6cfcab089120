// Memory and time of the device that is always there.
#include "kronsparse/buffer.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "expect_error.hpp"
#include "kronsparse/multiply.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {
namespace {

std::vector<char> content(const Buffer& buffer) {
  std::vector<char> bytes(buffer.bytes());
  buffer.copy_to_host(bytes.data(), bytes.size());
  return bytes;
}

TEST(BufferTest, CopiesInAndOut) {
  Buffer buffer(6);
  EXPECT_EQ(buffer.bytes(), 6U);
  EXPECT_EQ(buffer.device(), Device{});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  buffer.clear();
  EXPECT_EQ(content(buffer), std::vector<char>(6, '\0'));
  buffer.copy_from_host("abcdef", 6);
  buffer.copy_from_host("XY", 2, 3);
  EXPECT_EQ(content(buffer), (std::vector<char>{'a', 'b', 'c', 'X', 'Y', 'f'}));
  char part[2] = {};
  buffer.copy_to_host(part, 2, 4);
  EXPECT_EQ(std::string(part, 2), "Yf");
  Buffer other(6);
  other.copy_from(buffer);
  EXPECT_EQ(content(other), content(buffer));
}

TEST(BufferTest, MovesAndMayBeEmpty) {
  Buffer buffer(3);
  buffer.copy_from_host("abc", 3);
  void* const address = buffer.data();
  Buffer moved(std::move(buffer));
  EXPECT_EQ(moved.data(), address);
  Buffer assigned;
  EXPECT_EQ(assigned.data(), nullptr);
  assigned = std::move(moved);
  EXPECT_EQ(content(assigned), (std::vector<char>{'a', 'b', 'c'}));
  Buffer nothing(0);
  EXPECT_EQ(nothing.data(), nullptr);
  nothing.clear();
  nothing.copy_from_host(nullptr, 0);
  nothing.copy_from(Buffer(0));
  EXPECT_TRUE(content(nothing).empty());
}

TEST(BufferTest, RefusesWhatDoesNotFit) {
  Buffer buffer(6);
  expect_error(ErrorCode::size_mismatch, "bytes: 7 at offset 0 given, the buffer has 6",
               [&] { buffer.copy_from_host("abcdefg", 7); });
  char out[8] = {};
  expect_error(ErrorCode::size_mismatch, "bytes: 4 at offset 3 given, the buffer has 6",
               [&] { buffer.copy_to_host(out, 4, 3); });
  expect_error(ErrorCode::size_mismatch, "bytes: 1 at offset 18446744073709551615 given, the buffer has 6",
               [&] { buffer.copy_to_host(out, 1, std::numeric_limits<std::size_t>::max()); });
  expect_error(ErrorCode::bad_pointer, "from: null given for 6 bytes",
               [&] { buffer.copy_from_host(nullptr, 6); });
  expect_error(ErrorCode::bad_pointer, "to: null given for 6 bytes",
               [&] { buffer.copy_to_host(nullptr, 6); });
  expect_error(ErrorCode::size_mismatch, "other: a buffer of 5 bytes given, must have 6",
               [&] { buffer.copy_from(Buffer(5)); });
}

TEST(BufferTest, SaysWhenMemoryRunsOut) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer ends the process where new would throw";
#endif
  // One that wraps to nothing when it is rounded up to the alignment, and one that does not.
  expect_error(ErrorCode::out_of_memory, "buffer: 18446744073709551615 bytes are more than cpu has left",
               [] { Buffer buffer(std::numeric_limits<std::size_t>::max()); });
  constexpr std::size_t too_much = std::size_t{1} << 62;
  expect_error(ErrorCode::out_of_memory, "buffer: 4611686018427387904 bytes are more than cpu has left",
               [] { Buffer buffer(too_much); });
}

TEST(BufferTest, OfADeviceThatIsNotThere) {
  const Device missing{Backend::cuda, 999};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { Buffer buffer(1, missing); }, [&] { Buffer buffer(0, missing); },
           [&] { synchronise(missing); }, [&] { Timer timer(missing); },
           [&] {
             char byte = 0;
             copy_from_host(&byte, "x", 1, missing);
           }})
    expect_code(ErrorCode::device, "a missing device", call);
}

TEST(BufferTest, CopiesOfOtherMemory) {
  char there[3] = {};
  char back[3] = {};
  copy_from_host(there, "abc", 3, {});
  copy_to_host(back, there, 3, {});
  EXPECT_EQ(std::string(back, 3), "abc");
  expect_error(ErrorCode::bad_pointer, "to: null given for 1 bytes",
               [] { copy_from_host(nullptr, "x", 1, {}); });
}

TEST(TimerTest, MeasuresBetweenMarks) {
  Timer timer;
  EXPECT_TRUE(timer.seconds().empty());
  timer.mark();
  EXPECT_TRUE(timer.seconds().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  timer.mark();
  timer.mark();
  Timer moved = std::move(timer);
  const std::vector<double> seconds = moved.seconds();
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_GE(seconds[0], 0.02);
  EXPECT_GE(seconds[1], 0.0);
  EXPECT_LT(seconds[1], seconds[0]);
}

TEST(PlanTest, AnEmptyGradientIsZero) {
  const Problem problem = Problem::parse("gradient f32 batch_first B=0 1x2x3x4");
  std::vector<float> y(24, 5.0F);
  Plan(problem, nullptr).run({.y = y.data()});
  EXPECT_EQ(y, std::vector<float>(24, 0.0F));
}

}  // namespace
}  // namespace kronsparse
