// Kernels between guard bands: what lies around operands is neither written nor of any effect, whether
// vectors can be loaded and stored or not; and gradients whose sums several teams share.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "opencl/program.hpp"
#include "opencl/runtime.hpp"
#include "opencl_test.hpp"

namespace kronsparse {
namespace {

using opencl::DeviceFacts;
using opencl::PretendedDevices;
using Kernels = OpenclTest;

template <class T>
bool is_nan(T element) {
  return std::isnan(element);
}
template <>
bool is_nan(std::uint16_t bits) {
  return bits == 0x7fff;  // the one that guards are made of, in f16 and in bf16
}

template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <>
constexpr std::uint16_t nan<std::uint16_t> = 0x7fff;

/// Elements in device memory with NaN before and behind them.
template <class T>
class Guarded {
 public:
  /// `front` elements of NaN come first: vectors are aligned where that is a multiple of four.
  Guarded(const std::vector<T>& elements, std::size_t front)
      : front_(front),
        count_(elements.size()),
        buffer_((front + elements.size() + back) * sizeof(T), opencl_0) {
    std::vector<T> all(front + elements.size() + back, nan<T>);
    std::ranges::copy(elements, all.begin() + static_cast<std::ptrdiff_t>(front));
    buffer_.copy_from_host(all.data(), buffer_.bytes());
  }

  [[nodiscard]] T* data() const { return static_cast<T*>(buffer_.data()) + front_; }
  [[nodiscard]] std::vector<T> elements() const {
    const std::vector<T> all = on_host<T>(buffer_);
    return {all.begin() + static_cast<std::ptrdiff_t>(front_),
            all.begin() + static_cast<std::ptrdiff_t>(front_ + count_)};
  }
  [[nodiscard]] bool has_its_guards() const {
    std::vector<T> all = on_host<T>(buffer_);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(front_),
              all.begin() + static_cast<std::ptrdiff_t>(front_ + count_));
    return std::ranges::all_of(all, [](T element) { return is_nan(element); });
  }

 private:
  static constexpr std::size_t back = 300;  // more than a tile's row
  std::size_t front_, count_;
  Buffer buffer_;
};

template <class T = float>
void expect_stays_inside(const std::string& text, const char* implementation, std::size_t front) {
  SCOPED_TRACE(text + " by " + implementation + ", " + std::to_string(front) + " in front");
  const Problem problem = Problem::parse(text);
  const Numbers<T> numbers(problem);
  const Guarded<T> x(numbers.x, front);
  const Guarded<T> second(numbers.second, front);
  const Guarded<T> y(std::vector<T>(numbers.y.size(), nan<T>), front);
  if (problem.operation == Operation::gradient)
    Plan(problem, opencl_0, implementation).run({.x = x.data(), .y = y.data(), .g = second.data()});
  else
    Plan(problem, second.data(), opencl_0, implementation).run({.x = x.data(), .y = y.data()});
  EXPECT_EQ(y.elements(), numbers.y);
  EXPECT_TRUE(y.has_its_guards() && x.has_its_guards() && second.has_its_guards());
}

TEST_F(Kernels, StayInsideOfTheirOperands) {
  for (const char* implementation : {"local", "private"})
    for (const char* operation : {"", "transposed ", "gradient "})
      for (const char* sizes : {"batch_first B=37 2x20x12x8", "batch_last B=36 1x17x9x3"})
        for (const std::size_t front : {std::size_t{64}, std::size_t{3}})
          expect_stays_inside(std::string(operation) + "f32 " + sizes, implementation, front);
}

/// Makes the devices GPUs with so many compute units, and compiles as for the CPUs that they may be: loops
/// that are unrolled for GPUs take a CPU's compiler long.
class MadeUpGpu {
 public:
  explicit MadeUpGpu(void (*change)(DeviceFacts&), const char* options = "-D IS_CPU=1") : pretended_(change) {
    setenv("KRONSPARSE_OPENCL_OPTIONS", options, 1);
  }
  ~MadeUpGpu() { unsetenv("KRONSPARSE_OPENCL_OPTIONS"); }
  MadeUpGpu(const MadeUpGpu&) = delete;
  MadeUpGpu& operator=(const MadeUpGpu&) = delete;

 private:
  PretendedDevices pretended_;
};

/// The tiles that CPUs never take: large ones, and those of 2 and 8 neighbouring j; whole ones and others,
/// whose sums leave as vectors where four samples or outputs always end together. Compiled as for NVIDIA's
/// GPUs, whose kernels do not know the size of their work-groups.
void become_small_gpu(DeviceFacts& facts) {
  facts.compute_units = 1;
  facts.is_cpu = false;
  facts.local_bytes = 48 << 10;
  facts.work_group = 1024;
}

TEST_F(Kernels, LargeTilesStayInsideToo) {
  const MadeUpGpu gpu(become_small_gpu, "-D IS_CPU=1 -D LIMITS_REGISTERS=1");
  for (const char* sizes :
       {"batch_first B=70 1x64x24x2", "batch_first B=40 1x48x20x8", "batch_first B=70 1x44x24x1",
        "batch_last B=76 1x43x24x2", "batch_last B=75 1x48x24x1"})
    for (const std::size_t front : {std::size_t{64}, std::size_t{3}})
      expect_stays_inside(std::string("f32 ") + sizes, "local", front);
}

/// Vectors of half types are words that hold two of them; 16 neighbouring j are a sector.
TEST_F(Kernels, LargeTilesOfHalfTypesStayInsideToo) {
  const MadeUpGpu gpu(become_small_gpu, "-D IS_CPU=1 -D LIMITS_REGISTERS=1");
  for (const char* problem :
       {"f16 batch_first B=40 1x48x20x16", "bf16 batch_first B=70 1x64x24x2",
        "f16 batch_first B=70 1x44x24x1", "bf16 batch_last B=76 1x43x24x2", "f16 batch_last B=75 1x48x24x1"})
    for (const std::size_t front : {std::size_t{64}, std::size_t{3}})
      expect_stays_inside<std::uint16_t>(problem, "local", front);
}

/// A GPU with many compute units and few tiles: the work-group is larger than its tile needs, and the answer
/// is the same, also where the batch is shorter than the teams' first chunks.
TEST_F(Kernels, TeamsShareTheSumsOfGradients) {
  const MadeUpGpu gpu([](DeviceFacts& facts) {
    facts.compute_units = 1000;
    facts.is_cpu = false;
    facts.local_bytes = 48 << 10;
    facts.work_group = 1024;
  });
  for (const char* sizes :
       {"batch_last B=333 1x16x20x1", "batch_last B=3 1x16x16x1", "batch_first B=261 1x12x16x4"})
    expect_stays_inside(std::string("gradient f32 ") + sizes, "local", 4);
}

}  // namespace
}  // namespace kronsparse
