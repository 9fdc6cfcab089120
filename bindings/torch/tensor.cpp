#include "tensor.hpp"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/stableivalue_conversions.h>

#include <algorithm>
#include <array>
#include <new>

#include "kronsparse/error.hpp"

// Only torch's CUDA library has it: weak, so that one build loads into a torch without CUDA too.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index,
                                                                                   void** ret_stream);

namespace kronsparse::binding {
namespace {

[[noreturn]] void refuse(ErrorCode code, std::string_view argument, const std::string& text) {
  throw Error(code, std::string(argument) + ": " + text);
}

/// Torch's C interface says only that something failed.
void check(AOTITorchError code, const char* what) {
  if (code != AOTI_TORCH_SUCCESS)
    throw Error(ErrorCode::internal, std::string("torch: it failed to ") + what + "; it has said why");
}

/// The step between neighbours along dimensions [first, last) taken as one; -1 when it is not even, or when
/// they are the same element (expand), which no matrix of ours has.
std::int64_t common_stride(const Tensor& tensor, std::size_t first, std::size_t last) {
  const auto sizes = sizes_of(tensor);
  const auto strides = strides_of(tensor);
  std::int64_t step = 0;  // of the innermost dimension longer than 1
  std::int64_t next = 0;  // what the dimension outside it must have
  for (std::size_t at = last; at-- > first;) {
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

std::int32_t dtype_number(const Tensor& tensor) {
  std::int32_t number = 0;
  check(aoti_torch_get_dtype(tensor.get(), &number), "tell a dtype");
  return number;
}

/// Torch's numbers in the order of DType.
const std::array<std::int32_t, 6>& dtype_numbers() {
  static const std::array numbers{aoti_torch_dtype_float32(),   aoti_torch_dtype_float64(),
                                  aoti_torch_dtype_float16(),   aoti_torch_dtype_bfloat16(),
                                  aoti_torch_dtype_complex64(), aoti_torch_dtype_complex128()};
  return numbers;
}

std::int32_t number_of(DType dtype) { return dtype_numbers()[static_cast<std::size_t>(dtype)]; }

bool is_dense(const Tensor& tensor) {
  bool answer = false;
  check(aoti_torch_is_contiguous(tensor.get(), &answer), "tell strides");
  return answer;
}

Tensor make_strided(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                    std::int32_t dtype, Device device) {
  static const std::int32_t cpu = aoti_torch_device_type_cpu();
  static const std::int32_t cuda = aoti_torch_device_type_cuda();
  AtenTensorHandle made = nullptr;
  const AOTITorchError code = aoti_torch_empty_strided(
      static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(), dtype,
      device.backend == Backend::cpu ? cpu : cuda, device.backend == Backend::cpu ? 0 : device.index, &made);
  if (code != AOTI_TORCH_SUCCESS || made == nullptr) {
    // In floating point: sizes that overflow cannot be allocated either. Python's side knows the words.
    double bytes = static_cast<double>(aoti_torch_dtype_element_size(dtype));
    for (const std::int64_t size : sizes) bytes *= static_cast<double>(size);
    throw Error(ErrorCode::out_of_memory, "kronsparse: out of memory: " + std::to_string(bytes) +
                                              " bytes could not be allocated on " + device.to_string());
  }
  return Tensor(made);
}

/// The answer of an operator that takes one tensor. Operators that only read its metadata have no C
/// interface.
template <class Answer>
Answer ask(const char* question, const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  check(torch_call_dispatcher(question, "", stack.data(), TORCH_ABI_VERSION), question);
  return torch::stable::detail::to<Answer>(stack[0]);
}

}  // namespace

DType dtype_of(std::string_view argument, const Tensor& tensor) {
  const auto& numbers = dtype_numbers();
  const auto* const found = std::ranges::find(numbers, dtype_number(tensor));
  if (found != numbers.end()) return static_cast<DType>(found - numbers.begin());
  refuse(ErrorCode::invalid_argument, argument,
         "dtype not supported, must be float16, bfloat16, float32, float64, complex64 or complex128");
}

Device device_of(std::string_view argument, const Tensor& tensor) {
  static const std::int32_t cpu = aoti_torch_device_type_cpu();
  static const std::int32_t cuda = aoti_torch_device_type_cuda();
  std::int32_t type = 0;
  check(aoti_torch_get_device_type(tensor.get(), &type), "tell a device");
  if (type == cpu) return {};
  std::int32_t index = 0;
  check(aoti_torch_get_device_index(tensor.get(), &index), "tell a device");
  if (type == cuda) return {Backend::cuda, index};
  refuse(ErrorCode::device, argument, "must be on the CPU or on a CUDA device");
}

Stream current_stream(Device device) {
  if (device.backend == Backend::cpu) return nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr)
    throw Error(ErrorCode::device, "device: " + device.to_string() + " given, this torch has no CUDA");
  void* stream = nullptr;
  check(aoti_torch_get_current_cuda_stream(device.index, &stream), "tell its stream");
  return stream;
}

std::span<const std::int64_t> sizes_of(const Tensor& tensor) {
  std::int64_t dimensions = 0;
  std::int64_t* sizes = nullptr;
  check(aoti_torch_get_dim(tensor.get(), &dimensions), "tell sizes");
  check(aoti_torch_get_sizes(tensor.get(), &sizes), "tell sizes");
  return {sizes, static_cast<std::size_t>(dimensions)};
}

std::span<const std::int64_t> strides_of(const Tensor& tensor) {
  std::int64_t dimensions = 0;
  std::int64_t* strides = nullptr;
  check(aoti_torch_get_dim(tensor.get(), &dimensions), "tell strides");
  check(aoti_torch_get_strides(tensor.get(), &strides), "tell strides");
  return {strides, static_cast<std::size_t>(dimensions)};
}

void* address_of(const Tensor& tensor) {
  void* address = nullptr;
  check(aoti_torch_get_data_ptr(tensor.get(), &address), "tell an address");
  return address;
}

std::string sizes_text(const Tensor& tensor) {
  std::string text = "(";
  for (const std::int64_t size : sizes_of(tensor))
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

std::int64_t version_of(const Tensor& tensor) {
  if (ask<bool>("aten::is_inference", tensor)) return unknown_version;
  return ask<std::int64_t>("aten::_version", tensor);
}

Matrix as_matrix(std::string_view argument, const Tensor& tensor, Layout layout, std::int64_t features) {
  const bool is_first = layout == Layout::batch_first;
  const auto sizes = sizes_of(tensor);
  const std::size_t features_at = is_first ? sizes.size() - 1 : 0;
  if (sizes.empty() || sizes[features_at] != features)
    refuse(ErrorCode::size_mismatch, argument,
           "sizes " + sizes_text(tensor) + " given, the " + (is_first ? "last" : "first") +
               " must be the number of features, " + std::to_string(features));

  const std::size_t first = is_first ? 0 : 1;
  const std::size_t last = is_first ? sizes.size() - 1 : sizes.size();
  std::int64_t batch = 1;
  for (std::size_t at = first; at < last; ++at) batch *= sizes[at];
  if (batch == 0 || is_dense(tensor)) return {tensor, batch, 0};

  // Rows of the matrix in memory: samples (batch_first) or features (batch_last).
  const std::int64_t batch_step = common_stride(tensor, first, last);
  const std::int64_t feature_step = common_stride(tensor, features_at, features_at + 1);
  const std::int64_t row_step = is_first ? batch_step : feature_step;
  const std::int64_t element_step = is_first ? feature_step : batch_step;
  const std::int64_t row_length = is_first ? features : batch;
  const bool rows_are_dense = row_length == 1 || element_step == 1;
  const bool rows_are_apart = (is_first ? batch : features) == 1 || row_step >= row_length;
  if (rows_are_dense && rows_are_apart) return {tensor, batch, row_step == row_length ? 0 : row_step};
  Tensor copy = make_tensor(sizes, dtype_of(argument, tensor), device_of(argument, tensor));
  check(aoti_torch_copy_(copy.get(), tensor.get(), 0), "copy a tensor");
  return {copy, batch, 0};
}

Tensor make_tensor(std::span<const std::int64_t> sizes, DType dtype, Device device) {
  std::array<std::int64_t, 8> few{};
  std::vector<std::int64_t> many(sizes.size() > few.size() ? sizes.size() : 0);
  const std::span<std::int64_t> strides(many.empty() ? few.data() : many.data(), sizes.size());
  std::int64_t stride = 1;
  for (std::size_t at = sizes.size(); at-- > 0;) {
    strides[at] = stride;
    // Torch refuses a size that wraps around.
    stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[at], 1)));
  }
  return make_strided(sizes, strides, number_of(dtype), device);
}

Tensor make_bytes(std::size_t bytes, Device device) {
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t stride = 1;
  static const std::int32_t dtype = aoti_torch_dtype_uint8();
  return make_strided({&size, 1}, {&stride, 1}, dtype, device);
}

Tensor make_with_features(const Tensor& like, Layout layout, std::int64_t features, DType dtype,
                          Device device) {
  const auto given = sizes_of(like);
  std::array<std::int64_t, 8> few{};
  std::vector<std::int64_t> many(given.size() > few.size() ? given.size() : 0);
  const std::span<std::int64_t> sizes(many.empty() ? few.data() : many.data(), given.size());
  std::ranges::copy(given, sizes.begin());
  (layout == Layout::batch_first ? sizes.back() : sizes.front()) = features;
  return make_tensor(sizes, dtype, device);
}

std::span<const std::int64_t> pattern_sizes(std::string_view argument, const Tensor& values) {
  const auto sizes = sizes_of(values);
  if (sizes.size() != 4)
    refuse(ErrorCode::size_mismatch, argument,
           "sizes " + sizes_text(values) + " given, must be the four of a pattern, (a, b, c, d)");
  return sizes;
}

Tensor dense_as(const Tensor& tensor, DType dtype, Device device) {
  if (dtype_number(tensor) == number_of(dtype) && is_dense(tensor)) return tensor;
  Tensor copy = make_tensor(sizes_of(tensor), dtype, device);
  check(aoti_torch_copy_(copy.get(), tensor.get(), 0), "copy a tensor");
  return copy;
}

Scratch::Scratch(std::size_t bytes, Device device) {
  if (bytes == 0) return;
  if (device.backend == Backend::cpu) {
    // A run is done when it returns, and a thread has one run at a time: small ones share their memory.
    constexpr std::size_t kept_bytes = std::size_t{1} << 16U;
    if (bytes <= kept_bytes) {
      struct Free {
        void operator()(void* memory) const noexcept {
          ::operator delete (memory, std::align_val_t{alignment});
        }
      };
      thread_local const std::unique_ptr<void, Free> kept(
          ::operator new (kept_bytes, std::align_val_t{alignment}));
      data_ = kept.get();
      return;
    }
  }
  memory_ = torch_allocator(device)(bytes);
  data_ = memory_.get();
}

Allocator torch_allocator(Device device) {
  return [device](std::size_t bytes) {
    // Torch aligns less than the core on the CPU.
    const std::size_t more = device.backend == Backend::cpu ? alignment : 0;
    Tensor tensor = make_bytes(bytes + more, device);
    auto* begin = static_cast<std::byte*>(address_of(tensor));
    begin += gap_before(begin);
    return std::shared_ptr<void>(begin, [kept = std::move(tensor)](void*) {});
  };
}

}  // namespace kronsparse::binding
