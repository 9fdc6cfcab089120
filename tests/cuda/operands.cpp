#include "operands.hpp"

#include <algorithm>
#include <complex>
#include <cstring>
#include <random>

namespace gpu_tests {
namespace {

using kronsparse::Buffer;
using kronsparse::DType;
using kronsparse::Operation;
using kronsparse::Problem;

template <class T>
void put(std::vector<std::byte>& bytes, std::int64_t at, T element) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(at) * sizeof(T), &element, sizeof(T));
}

/// Multiples of 1/8 between -2 and 2.
std::vector<std::byte> random_elements(DType dtype, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 33) - 16) / 8.0F; };
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::int64_t at = 0; at < count; ++at) {
    const float number = draw();
    switch (dtype) {
      case DType::f32:
        put(bytes, at, number);
        break;
      case DType::f64:
        put(bytes, at, static_cast<double>(number));
        break;
      case DType::f16:
        put(bytes, at, kronsparse::Half(number));
        break;
      case DType::bf16:
        put(bytes, at, kronsparse::BFloat16(number));
        break;
      case DType::complex64:
        put(bytes, at, std::complex<float>(number, draw()));
        break;
      case DType::complex128:
        put(bytes, at, std::complex<double>(static_cast<double>(number), static_cast<double>(draw())));
        break;
    }
  }
  return bytes;
}

Buffer random_buffer(const Problem& problem, std::int64_t count, std::uint64_t seed,
                     kronsparse::Device device) {
  const std::vector<std::byte> bytes = random_elements(problem.dtype, count, seed);
  Buffer buffer(bytes.size(), device);
  buffer.copy_from_host(bytes.data(), bytes.size());
  return buffer;
}

std::int64_t result_elements(const Problem& problem) {
  return problem.operation == Operation::gradient ? problem.pattern().nnz()
                                                  : problem.batch * problem.out_features();
}

}  // namespace

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const char* text :
       {"f16 batch_first B=1000 4x32x32x8 +bias +gelu", "f16 batch_first B=8 1x256x256x16",
        "f16 batch_first B=4096 1x256x256x16", "bf16 batch_last B=256 1x64x64x4",
        "f32 batch_first B=517 2x48x48x16 +bias", "f32 ieee batch_last B=300 2x17x33x5",
        "f32 tf32 batch_first B=300 3x32x64x1", "transposed f64 batch_first B=100 2x16x8x4",
        "adjoint complex64 batch_last B=99 2x9x8x3", "complex128 batch_first B=10 2x9x8x3",
        "gradient f32 batch_first B=300 2x16x24x5", "gradient f16 batch_first B=1000 2x128x128x16",
        "gradient f16 batch_last B=1000 1x32x32x8", "gradient f32 batch_first B=0 2x3x5x4"}) {
    const Problem problem = Problem::parse(text);
    for (const kronsparse::Candidate& candidate : candidates(problem, gpu))
      if (candidate.refusal.empty()) all.push_back({problem, candidate.implementation});
  }
  return all;
}

GpuOperands::GpuOperands(const Problem& problem, std::uint64_t seed, kronsparse::Device device)
    : problem_(problem),
      device_(device),
      x_(random_buffer(problem, problem.batch * problem.in_features(), 4 * seed, device)),
      y_(static_cast<std::size_t>(result_elements(problem)) * size_of(problem.dtype), device) {
  if (problem.operation == Operation::gradient) {
    g_ = random_buffer(problem, problem.batch * problem.pattern().rows(), 4 * seed + 1, device);
  } else {
    values_ = random_buffer(problem, problem.pattern().nnz(), 4 * seed + 2, device);
  }
  if (problem.bias) bias_ = random_buffer(problem, problem.pattern().rows(), 4 * seed + 3, device);
  std::size_t workspace = 0;
  for (const kronsparse::Candidate& candidate : candidates(problem, device))
    workspace = std::max(workspace, candidate.workspace_bytes);
  workspace_ = Buffer(workspace, device);
  spoil_result();
}

kronsparse::Operands GpuOperands::operands(cudaStream_t stream) const noexcept {
  return {.x = x_.data(),
          .y = y_.data(),
          .bias = bias_.data(),
          .g = g_.data(),
          .stream = stream,
          .workspace = workspace_.data(),
          .workspace_bytes = workspace_.bytes()};
}

void GpuOperands::change_x(std::uint64_t seed) {
  const std::vector<std::byte> bytes =
      random_elements(problem_.dtype, problem_.batch * problem_.in_features(), 4 * seed);
  x_.copy_from_host(bytes.data(), bytes.size());
}

void GpuOperands::spoil_result() {
  const std::vector<std::byte> bytes(y_.bytes(), std::byte{0xff});
  y_.copy_from_host(bytes.data(), bytes.size());
}

std::vector<std::byte> GpuOperands::result() const {
  int before = 0;
  EXPECT_EQ(cudaGetDevice(&before), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(device_.index), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(before), cudaSuccess);
  std::vector<std::byte> bytes(y_.bytes());
  y_.copy_to_host(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace gpu_tests
