#include "tensor.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <algorithm>
#include <string>

#include "kronsparse/error.hpp"

// Only torch's CUDA library has it: weak, so that one build loads into a torch without CUDA too.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index,
                                                                                   void** ret_stream);

namespace kronsparse::binding {
namespace {

[[noreturn]] void refuse(ErrorCode code, std::string_view argument, const std::string& text) {
  throw Error(code, std::string(argument) + ": " + text);
}

std::string sizes_text(const Tensor& tensor) {
  std::string text = "(";
  for (const std::int64_t size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

/// The step between neighbours along dimensions [first, last) taken as one; -1 when it is not even, or when
/// they are the same element (expand), which no matrix of ours has.
std::int64_t common_stride(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  std::int64_t step = 0;  // of the innermost dimension longer than 1
  std::int64_t next = 0;  // what the dimension outside it must have
  for (std::int64_t dimension = last - 1; dimension >= first; --dimension) {
    const auto at = static_cast<std::size_t>(dimension);
    if (sizes[at] == 1) continue;
    if (strides[at] == 0) return -1;
    if (step == 0)
      step = strides[at];
    else if (strides[at] != next)
      return -1;
    next = strides[at] * sizes[at];
  }
  return step;
}

std::int64_t product_of_sizes(const Tensor& tensor, std::int64_t first, std::int64_t last) {
  std::int64_t product = 1;
  for (std::int64_t dimension = first; dimension < last; ++dimension)
    product *= tensor.sizes()[static_cast<std::size_t>(dimension)];
  return product;
}

std::int32_t dtype_number(const Tensor& tensor) {
  std::int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number;
}

/// Without gaps, in the dtype of `like`.
Tensor copy_of(const Tensor& tensor, const Tensor& like) {
  const auto sizes = tensor.sizes();
  Tensor copy = make_tensor({sizes.begin(), sizes.end()}, like);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

/// What an operator of one tensor answers; those that only read its metadata are in no C interface.
template <class Answer>
Answer ask(const char* question, const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(question, "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Answer>(stack[0]);
}

}  // namespace

DType dtype_of(std::string_view argument, const Tensor& tensor) {
  const std::int32_t dtype = dtype_number(tensor);
  if (dtype == aoti_torch_dtype_float32()) return DType::f32;
  if (dtype == aoti_torch_dtype_float16()) return DType::f16;
  if (dtype == aoti_torch_dtype_bfloat16()) return DType::bf16;
  if (dtype == aoti_torch_dtype_float64()) return DType::f64;
  if (dtype == aoti_torch_dtype_complex64()) return DType::complex64;
  if (dtype == aoti_torch_dtype_complex128()) return DType::complex128;
  refuse(ErrorCode::invalid_argument, argument,
         "dtype not supported, must be float16, bfloat16, float32, float64, complex64 or complex128");
}

Device device_of(std::string_view argument, const Tensor& tensor) {
  std::int32_t type = 0;
  std::int32_t index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor.get(), &index));
  if (type == aoti_torch_device_type_cpu()) return {};
  if (type == aoti_torch_device_type_cuda()) return {Backend::cuda, index};
  refuse(ErrorCode::device, argument, "must be on the CPU or on a CUDA device");
}

Stream current_stream(Device device) {
  if (device.backend == Backend::cpu) return nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr)
    throw Error(ErrorCode::device, "device: " + device.to_string() + " given, this torch has no CUDA");
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device.index, &stream));
  return stream;
}

Matrix as_matrix(std::string_view argument, const Tensor& tensor, Layout layout, std::int64_t features) {
  const bool is_first = layout == Layout::batch_first;
  const std::int64_t dimensions = tensor.dim();
  const std::int64_t features_at = is_first ? dimensions - 1 : 0;
  if (dimensions == 0 || tensor.sizes()[static_cast<std::size_t>(features_at)] != features)
    refuse(ErrorCode::size_mismatch, argument,
           "sizes " + sizes_text(tensor) + " given, the " + (is_first ? "last" : "first") +
               " must be the number of features, " + std::to_string(features));

  const std::int64_t first = is_first ? 0 : 1;
  const std::int64_t last = is_first ? dimensions - 1 : dimensions;
  const std::int64_t batch = product_of_sizes(tensor, first, last);
  if (batch == 0) return {tensor, 0, 0};

  // Rows of the matrix in memory: samples (batch_first) or features (batch_last).
  const std::int64_t batch_step = common_stride(tensor, first, last);
  const std::int64_t feature_step = common_stride(tensor, features_at, features_at + 1);
  const std::int64_t row_step = is_first ? batch_step : feature_step;
  const std::int64_t element_step = is_first ? feature_step : batch_step;
  const std::int64_t row_length = is_first ? features : batch;
  const bool rows_are_dense = row_length == 1 || element_step == 1;
  const bool rows_are_apart = (is_first ? batch : features) == 1 || row_step >= row_length;
  if (rows_are_dense && rows_are_apart) return {tensor, batch, row_step == row_length ? 0 : row_step};
  return {copy_of(tensor, tensor), batch, 0};
}

std::vector<std::int64_t> with_features(const Tensor& tensor, Layout layout, std::int64_t features) {
  const auto given = tensor.sizes();
  std::vector<std::int64_t> sizes(given.begin(), given.end());
  (layout == Layout::batch_first ? sizes.back() : sizes.front()) = features;
  return sizes;
}

Tensor make_tensor(const std::vector<std::int64_t>& sizes, const Tensor& like) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t dimension = sizes.size(); dimension-- > 0;) {
    strides[dimension] = stride;
    stride *= std::max<std::int64_t>(sizes[dimension], 1);
  }
  std::int32_t device_type = 0;
  std::int32_t device_index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(like.get(), &device_index));
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(),
                                                  strides.data(), dtype_number(like), device_type,
                                                  device_index, &made));
  return Tensor(made);
}

Pattern pattern_of(std::string_view argument, const Tensor& values) {
  if (values.dim() != 4)
    refuse(ErrorCode::size_mismatch, argument,
           "sizes " + sizes_text(values) + " given, must be the four of a pattern, (a, b, c, d)");
  const auto sizes = values.sizes();
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

Tensor dense_like(const Tensor& tensor, const Tensor& like) {
  const bool is_usable = tensor.is_contiguous() && dtype_number(tensor) == dtype_number(like);
  return is_usable ? tensor : copy_of(tensor, like);
}

std::int64_t version_of(const Tensor& tensor) {
  if (ask<bool>("aten::is_inference", tensor)) return unknown_version;
  return ask<std::int64_t>("aten::_version", tensor);
}

Tensor alias_of(const Tensor& tensor) {
  std::int64_t offset = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(tensor.get(), &offset));
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  AtenTensorHandle alias = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(tensor.get(), tensor.dim(), sizes.data(),
                                                        strides.data(), offset, &alias));
  return Tensor(alias);
}

}  // namespace kronsparse::binding
