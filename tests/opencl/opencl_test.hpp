// A problem with small whole numbers, whose answer is exact, on an OpenCL device and on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/geometry.hpp"
#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace kronsparse {

inline constexpr Device opencl_0{Backend::opencl, 0};

class OpenclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_unusable(opencl_0); !why.empty())
      GTEST_SKIP() << "needs an OpenCL device: " << why;
  }
};

/// A small whole number as a dtype has it; elements of f16 and bf16 are their bits.
template <class T>
T element_of(DType dtype, int number) {
  if constexpr (!std::is_same_v<T, std::uint16_t>) return static_cast<T>(number);
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(number));
  if (dtype == DType::bf16) return static_cast<T>(bits >> 16);
  if (number == 0) return T{};
  return static_cast<T>((bits >> 31 << 15) | (((bits >> 23 & 0xff) - 127 + 15) << 10) | (bits >> 13 & 0x3ff));
}

/// x, values and the answer of a problem; those of a gradient are x, g and the answer.
template <class T>
struct Numbers {
  explicit Numbers(const Problem& problem)
      : x(size(x_matrix(problem))),
        second(problem.operation == Operation::gradient ? size(rows_matrix(problem))
                                                        : static_cast<std::size_t>(problem.chain.nnz())),
        y(size(y_matrix(problem))) {
    for (std::size_t index = 0; index < x.size(); ++index)
      x[index] = element_of<T>(problem.dtype, static_cast<int>(index * 7 % 11) - 5);
    for (std::size_t index = 0; index < second.size(); ++index)
      second[index] = element_of<T>(problem.dtype, static_cast<int>(index * 5 % 7) - 3);
    if (problem.operation == Operation::gradient)
      Plan(problem).run({.x = x.data(), .y = y.data(), .g = second.data()});
    else
      Plan(problem, second.data()).run({.x = x.data(), .y = y.data()});
  }

  static std::size_t size(const MatrixShape& shape) { return static_cast<std::size_t>(shape.extent()); }

  std::vector<T> x, second, y;
};

template <class T>
Buffer on_device(const std::vector<T>& host, Device device) {
  Buffer buffer(host.size() * sizeof(T), device);
  buffer.copy_from_host(host.data(), buffer.bytes());
  return buffer;
}

template <class T>
std::vector<T> on_host(const Buffer& buffer) {
  std::vector<T> host(buffer.bytes() / sizeof(T));
  buffer.copy_to_host(host.data(), buffer.bytes());
  return host;
}

/// The answer of a device, by one implementation or by the one chosen.
template <class T>
std::vector<T> computed(const Problem& problem, const Numbers<T>& numbers, Device device,
                        std::string_view implementation = {}) {
  const Buffer x = on_device(numbers.x, device);
  const Buffer second = on_device(numbers.second, device);
  Buffer y(numbers.y.size() * sizeof(T), device);
  if (problem.operation == Operation::gradient)
    Plan(problem, device, implementation).run({.x = x.data(), .y = y.data(), .g = second.data()});
  else
    Plan(problem, second.data(), device, implementation).run({.x = x.data(), .y = y.data()});
  return on_host<T>(y);
}

}  // namespace kronsparse
