// Tensors of torch as the core sees them: an address, a dtype, a device, rows that lie a stride apart.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/plan.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::binding {

using torch::stable::Tensor;

/// Each throws Error with the argument's name when torch's answer has no counterpart here.
[[nodiscard]] DType dtype_of(std::string_view argument, const Tensor& tensor);
[[nodiscard]] Device device_of(std::string_view argument, const Tensor& tensor);
/// The stream that torch computes on now; null on the CPU.
[[nodiscard]] Stream current_stream(Device device);

/// Torch answers without an exception: each throws Error internal when it has no answer.
[[nodiscard]] std::span<const std::int64_t> sizes_of(const Tensor& tensor);
[[nodiscard]] std::span<const std::int64_t> strides_of(const Tensor& tensor);
[[nodiscard]] void* address_of(const Tensor& tensor);
[[nodiscard]] std::string sizes_text(const Tensor& tensor);
/// The count of in-place changes that torch keeps for a tensor; unknown_version for one made in inference
/// mode, which has none.
[[nodiscard]] std::int64_t version_of(const Tensor& tensor);
inline constexpr std::int64_t unknown_version = -1;

/// The batch dimensions of a tensor seen as one.
struct Matrix {
  Tensor tensor;  ///< keeps the memory
  std::int64_t batch;
  std::int64_t stride;  ///< between rows (batch_first) or features (batch_last); 0 when there is no gap
};

/// A tensor (..., features) of batch_first or (features, ...) of batch_last. It is taken as it lies
/// when its batch dimensions are evenly spaced and its elements of a row adjacent; what no stride can
/// describe is copied.
[[nodiscard]] Matrix as_matrix(std::string_view argument, const Tensor& tensor, Layout layout,
                               std::int64_t features);

/// New tensors without gaps; Error out_of_memory where there is no memory for one.
[[nodiscard]] Tensor make_tensor(std::span<const std::int64_t> sizes, DType dtype, Device device);
[[nodiscard]] Tensor make_bytes(std::size_t bytes, Device device);
/// One with the sizes of another, but for the number of features.
[[nodiscard]] Tensor make_with_features(const Tensor& like, Layout layout, std::int64_t features, DType dtype,
                                        Device device);

/// Four sizes of a pattern.
[[nodiscard]] std::span<const std::int64_t> pattern_sizes(std::string_view argument, const Tensor& values);

/// The tensor itself when it has no gaps and this dtype, otherwise a copy that does.
[[nodiscard]] Tensor dense_as(const Tensor& tensor, DType dtype, Device device);

/// Memory of a device for one run, aligned as the core wants it: torch's on a GPU, in the order of its
/// current stream.
class Scratch {
 public:
  Scratch(std::size_t bytes, Device device);
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  std::shared_ptr<void> memory_;
  void* data_ = nullptr;
};

/// Memory from torch's allocator, aligned as the core wants it.
[[nodiscard]] Allocator torch_allocator(Device device);

inline constexpr std::size_t alignment = 256;
[[nodiscard]] inline std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}
/// Bytes from an address to the next that is aligned.
[[nodiscard]] inline std::size_t gap_before(const void* address) noexcept {
  return (alignment - reinterpret_cast<std::uintptr_t>(address) % alignment) % alignment;
}

}  // namespace kronsparse::binding
