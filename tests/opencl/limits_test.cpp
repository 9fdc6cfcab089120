// Devices that are made up: little local memory, small work-groups, no f64.
#include "../unit/expect_error.hpp"
#include "opencl/program.hpp"
#include "opencl/runtime.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

using opencl::DeviceFacts;
using opencl::PretendedDevices;
using Limits = OpenclTest;

std::string refusal(const char* implementation, const std::string& text) {
  for (const Candidate& candidate : candidates(Problem::parse(text), opencl_0))
    if (candidate.implementation == implementation) return candidate.refusal;
  return "not in the table";
}

const std::vector<std::string>& every_kind() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> made;
    for (const char* operation : {"", "transposed ", "gradient "})
      for (const char* dtype : {"f32", "f64", "f16", "bf16", "complex64", "complex128"})
        for (const char* layout : {"batch_first", "batch_last"})
          for (const char* size :
               {"B=1 2x3x4x5", "B=25088 1x128x128x64", "B=1000 7x48x96x3", "B=4096 64x64x64x1"})
            made.push_back(std::string(operation) + dtype + " " + layout + " " + size);
    return made;
  }();
  return all;
}

TEST_F(Limits, EverySmallDeviceHasAKernelThatFits) {
  const std::vector<void (*)(DeviceFacts&)> devices = {
      [](DeviceFacts& facts) { facts.local_bytes = 16 << 10; },
      [](DeviceFacts& facts) { facts.local_bytes = 32 << 10; },
      [](DeviceFacts& facts) { facts.work_group = 64; },
      [](DeviceFacts& facts) {
        facts.local_bytes = 16 << 10;
        facts.work_group = 64;
        facts.is_cpu = false;
      }};
  for (const auto change : devices) {
    const PretendedDevices pretended(change);
    for (const std::string& text : every_kind()) {
      EXPECT_EQ(refusal("local", text), "") << text;
      EXPECT_EQ(refusal("private", text), "") << text;
    }
  }
}

TEST_F(Limits, ADeviceWithoutLocalMemoryHasPrivateMemory) {
  const PretendedDevices pretended([](DeviceFacts& facts) {
    facts.name = "Toy";
    facts.local_bytes = 1000;
    facts.work_group = 8;
  });
  for (const std::string& text : every_kind()) EXPECT_EQ(refusal("private", text), "") << text;
  EXPECT_EQ(refusal("local", "f32 batch_first B=1 2x3x4x5"),
            "needs 2624 bytes of local memory and work-groups of 16; Toy has 1000 and 8");
}

TEST_F(Limits, NoDtypeIsTriedThatTheDeviceLacks) {
  const PretendedDevices pretended([](DeviceFacts& facts) {
    facts.name = "Toy";
    facts.has_f64 = false;
  });
  EXPECT_EQ(refusal("private", "f32 batch_first B=1 2x3x4x5"), "");
  EXPECT_EQ(refusal("private", "f64 batch_first B=1 2x3x4x5"),
            "needs a device with f64 (cl_khr_fp64) for f64; Toy has none");
  EXPECT_EQ(refusal("local", "complex128 batch_first B=1 2x3x4x5"),
            "needs a device with f64 (cl_khr_fp64) for complex128; Toy has none");
}

TEST_F(Limits, APlanSaysWhichExtensionIsMissing) {
  const PretendedDevices pretended([](DeviceFacts& facts) {
    facts.name = "Toy";
    facts.has_f64 = false;
  });
  expect_error(ErrorCode::unsupported,
               "problem: no implementation on opencl:0 accepts f64 batch_first B=1 2x3x4x5 (local: needs a "
               "device with f64 (cl_khr_fp64) for f64; Toy has none; private: needs a device with f64 "
               "(cl_khr_fp64) for f64; Toy has none)",
               [] { Plan(Problem::parse("f64 batch_first B=1 2x3x4x5"), opencl_0); });
}

TEST_F(Limits, SmallTilesComputeTheSame) {
  const PretendedDevices pretended([](DeviceFacts& facts) {
    facts.local_bytes = 16 << 10;
    facts.work_group = 64;
  });
  for (const char* text : {"f32 batch_first B=70 2x70x33x1", "f64 batch_last B=70 2x70x33x3"}) {
    const Problem problem = Problem::parse(text);
    const auto is_right = [&]<class T>(const Numbers<T>& numbers) {
      return computed(problem, numbers, opencl_0, "local") == numbers.y;
    };
    EXPECT_TRUE(problem.dtype == DType::f32 ? is_right(Numbers<float>(problem))
                                            : is_right(Numbers<double>(problem)))
        << text;
  }
}

/// A kernel may need so many registers that the driver runs it with smaller work-groups than the device has.
TEST_F(Limits, KernelsThatNeedTooManyRegistersGiveWayToSmallerTiles) {
  const Problem problem = Problem::parse("f32 batch_last B=70 1x40x33x1");
  const Numbers<float> numbers(problem);
  {
    const PretendedDevices pretended([](DeviceFacts& facts) { facts.kernel_group = 16; });
    opencl::forget_programs();
    EXPECT_EQ(computed(problem, numbers, opencl_0, "local"), numbers.y);
  }
  const PretendedDevices pretended([](DeviceFacts& facts) {
    facts.name = "Toy";
    facts.kernel_group = 8;
  });
  opencl::forget_programs();
  expect_error(ErrorCode::device,
               "opencl: Toy runs the kernel for f32 batch_last B=70 1x40x33x1 with work-groups of 8 at most, "
               "local needs 16 or more; KRONSPARSE_IMPL=private needs none",
               [&] { static_cast<void>(computed(problem, numbers, opencl_0, "local")); });
  EXPECT_EQ(computed(problem, numbers, opencl_0, "private"), numbers.y);
  opencl::forget_programs();
}

TEST_F(Limits, WithoutADriverEverythingElseWorks) {
  const PretendedDevices pretended("there is no driver today");
  EXPECT_EQ(why_unusable(opencl_0), "there is no driver today");
  for (const DeviceInfo& info : devices()) EXPECT_NE(info.device.backend, Backend::opencl);
}

/// What is kept on disk for a device is found by its description, whatever else the machine does.
TEST_F(Limits, TheDescriptionOfACpuDoesNotChangeWithItsFreeMemory) {
  DeviceFacts facts = opencl::facts_of(opencl_0);
  const auto description = [&](bool is_cpu, std::size_t bytes) {
    facts.is_cpu = is_cpu;
    facts.memory_bytes = bytes;
    return to_string(facts);
  };
  EXPECT_EQ(description(true, std::size_t{8} << 30), description(true, std::size_t{9} << 30));
  EXPECT_NE(description(false, std::size_t{8} << 30), description(false, std::size_t{9} << 30));
}

TEST_F(Limits, DevicesAreFoundByTheirDescription) {
  const PretendedDevices pretended(
      [](DeviceFacts& facts) { facts.name = facts.index == 0 ? "Toy Nine" : "Other"; });
  EXPECT_EQ(Device::parse("opencl:toy nine"), opencl_0);
}

}  // namespace
}  // namespace kronsparse
