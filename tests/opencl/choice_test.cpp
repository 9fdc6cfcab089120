// Which tiles a large GPU gets, by the options that its kernels are compiled with.
#include <cstdlib>
#include <string>

#include "kronsparse/error.hpp"
#include "opencl/runtime.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

using opencl::DeviceFacts;
using opencl::PretendedDevices;

/// Facts of an H200, as NVIDIA's driver has them.
void become_h200(DeviceFacts& facts) {
  facts.name = "NVIDIA H200";
  facts.platform = "NVIDIA CUDA";
  facts.is_cpu = false;
  facts.compute_units = 132;
  facts.clock_hz = 1.98e9;
  facts.local_bytes = 48 << 10;
  facts.work_group = 1024;
  facts.vector_bytes = 4;
}

class Choice : public OpenclTest {
 public:
  // No kernel is compiled: whoever tries says with which options.
  Choice() { setenv("KRONSPARSE_OPENCL_OPTIONS", "-D Sum=1", 1); }
  ~Choice() override { unsetenv("KRONSPARSE_OPENCL_OPTIONS"); }

 protected:
  /// "2x64x96" of the tile's j, m and n, and " limited" where the kernel's registers are.
  static std::string tile_of(const std::string& problem) {
    try {
      static_cast<void>(Plan(Problem::parse(problem), opencl_0));
    } catch (const Error& error) {
      const std::string text = error.what();
      const auto option = [&](const std::string& name) {
        const std::size_t begin = text.find("-D " + name + "=") + name.size() + 4;
        return text.substr(begin, text.find(' ', begin) - begin);
      };
      const bool is_limited = text.find("-D LIMITS_REGISTERS=1 -cl-nv-maxrregcount=") != std::string::npos;
      return option("TILE_J") + "x" + option("TILE_M") + "x" + option("TILE_N") +
             (is_limited ? " limited" : "");
    }
    return "a kernel was built";
  }

  PretendedDevices h200_{become_h200};
};

TEST_F(Choice, TilesFitTheBlocks) {
  const auto tile = [](const std::string& sizes) { return tile_of("f32 batch_last B=25088 " + sizes); };
  EXPECT_EQ(tile("2x48x48x64"), "1x256x48 limited");
  EXPECT_EQ(tile("12x48x192x16"), "1x256x48 limited");
  EXPECT_EQ(tile("1x64x64x32"), "1x256x64 limited");
  EXPECT_EQ(tile("6x96x96x16"), "1x128x96 limited");
  EXPECT_EQ(tile("1x192x192x32"), "1x128x96 limited");
  EXPECT_EQ(tile("1x1024x1024x4"), "1x128x128 limited");
}

/// Runs of eight j are whole sectors, which counts where x and y are most of the work; runs of four leave
/// room for a tile that reads its operands less often.
TEST_F(Choice, RunsOfJAreAsLongAsTheBlocksAllow) {
  const auto tile = [](const std::string& sizes) { return tile_of("f32 batch_first B=25088 " + sizes); };
  EXPECT_EQ(tile("2x48x48x64"), "8x32x48 limited");
  EXPECT_EQ(tile("1x64x64x32"), "8x32x64 limited");
  EXPECT_EQ(tile("1x1024x1024x32"), "4x64x64 limited");
  EXPECT_EQ(tile("96x96x96x4"), "4x64x48 limited");
  EXPECT_EQ(tile("1x512x512x2"), "2x64x128 limited");
  EXPECT_EQ(tile("1x1024x1024x1"), "1x128x128 limited");
}

/// Of half types 16 j are a sector.
TEST_F(Choice, TilesOfHalfTypesAreChosenByTheirBytes) {
  const auto tile = [](const std::string& sizes) { return tile_of("f16 batch_first B=25088 " + sizes); };
  EXPECT_EQ(tile("1x64x64x32"), "16x32x32 limited");
  EXPECT_EQ(tile("1x64x64x8"), "8x32x64 limited");
  EXPECT_EQ(tile("96x96x96x4"), "4x64x48 limited");
  EXPECT_EQ(tile_of("bf16 batch_last B=25088 1x64x64x32"), "1x256x64 limited");
}

/// Sums of eight bytes would not fit the limit, and other drivers do not know the option.
TEST_F(Choice, RegistersAreLimitedWhereThatLeavesRoomForTheSums) {
  EXPECT_EQ(tile_of("f64 batch_last B=25088 1x1024x1024x4").find("limited"), std::string::npos);
  EXPECT_EQ(tile_of("complex64 batch_last B=25088 1x1024x1024x4").find("limited"), std::string::npos);
  EXPECT_NE(tile_of("bf16 batch_last B=25088 1x1024x1024x4").find("limited"), std::string::npos);
  const PretendedDevices other([](DeviceFacts& facts) { facts.platform = "Another"; });
  EXPECT_EQ(tile_of("f32 batch_last B=25088 1x1024x1024x4"), "1x128x128");
}

}  // namespace
}  // namespace kronsparse
