// Problems so large that Y is written around the caches, on every implementation of the CPU. Sums of one or
// two terms, so that they are cheap; small integers, so that everything is exact.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/cpu_info.hpp"
#include "cpu/simd/drivers.hpp"
#include "cpu/threads.hpp"
#include "kronsparse/kronsparse.hpp"

namespace kronsparse {
namespace {

/// Bytes that begin on a cache line, or so many after one.
class Operand {
 public:
  Operand(std::size_t bytes, std::size_t after_line) : bytes_(bytes), all_(bytes + 2 * line, 0xff) {
    const std::size_t over = reinterpret_cast<std::uintptr_t>(all_.data()) % line;
    data_ = all_.data() + (over == 0 ? 0 : line - over) + after_line;
  }
  [[nodiscard]] unsigned char* data() const { return data_; }
  [[nodiscard]] bool holds(const Operand& other) const {
    return std::memcmp(data_, other.data_, bytes_) == 0;
  }
  /// Whether everything behind them is as it was.
  [[nodiscard]] bool ends_in_time() const {
    for (const unsigned char* byte = data_ + bytes_; byte < all_.data() + all_.size(); ++byte)
      if (*byte != 0xff) return false;
    return true;
  }

 private:
  static constexpr std::size_t line = 64;
  std::size_t bytes_;
  std::vector<unsigned char> all_;
  unsigned char* data_;
};

void fill(const Operand& operand, DType dtype, std::int64_t count, std::uint64_t seed) {
  for (std::int64_t e = 0; e < count; ++e) {
    const float value = static_cast<float>((static_cast<std::uint64_t>(e) + seed) * 2654435761U % 7) - 3.0F;
    if (dtype == DType::f32) {
      std::memcpy(operand.data() + 4 * e, &value, 4);
    } else {
      const auto bits = dtype == DType::f16 ? std::bit_cast<std::uint16_t>(Half(value))
                                            : std::bit_cast<std::uint16_t>(BFloat16(value));
      std::memcpy(operand.data() + 2 * e, &bits, 2);
    }
  }
}

class Streaming : public testing::TestWithParam<const char*> {};

TEST_P(Streaming, IsRightToTheLastBit) {
  Problem problem = Problem::parse(GetParam());
  const double least = 4.5 * static_cast<double>(cpu_info().l2_bytes) * thread_count();
  if (least > 128e6) GTEST_SKIP() << "the caches of this machine are too large";
  const std::size_t element = size_of(problem.dtype);
  const auto sample_bytes =
      static_cast<double>(problem.pattern.rows() + problem.pattern.cols()) * static_cast<double>(element);
  problem.batch = static_cast<std::int64_t>(least / sample_bytes) | 1;
  std::int64_t y_elements = problem.batch * problem.pattern.rows();
  if (problem.layout == Layout::batch_last) {
    // Rows of whole cache lines.
    problem.rows_stride = (problem.batch + 63) / 64 * 64;
    y_elements = problem.rows_stride * problem.pattern.rows();
  }
  ASSERT_TRUE(simd::writes_around_caches(problem));

  const auto make = [&](std::int64_t elements, std::size_t elements_after_line) {
    return Operand(static_cast<std::size_t>(elements) * element, elements_after_line * element);
  };
  const std::int64_t x_elements = problem.batch * problem.pattern.cols();
  const Operand x = make(x_elements, 0), values = make(problem.pattern.nnz(), 0);
  fill(x, problem.dtype, x_elements, 1);
  fill(values, problem.dtype, problem.pattern.nnz(), 5);
  const auto product = [&](const std::string& implementation, std::size_t elements_after_line) {
    Operand y = make(y_elements, elements_after_line);
    Plan(problem, values.data(), {}, implementation).run({.x = x.data(), .y = y.data()});
    EXPECT_TRUE(y.ends_in_time()) << implementation;
    return y;
  };
  const Operand expected = product("reference", 0);
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty() || candidate.implementation == "reference") continue;
    for (const std::size_t after : {0, 1})
      EXPECT_TRUE(product(candidate.implementation, after).holds(expected))
          << candidate.implementation << ", y begins " << after << " elements after a cache line";
  }
}

// Vectors of outputs; blocks i that share lines; neighbouring j in a vector, as a vector, as several.
INSTANTIATE_TEST_SUITE_P(OfEveryKind, Streaming,
                         testing::Values("f32 batch_first B=1 1x32x1x1", "bf16 batch_first B=1 1x64x2x1",
                                         "f16 batch_first B=1 3x24x2x1", "bf16 batch_first B=1 2x48x1x1",
                                         "bf16 batch_first B=1 1x24x1x4", "f16 batch_first B=1 1x8x1x16",
                                         "bf16 batch_first B=1 1x6x1x16", "f32 batch_first B=1 2x3x2x32",
                                         "bf16 batch_first B=1 1x20x1x32", "f32 batch_last B=1 1x24x2x1",
                                         "f16 batch_last B=1 2x7x1x3", "bf16 batch_last B=1 1x40x2x1",
                                         "bf16 batch_last B=1 1x9x1x2"));

}  // namespace
}  // namespace kronsparse
