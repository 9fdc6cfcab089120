// Tensors of torch as the core sees them: an address, a dtype, a device, rows that lie a stride apart.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kronsparse/device.hpp"
#include "kronsparse/dtype.hpp"
#include "kronsparse/problem.hpp"

namespace kronsparse::binding {

using torch::stable::Tensor;

/// Each throws Error with the argument's name when torch's answer has no counterpart here.
[[nodiscard]] DType dtype_of(std::string_view argument, const Tensor& tensor);
[[nodiscard]] Device device_of(std::string_view argument, const Tensor& tensor);
/// The stream that torch computes on now; null on the CPU.
[[nodiscard]] Stream current_stream(Device device);

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

/// The sizes of a tensor like this one with another number of features.
[[nodiscard]] std::vector<std::int64_t> with_features(const Tensor& tensor, Layout layout,
                                                      std::int64_t features);

/// A new tensor without gaps, of the dtype and on the device of `like`.
[[nodiscard]] Tensor make_tensor(const std::vector<std::int64_t>& sizes, const Tensor& like);

/// values of a pattern (a,b,c,d), from the tensor's sizes.
[[nodiscard]] Pattern pattern_of(std::string_view argument, const Tensor& values);

/// The tensor itself when it has no gaps and this dtype of `like`, otherwise a copy that does.
[[nodiscard]] Tensor dense_like(const Tensor& tensor, const Tensor& like);

/// The count of in-place changes that torch keeps for a tensor; unknown for one made in inference mode,
/// which has none and may change unseen.
[[nodiscard]] std::int64_t version_of(const Tensor& tensor);
inline constexpr std::int64_t unknown_version = -1;

/// Another tensor on the same memory, which keeps it when the first is given other memory.
[[nodiscard]] Tensor alias_of(const Tensor& tensor);

}  // namespace kronsparse::binding
