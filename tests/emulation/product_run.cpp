#include "product_run.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "builtins.hpp"
#include "core/geometry.hpp"
#include "cuda/epilogue.cuh"
#include "cuda/product.hpp"

namespace kronsparse::emulation {
namespace {

/// Elements as the kernel stores them: 2 or 4 bytes each.
std::uint32_t bits_of(DType dtype, float value) {
  if (dtype == DType::f16) return std::bit_cast<std::uint16_t>(__float2half_rn(value));
  if (dtype == DType::bf16) return std::bit_cast<std::uint16_t>(__float2bfloat16_rn(value));
  return std::bit_cast<std::uint32_t>(value);
}
float value_of(DType dtype, std::uint32_t bits) {
  if (dtype == DType::f16) return __half2float(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
  return std::bit_cast<float>(dtype == DType::bf16 ? bits << 16 : bits);
}

/// Bytes that begin at a chosen distance from an address that 16 divides and end
/// where AddressSanitizer notices; all ones (NaNs) until something is written.
class Memory {
 public:
  Memory(DType dtype, std::int64_t elements, int offset)
      : dtype_(dtype), bytes_(dtype == DType::f32 ? 4 : 2), elements_(elements) {
    const std::size_t before = 16 + static_cast<std::size_t>(offset) * static_cast<std::size_t>(bytes_);
    const std::size_t all = before + static_cast<std::size_t>(elements * bytes_);
    data_ = std::make_unique<std::byte[]>(all);
    std::memset(data_.get(), 0xff, all);
    first_ = data_.get() + before;
  }
  [[nodiscard]] std::byte* first() const { return first_; }
  [[nodiscard]] GlobalMemory::Range range() const {
    return {first_, static_cast<std::size_t>(elements_ * bytes_)};
  }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] std::uint32_t bits(std::int64_t at) const {
    std::uint32_t bits = 0;
    std::memcpy(&bits, first_ + at * bytes_, static_cast<std::size_t>(bytes_));
    return bits;
  }
  void set_bits(std::int64_t at, std::uint32_t bits) {
    std::memcpy(first_ + at * bytes_, &bits, static_cast<std::size_t>(bytes_));
  }
  [[nodiscard]] float value(std::int64_t at) const { return value_of(dtype_, bits(at)); }
  void set(std::int64_t at, float value) { set_bits(at, bits_of(dtype_, value)); }
  [[nodiscard]] bool untouched_before() const {
    for (const std::byte* byte = data_.get(); byte != first_; ++byte)
      if (*byte != std::byte{0xff}) return false;
    return true;
  }

 private:
  DType dtype_;
  int bytes_;
  std::int64_t elements_;
  std::unique_ptr<std::byte[]> data_;
  std::byte* first_ = nullptr;
};

/// Small whole numbers without a visible order.
class Numbers {
 public:
  float next(int range) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int>((state_ >> 33) % static_cast<unsigned>(2 * range + 1)) -
                              range);
  }

 private:
  std::uint64_t state_ = 20240229;
};

/// The packed weights, and the weights as a plain array of [i][k][l][j].
struct Weights {
  std::vector<float> plain;
  Memory packed;
};

Weights make_weights(const cuda::Product& p, const cuda::WgmmaOrder& order, DType dtype, int range,
                     Numbers& numbers) {
  Weights weights{{}, Memory(dtype, order.elements(), 0)};
  for (std::int64_t at = 0; at < order.elements(); ++at) weights.packed.set_bits(at, 0);
  for (std::int64_t i = 0; i < p.a; ++i)
    for (std::int64_t k = 0; k < p.b; ++k)
      for (std::int64_t l = 0; l < p.c; ++l)
        for (std::int64_t j = 0; j < p.d; ++j) {
          const float value = numbers.next(range);
          weights.plain.push_back(value);
          const std::int64_t to = order.place(i, k, l, j);
          if (dtype != DType::f32) {
            weights.packed.set(to, value);
            continue;
          }
          const auto high =
              std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0x1000u) & 0xffffe000u);
          weights.packed.set(to, high);
          weights.packed.set(to + order.tile_k * 16, value - high);
        }
  return weights;
}

/// An infinity among the terms is one in the sum, or a NaN: of several, as the kernel's order has it.
bool same(DType dtype, std::uint32_t found, float expected) {
  if (std::isnan(expected)) return std::isnan(value_of(dtype, found));
  return found == bits_of(dtype, expected) || (expected == 0.0f && value_of(dtype, found) == 0.0f);
}

}  // namespace

std::string ProductCase::text() const {
  return problem.to_string() + " x+" + std::to_string(x_offset) + " y+" + std::to_string(y_offset) + " " +
         std::to_string(multiprocessors) + " SMs" + (infinite ? " infinite" : "") +
         (timing == Timing::late ? " late" : " early");
}

cuda::GpuFacts ProductCase::gpu() const {
  cuda::GpuFacts facts;
  facts.compute_capability = 90;
  facts.multiprocessors = multiprocessors;
  facts.shared_bytes = cuda::kEmulatedSharedBytes;
  facts.l2_bytes = 50 << 20;
  facts.clock_hz = 1.98e9;
  facts.memory_rate = 4e12;
  return facts;
}

void run_product(const ProductCase& one, const cuda::WgmmaOrder& order, bool split,
                 const std::function<Launch(const Operands&, const void*)>& launch_of) {
  const Problem& problem = one.problem;
  problem.validate();
  // Whole numbers that the formats hold, whose sums are exact. Split floats have
  // more bits than TF32, in one of the two operands: the product of two rests is left out.
  const cuda::Product p = cuda::product_of(problem);
  const DType dtype = problem.dtype;
  const bool long_weights = split && problem.batch % 2 == 0;
  Numbers numbers;
  const Weights weights = make_weights(p, order, dtype, long_weights ? 9001 : 2, numbers);
  const MatrixShape x_shape = x_matrix(problem), y_shape = y_matrix(problem);
  Memory x(dtype, x_shape.extent(), one.x_offset);
  Memory y(dtype, y_shape.extent(), one.y_offset);
  Memory bias(dtype, problem.pattern.rows(), 0);
  for (std::int64_t row = 0; row < x_shape.rows; ++row)
    for (std::int64_t column = 0; column < x_shape.cols; ++column)
      x.set(row * x_shape.stride + column, numbers.next(split && !long_weights ? 9001 : 3));
  for (std::int64_t at = 0; at < bias.elements(); ++at) bias.set(at, numbers.next(9));
  if (one.infinite) x.set(x.elements() - 1, std::numeric_limits<float>::infinity());

  const Operands operands{.x = x.first(), .y = y.first(), .bias = problem.bias ? bias.first() : nullptr};
  const GlobalMemory memory{{x.range(), weights.packed.range()}, {y.range()}};
  const Launch work = launch_of(operands, weights.packed.first());
  launch(work.blocks, work.threads, work.shared_bytes, one.timing, memory, work.kernel);

  std::vector<float> x_values;
  for (std::int64_t at = 0; at < x.elements(); ++at) x_values.push_back(x.value(at));
  std::vector<bool> written(static_cast<std::size_t>(y.elements()));
  for (std::int64_t n = 0; n < p.batch; ++n)
    for (std::int64_t i = 0; i < p.a; ++i)
      for (std::int64_t k = 0; k < p.b; ++k)
        for (std::int64_t j = 0; j < p.d; ++j) {
          float sum = 0;
          for (std::int64_t l = 0; l < p.c; ++l)
            sum +=
                weights.plain[static_cast<std::size_t>(((i * p.b + k) * p.c + l) * p.d + j)] *
                x_values[static_cast<std::size_t>(n * p.x_sample + ((i * p.c + l) * p.d + j) * p.x_feature)];
          const std::int64_t feature = (i * p.b + k) * p.d + j;
          if (problem.bias) sum += bias.value(feature);
          const float expected = cuda::activate(sum, problem.activation);
          const std::int64_t at = n * p.y_sample + feature * p.y_feature;
          written[static_cast<std::size_t>(at)] = true;
          if (!same(dtype, y.bits(at), expected))
            throw EmulationError("sample " + std::to_string(n) + " i " + std::to_string(i) + " k " +
                                 std::to_string(k) + " j " + std::to_string(j) + ": " +
                                 std::to_string(value_of(dtype, y.bits(at))) + " instead of " +
                                 std::to_string(expected));
        }
  const std::uint32_t untouched = dtype == DType::f32 ? 0xffffffffu : 0xffffu;
  for (std::int64_t at = 0; at < y.elements(); ++at)
    if (!written[static_cast<std::size_t>(at)] && y.bits(at) != untouched)
      throw EmulationError("element " + std::to_string(at) + " of y, outside the matrix, was written");
  if (!y.untouched_before()) throw EmulationError("memory before y was written");
}

}  // namespace kronsparse::emulation
