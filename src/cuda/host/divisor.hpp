// Divisions. A GPU needs forty dependent instructions to divide; a divisor that the launch knows becomes a
// multiplication. On the host: divisions rounded up.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

namespace kronsparse::cuda {

/// `value` / `by`, rounded up.
[[nodiscard]] constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Divides numbers below 2^31 by a number from 1 to 2^31.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(std::uint32_t by)
      : by_(by), shift_(31 + static_cast<std::uint32_t>(std::bit_width(by - 1))) {
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + by - 1) / by);
  }

  [[nodiscard]] __host__ __device__ std::uint32_t quotient(std::uint32_t number) const {
    return static_cast<std::uint32_t>(std::uint64_t{number} * multiplier_ >> shift_);
  }
  [[nodiscard]] __host__ __device__ std::uint32_t value() const { return by_; }

 private:
  std::uint32_t by_ = 1;
  std::uint32_t shift_ = 31;
  std::uint32_t multiplier_ = std::uint32_t{1} << 31;
};

}  // namespace kronsparse::cuda
