// Problems on a GPU with random operands, for tests that compare runs with runs.
// Whether the numbers are right is the conformance tests' business.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kronsparse/buffer.hpp"
#include "kronsparse/plan.hpp"

namespace gpu_tests {

inline constexpr kronsparse::Device gpu{kronsparse::Backend::cuda, 0};

/// Skips its tests where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = kronsparse::why_unusable(gpu);
    if (!why.empty()) GTEST_SKIP() << "needs a GPU: " << why;
  }
};

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess)

/// A stream that does not wait for the default one.
class OwnStream {
 public:
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An implementation and a problem that it takes.
struct Job {
  kronsparse::Problem problem;
  std::string implementation;
};
/// Every implementation on every one of some varied problems that it takes.
[[nodiscard]] std::vector<Job> jobs();

/// Everything that a problem reads, random by the seed, and its result, on a device.
class GpuOperands {
 public:
  GpuOperands(const kronsparse::Problem& problem, std::uint64_t seed, kronsparse::Device device = gpu);

  /// Null for the gradient.
  [[nodiscard]] const void* values() const noexcept { return values_.data(); }
  [[nodiscard]] kronsparse::Operands operands(cudaStream_t stream = nullptr) const noexcept;
  /// New random numbers in x.
  void change_x(std::uint64_t seed);
  /// Fills the result with bytes that no run leaves.
  void spoil_result();
  /// Waits for the device and brings the result here.
  [[nodiscard]] std::vector<std::byte> result() const;

 private:
  kronsparse::Problem problem_;
  kronsparse::Device device_;
  kronsparse::Buffer values_;
  kronsparse::Buffer x_;
  kronsparse::Buffer g_;
  kronsparse::Buffer bias_;
  kronsparse::Buffer y_;
  kronsparse::Buffer workspace_;  ///< enough for every implementation
};

}  // namespace gpu_tests
