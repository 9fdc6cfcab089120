// The operands of an emulated kernel: their memory, their contents, and the check of results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#include "block.hpp"
#include "builtins.hpp"
#include "kronsparse/dtype.hpp"

namespace kronsparse::emulation {

/// Elements in the kernel's form: 2 or 4 bytes each.
inline std::uint32_t bits_of(DType dtype, float value) {
  if (dtype == DType::f16) return std::bit_cast<std::uint16_t>(__float2half_rn(value));
  if (dtype == DType::bf16) return std::bit_cast<std::uint16_t>(__float2bfloat16_rn(value));
  return std::bit_cast<std::uint32_t>(value);
}
inline float value_of(DType dtype, std::uint32_t bits) {
  if (dtype == DType::f16) return __half2float(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)));
  return std::bit_cast<float>(dtype == DType::bf16 ? bits << 16 : bits);
}

/// Memory that begins at a chosen offset from a multiple of 16 bytes, and ends where AddressSanitizer
/// notices. All bits are ones (NaNs) until something is written.
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

/// Small whole numbers in a pseudo-random order.
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

/// Whether a result is as expected. An infinity among the terms gives an infinity or a NaN; with several, the
/// kernel's order decides.
inline bool same(DType dtype, std::uint32_t found, float expected) {
  if (std::isnan(expected)) return std::isnan(value_of(dtype, found));
  return found == bits_of(dtype, expected) || (expected == 0.0f && value_of(dtype, found) == 0.0f);
}

}  // namespace kronsparse::emulation
