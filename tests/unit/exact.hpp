// Products of small integers, which every implementation of the CPU must give to the last bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kronsparse/kronsparse.hpp"

namespace kronsparse {

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

inline void fill(const Operand& operand, DType dtype, std::int64_t count, std::uint64_t seed) {
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

/// Runs the problem on everything that takes it, with y at a cache line and an element after one, and
/// compares with the reference. Sums must be small enough for the dtype.
inline void expect_exact(const Problem& problem) {
  const std::size_t element = size_of(problem.dtype);
  const auto make = [&](std::int64_t elements, std::size_t elements_after_line) {
    return Operand(static_cast<std::size_t>(elements) * element, elements_after_line * element);
  };
  const bool batch_first = problem.layout == Layout::batch_first;
  const std::int64_t x_elements = problem.batch * problem.pattern().cols();
  const Operand x = make(x_elements, 0), values = make(problem.pattern().nnz(), 0);
  fill(x, problem.dtype, x_elements, 1);
  fill(values, problem.dtype, problem.pattern().nnz(), 5);
  const auto product = [&](const std::string& implementation, std::size_t elements_after_line) {
    const std::int64_t rows = batch_first ? problem.batch : problem.pattern().rows();
    Operand y = make(rows * problem.y_stride(), elements_after_line);
    Plan(problem, values.data(), {}, implementation).run({.x = x.data(), .y = y.data()});
    EXPECT_TRUE(y.ends_in_time()) << implementation;
    return y;
  };
  const Operand expected = product("reference", 0);
  for (const Candidate& candidate : candidates(problem)) {
    if (!candidate.refusal.empty() || candidate.implementation == "reference") continue;
    for (const std::size_t after : {0, 1})
      EXPECT_TRUE(product(candidate.implementation, after).holds(expected))
          << candidate.implementation << ", " << problem.to_string() << ", y " << after
          << " elements after a cache line";
  }
}

}  // namespace kronsparse
