// The operators of torch, through its stable ABI: one build serves every torch from TORCH_TARGET_VERSION on.
// A call is a whole layer, whatever the length of its chain. Fake implementations are in
// python/kronsparse/torch/_library.py; derivatives, autocast and vmap in _operators.py beside it.
//
// A body checks, finds sizes and strides, and hands over to the core; the same body serves the CPU and CUDA,
// since the core does the rest for both. Nothing of the weights is kept but what `freeze` was asked to keep.

#include <torch/csrc/stable/library.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "frozen_values.hpp"
#include "kronsparse/error.hpp"
#include "plan_registry.hpp"
#include "tensor.hpp"

namespace kronsparse::binding {
namespace {

using Tensors = std::vector<Tensor>;

/// The settings of a call, as one number: a byte each, in this order. The last is 1 for calls
/// that nobody has looked at the frozen weights for: those of compiled code.
struct Settings {
  Activation activation;
  Layout layout;
  Mode mode;
  Operation operation;
  bool checks_versions;

  explicit Settings(std::int64_t number) {
    const auto given = static_cast<std::uint64_t>(number);
    const auto part = [&]<class Enum>(unsigned byte, Enum last) {
      const std::uint64_t value = given >> (8 * byte) & 0xffU;
      if (value > static_cast<std::uint64_t>(last) || given >> 40U != 0)
        throw Error(ErrorCode::invalid_argument,
                    "settings: " + std::to_string(number) +
                        " given, must be five bytes, each the number of a setting");
      return static_cast<Enum>(value);
    };
    activation = part(0, Activation::silu);
    layout = part(1, Layout::batch_last);
    mode = part(2, Mode::tf32);
    operation = part(3, std::uint8_t{1}) != 0 ? Operation::adjoint : Operation::multiply;
    checks_versions = part(4, std::uint8_t{1}) != 0;
  }
};

[[noreturn]] void refuse(ErrorCode code, std::string_view argument, const std::string& text) {
  throw Error(code, std::string(argument) + ": " + text);
}

void check_same_device(std::string_view argument, const Tensor& tensor, Device device) {
  const Device given = device_of(argument, tensor);
  if (given != device)
    refuse(ErrorCode::size_mismatch, argument,
           "on " + given.to_string() + ", must be where x is, on " + device.to_string());
}

void check_same_dtype(std::string_view argument, const Tensor& tensor, DType dtype) {
  const DType given = dtype_of(argument, tensor);
  if (given != dtype)
    refuse(ErrorCode::size_mismatch, argument,
           "dtype " + std::string(name(given)) + " given, must be that of x, " + std::string(name(dtype)));
}

/// Small arrays without a visit to the heap.
template <class Element, std::size_t Few>
class Array {
 public:
  explicit Array(std::size_t size) : size_(size) {
    if (size > Few) many_.resize(size);
  }
  [[nodiscard]] Element* data() noexcept { return many_.empty() ? few_.data() : many_.data(); }
  Element& operator[](std::size_t at) noexcept { return data()[at]; }
  [[nodiscard]] std::span<Element> span() noexcept { return {data(), size_}; }

 private:
  std::size_t size_;
  std::array<Element, Few> few_{};
  std::vector<Element> many_;
};

std::string factor_name(std::size_t at) { return "factors[" + std::to_string(at) + "]"; }

/// The beginning of all operators: the checks, the plan, and the weights.
class Call {
 public:
  Call(const Tensor& x, const Tensors& factors, const std::optional<Tensor>& bias, Operation operation,
       const Settings& settings, std::int64_t packed)
      : factors_(factors),
        device_(device_of("x", x)),
        dtype_(dtype_of("x", x)),
        layout_(settings.layout),
        sizes_(4 * factors.size()),
        values_(factors.size()) {
    if (factors.empty()) refuse(ErrorCode::invalid_argument, "factors", "none given, must be at least one");
    for (std::size_t at = 0; at < factors.size(); ++at) {
      const auto sizes = pattern_sizes("factors", factors[at]);
      std::copy(sizes.begin(), sizes.end(), sizes_.data() + 4 * at);
      if (device_of("factors", factors[at]) != device_)
        check_same_device(factor_name(at), factors[at], device_);
    }
    const bool has_bias = bias.has_value() && operation == Operation::multiply;
    plan_ =
        find_plan({.sizes = sizes_.span(),
                   .dtype = dtype_,
                   .layout = layout_,
                   .operation = operation,
                   .mode = dtype_ == DType::f32 ? settings.mode : Mode::fp32,
                   .activation = operation == Operation::multiply ? settings.activation : Activation::none,
                   .bias = has_bias,
                   .device = device_});
    if (packed != 0) {
      frozen_ = find_frozen(packed);
      if (settings.checks_versions) frozen_->check_versions(factors);
      if (!frozen_->are(factors)) frozen_.reset();  // copies: they are packed for this call
    }
    if (has_bias) {
      check_same_device("bias", *bias, device_);
      if (frozen_ == nullptr) check_same_dtype("bias", *bias, dtype_);
      const auto sizes = sizes_of(*bias);
      if (sizes.size() != 1 || sizes[0] != rows())
        refuse(ErrorCode::size_mismatch, "bias",
               "sizes " + sizes_text(*bias) + " given, must be (" + std::to_string(rows()) + ",)");
      bias_ = dense_as(*bias, dtype_, device_);
    }
  }

  [[nodiscard]] std::int64_t rows() { return sizes_[0] * sizes_[1] * sizes_[3]; }
  [[nodiscard]] std::int64_t cols() {
    const std::int64_t* last = sizes_.data() + 4 * (factors_.size() - 1);
    return last[0] * last[2] * last[3];
  }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Plan& plan() const noexcept { return *plan_; }

  /// Bytes that the products between the factors take, for Operands::intermediates.
  [[nodiscard]] std::size_t intermediate_bytes(std::int64_t batch) {
    std::size_t sum = 0;
    for (std::size_t at = 4; at < 4 * factors_.size(); at += 4)
      sum +=
          aligned(static_cast<std::size_t>(batch) *
                  static_cast<std::size_t>(sizes_[at] * sizes_[at + 1] * sizes_[at + 3]) * size_of(dtype_));
    return sum;
  }

  void run(const Batch& batch, Operands operands) {
    operands.stream = current_stream(device_);
    if (bias_) operands.bias = address_of(*bias_);
    bool reads_values = true;
    if (frozen_) {
      const FrozenValues::Ready ready = frozen_->prepare(*plan_, batch, operands.stream);
      operands.packed = ready.packed;
      // Given as they lie they cost nothing, and stand in for what there was no room for, or for orders of
      // single factors, which only runs that write the intermediates need.
      reads_values = !ready.is_complete || are_of_dtype() || operands.intermediates != nullptr;
    }
    if (reads_values) {
      for (std::size_t at = 0; at < factors_.size(); ++at) {
        if (frozen_ == nullptr && dtype_of("factors", factors_[at]) != dtype_)
          check_same_dtype(factor_name(at), factors_[at], dtype_);
        Tensor dense = dense_as(factors_[at], dtype_, device_);
        values_[at] = address_of(dense);
        if (dense.get() != factors_[at].get()) copies_.push_back(std::move(dense));
      }
      operands.values = values_.data();
    }
    operands.workspace_bytes = plan_->workspace_bytes(batch, operands);
    const Scratch workspace(operands.workspace_bytes, device_);
    operands.workspace = workspace.data();
    plan_->run(batch, operands);
  }

 private:
  [[nodiscard]] bool are_of_dtype() const {
    for (const Tensor& factor : factors_)
      if (dtype_of("factors", factor) != dtype_) return false;
    return true;
  }

  const Tensors& factors_;
  Device device_;
  DType dtype_;
  Layout layout_;
  Array<std::int64_t, 4 * 8> sizes_;
  Array<const void*, 8> values_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<FrozenValues> frozen_;
  std::optional<Tensor> bias_;
  Tensors copies_;
};

/// multiply or adjoint, with a place for what the factors hand on or without.
Tensor product(const Tensor& x, const Tensors& factors, const std::optional<Tensor>& bias,
               const Settings& settings, std::int64_t packed, std::optional<Tensor>* intermediates) {
  const bool is_adjoint = settings.operation == Operation::adjoint;
  Call call(x, factors, bias, settings.operation, settings, packed);
  const Matrix input = as_matrix("x", x, settings.layout, is_adjoint ? call.rows() : call.cols());
  Batch batch{.size = input.batch};
  (is_adjoint ? batch.rows_stride : batch.cols_stride) = input.stride;
  Tensor y = make_with_features(x, settings.layout, is_adjoint ? call.cols() : call.rows(), call.dtype(),
                                call.device());
  Operands operands{.x = address_of(input.tensor), .y = address_of(y)};
  if (intermediates != nullptr) {
    const std::size_t bytes = call.intermediate_bytes(input.batch);
    *intermediates = make_bytes(factors.size() == 1 ? 0 : bytes + alignment, call.device());
    if (bytes > 0) {
      if (call.plan().intermediate_bytes(batch) > bytes)
        throw Error(ErrorCode::internal,
                    "intermediates: the core wants more than what is between the factors");
      auto* begin = static_cast<std::byte*>(address_of(**intermediates));
      const std::size_t gap = gap_before(begin);
      operands.intermediates = begin + gap;
      // Torch aligns less than the core on the CPU; backward may get a copy that lies elsewhere.
      if (call.device().backend == Backend::cpu) begin[bytes + alignment - 1] = static_cast<std::byte>(gap);
    }
  }
  call.run(batch, operands);
  return y;
}

/// The intermediates that the forward product left for backward; null where a copy is not aligned.
void* intermediates_in(const Tensor& tensor, std::size_t bytes, Device device) {
  const auto sizes = sizes_of(tensor);
  if (sizes.size() != 1 || static_cast<std::size_t>(sizes[0]) != bytes + alignment)
    refuse(ErrorCode::size_mismatch, "intermediates",
           "sizes " + sizes_text(tensor) + " given, must be (" + std::to_string(bytes + alignment) + ",)");
  auto* begin = static_cast<std::byte*>(address_of(tensor));
  if (device.backend == Backend::cpu) begin += static_cast<std::size_t>(begin[bytes + alignment - 1]);
  return gap_before(begin) == 0 ? begin : nullptr;
}

Tensor linear(const Tensor& x, const Tensors& factors, const std::optional<Tensor>& bias,
              std::int64_t settings, std::int64_t packed) {
  return product(x, factors, bias, Settings(settings), packed, nullptr);
}

std::tuple<Tensor, Tensor> linear_saving(const Tensor& x, const Tensors& factors,
                                         const std::optional<Tensor>& bias, std::int64_t settings,
                                         std::int64_t packed) {
  std::optional<Tensor> intermediates;
  const Settings given(settings);
  if (given.operation != Operation::multiply)
    refuse(ErrorCode::invalid_argument, "settings", "adjoint given, must be multiply");
  Tensor y = product(x, factors, bias, given, packed, &intermediates);
  return {y, *intermediates};
}

/// Bit 0 of `wanted` is the gradient of x, bit 1 + f that of factor f; -1 is all of them.
Tensors linear_backward(const Tensor& g, const Tensor& x, const Tensors& factors,
                        const std::optional<Tensor>& intermediates, std::int64_t settings_given,
                        std::int64_t packed, std::int64_t wanted) {
  const Settings settings(settings_given);
  Call call(x, factors, std::nullopt, Operation::gradient, settings, packed);
  check_same_device("g", g, call.device());
  check_same_dtype("g", g, call.dtype());
  const Matrix input = as_matrix("x", x, settings.layout, call.cols());
  const Matrix output = as_matrix("g", g, settings.layout, call.rows());
  if (input.batch != output.batch)
    refuse(ErrorCode::size_mismatch, "g",
           "batch of " + std::to_string(output.batch) + " given, must be that of x, " +
               std::to_string(input.batch));
  const auto is_wanted = [&](std::size_t bit) {
    return wanted == -1 || (bit < 63 && (static_cast<std::uint64_t>(wanted) >> bit & 1U) != 0);
  };

  Tensors made;
  made.reserve(factors.size() + 1);
  Operands operands{.x = address_of(input.tensor), .g = address_of(output.tensor)};
  if (is_wanted(0)) {
    made.push_back(make_with_features(x, settings.layout, call.cols(), call.dtype(), call.device()));
    operands.grad_x = address_of(made.back());
  }
  Array<void*, 8> gradients(factors.size());
  for (std::size_t at = 0; at < factors.size(); ++at)
    if (is_wanted(at + 1)) {
      made.push_back(make_tensor(sizes_of(factors[at]), call.dtype(), call.device()));
      gradients[at] = address_of(made.back());
    }
  operands.gradients = gradients.data();
  const std::size_t bytes = call.intermediate_bytes(input.batch);
  if (intermediates && bytes > 0)
    operands.intermediates = intermediates_in(*intermediates, bytes, call.device());
  call.run({.size = input.batch, .cols_stride = input.stride, .rows_stride = output.stride}, operands);
  return made;
}

Tensor gradient(const Tensor& x, const Tensor& g, std::int64_t a, std::int64_t b, std::int64_t c,
                std::int64_t d, std::int64_t settings_given) {
  const Settings settings(settings_given);
  const Device device = device_of("x", x);
  const DType dtype = dtype_of("x", x);
  check_same_device("g", g, device);
  check_same_dtype("g", g, dtype);
  const std::array sizes{a, b, c, d};
  const Pattern pattern{a, b, c, d};
  pattern.validate();
  const auto plan = find_plan({.sizes = sizes,
                               .dtype = dtype,
                               .layout = settings.layout,
                               .operation = Operation::gradient,
                               .mode = dtype == DType::f32 ? settings.mode : Mode::fp32,
                               .device = device});
  const Matrix input = as_matrix("x", x, settings.layout, pattern.cols());
  const Matrix output = as_matrix("g", g, settings.layout, pattern.rows());
  if (input.batch != output.batch)
    refuse(ErrorCode::size_mismatch, "g",
           "batch of " + std::to_string(output.batch) + " given, must be that of x, " +
               std::to_string(input.batch));
  Tensor y = make_tensor(sizes, dtype, device);
  const Batch batch{.size = input.batch, .cols_stride = input.stride, .rows_stride = output.stride};
  Operands operands{.x = address_of(input.tensor),
                    .y = address_of(y),
                    .g = address_of(output.tensor),
                    .stream = current_stream(device)};
  operands.workspace_bytes = plan->workspace_bytes(batch, operands);
  const Scratch workspace(operands.workspace_bytes, device);
  operands.workspace = workspace.data();
  plan->run(batch, operands);
  return y;
}

std::int64_t freeze_factors(const Tensors& factors, const std::vector<std::int64_t>& versions) {
  return freeze(factors, versions);
}

/// Plans kept, kept at most, frozen layers, bytes packed for them.
std::vector<std::int64_t> memory_info() {
  const FrozenInfo frozen = frozen_info();
  return {static_cast<std::int64_t>(plan_count()), static_cast<std::int64_t>(plan_capacity()), frozen.count,
          frozen.bytes};
}

void set_plans(std::int64_t capacity) {
  if (capacity < 1)
    refuse(ErrorCode::invalid_argument, "capacity", std::to_string(capacity) + " given, must be at least 1");
  set_plan_capacity(static_cast<std::size_t>(capacity));
}

/// The predicted nanoseconds of a run and of the packing before it, for the number of a dtype and of a GPU,
/// or -1 for the CPU; and the names of what runs.
std::tuple<std::int64_t, std::int64_t, std::string> predict(const std::vector<std::int64_t>& sizes,
                                                            std::int64_t dtype, std::int64_t settings_given,
                                                            bool has_bias, std::int64_t gpu,
                                                            std::int64_t batch_size) {
  const Settings settings(settings_given);
  if (sizes.empty() || sizes.size() % 4 != 0)
    refuse(ErrorCode::size_mismatch, "sizes",
           std::to_string(sizes.size()) + " given, must be four for each factor");
  if (dtype < 0 || dtype > static_cast<std::int64_t>(DType::complex128))
    refuse(ErrorCode::invalid_argument, "dtype",
           std::to_string(dtype) + " given, must be the number of a dtype");
  const auto plan = find_plan({.sizes = sizes,
                               .dtype = static_cast<DType>(dtype),
                               .layout = settings.layout,
                               .operation = settings.operation,
                               .mode = static_cast<DType>(dtype) == DType::f32 ? settings.mode : Mode::fp32,
                               .activation = settings.activation,
                               .bias = has_bias,
                               .device = gpu < 0 ? Device{} : Device{Backend::cuda, static_cast<int>(gpu)}});
  const Batch batch{.size = batch_size};
  const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(1e9 * seconds); };
  return {nanoseconds(plan->predicted_seconds(batch)), nanoseconds(plan->predicted_packing_seconds(batch)),
          plan->implementation(batch)};
}

}  // namespace

// NOLINTBEGIN(bugprone-throwing-static-initialization): torch reports what fails while a library loads.
STABLE_TORCH_LIBRARY(kronsparse, library) {
  // Those called plain have no derivatives registered, which would cost more than a small product. The others
  // have no defaults: torch wants a gradient, if only None, for what is given and not for what is left out.
  library.def("linear(Tensor x, Tensor[] factors, Tensor? bias, int settings, int packed) -> Tensor");
  library.def("linear_plain(Tensor x, Tensor[] factors, Tensor? bias, int settings, int packed=0) -> Tensor");
  library.def(
      "linear_saving(Tensor x, Tensor[] factors, Tensor? bias, int settings, int packed) -> (Tensor, "
      "Tensor)");
  library.def(
      "linear_saving_plain(Tensor x, Tensor[] factors, Tensor? bias, int settings, int packed=0) -> "
      "(Tensor, Tensor)");
  library.def(
      "linear_backward(Tensor g, Tensor x, Tensor[] factors, Tensor? intermediates, int settings, int "
      "packed, "
      "int wanted) -> Tensor[]");
  library.def("gradient(Tensor x, Tensor g, int a, int b, int c, int d, int settings) -> Tensor");
  library.def("freeze(Tensor[] factors, int[] versions) -> int");
  library.def("release(int packed) -> ()");
  library.def("memory_info() -> int[]");
  library.def("set_plans(int capacity) -> ()");
  library.def(
      "predict(int[] sizes, int dtype, int settings, bool has_bias, int gpu, int batch) -> (int, int, str)");
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CPU, library) {
  library.impl("linear", TORCH_BOX(&linear));
  library.impl("linear_plain", TORCH_BOX(&linear));
  library.impl("linear_saving", TORCH_BOX(&linear_saving));
  library.impl("linear_saving_plain", TORCH_BOX(&linear_saving));
  library.impl("linear_backward", TORCH_BOX(&linear_backward));
  library.impl("gradient", TORCH_BOX(&gradient));
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CUDA, library) {
  library.impl("linear", TORCH_BOX(&linear));
  library.impl("linear_plain", TORCH_BOX(&linear));
  library.impl("linear_saving", TORCH_BOX(&linear_saving));
  library.impl("linear_saving_plain", TORCH_BOX(&linear_saving));
  library.impl("linear_backward", TORCH_BOX(&linear_backward));
  library.impl("gradient", TORCH_BOX(&gradient));
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CompositeExplicitAutograd, library) {
  library.impl("freeze", TORCH_BOX(&freeze_factors));
  library.impl("release", TORCH_BOX(&release));
  library.impl("memory_info", TORCH_BOX(&memory_info));
  library.impl("set_plans", TORCH_BOX(&set_plans));
  library.impl("predict", TORCH_BOX(&predict));
}
// NOLINTEND(bugprone-throwing-static-initialization)

}  // namespace kronsparse::binding
