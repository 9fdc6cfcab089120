// The operators kronsparse::multiply, adjoint and gradient of torch, through its stable ABI: one build
// serves every torch from TORCH_TARGET_VERSION on. The three are closed under differentiation; fake
// implementations, derivatives, autocast and vmap are in python/kronsparse/torch/_operators.py.
//
// A body checks, finds sizes and strides, and hands over to the core; the same body serves the CPU and
// CUDA, since the core does the rest for both.

#include <torch/csrc/stable/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kronsparse/error.hpp"
#include "plan_cache.hpp"
#include "tensor.hpp"

namespace kronsparse::binding {
namespace {

void check_same_device(std::string_view argument, const Tensor& tensor, Device device) {
  const Device given = device_of(argument, tensor);
  if (given != device)
    throw Error(ErrorCode::size_mismatch, std::string(argument) + ": on " + given.to_string() +
                                              ", must be where x is, on " + device.to_string());
}

void check_same_dtype(std::string_view argument, const Tensor& tensor, DType dtype) {
  const DType given = dtype_of(argument, tensor);
  if (given != dtype)
    throw Error(ErrorCode::size_mismatch, std::string(argument) + ": dtype " + std::string(name(given)) +
                                              " given, must be that of x, " + std::string(name(dtype)));
}

// Parameters may stay in float32 while activations are in half precision: they are packed in x's dtype.
void check_values_dtype(const Tensor& values, DType dtype) {
  const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
  if (!is_half || dtype_of("values", values) != DType::f32) check_same_dtype("values", values, dtype);
}

Values values_of(const Tensor& x, const Tensor& values, std::string_view packing_name) {
  const Packing packing = parse_packing(packing_name);
  const bool matters = packing != Packing::each_call;
  return {values, x, packing, matters ? version_of(values) : unknown_version};
}

/// multiply or adjoint.
Tensor product(Operation operation, const Tensor& x, const Values& given, const std::optional<Tensor>& bias,
               Activation activation, Layout layout, Mode mode) {
  const Tensor& values = given.tensor;
  const Device device = device_of("x", x);
  const DType dtype = dtype_of("x", x);
  check_same_device("values", values, device);
  check_values_dtype(values, dtype);

  Problem problem{.pattern = pattern_of("values", values), .dtype = dtype, .layout = layout};
  problem.operation = operation;
  problem.activation = activation;
  problem.mode = dtype == DType::f32 ? mode : Mode::fp32;
  problem.bias = bias.has_value();

  std::optional<Tensor> dense_bias;
  if (bias) {
    check_same_device("bias", *bias, device);
    check_same_dtype("bias", *bias, dtype);
    if (bias->dim() != 1 || bias->numel() != problem.pattern.rows())
      throw Error(ErrorCode::size_mismatch,
                  "bias: " + std::to_string(bias->numel()) + " elements in " + std::to_string(bias->dim()) +
                      " dimensions given, must be a vector of " + std::to_string(problem.pattern.rows()));
    dense_bias = dense_like(*bias, x);
  }

  const Matrix input = as_matrix("x", x, layout, problem.in_features());
  problem.batch = input.batch;
  (operation == Operation::multiply ? problem.cols_stride : problem.rows_stride) = input.stride;

  Tensor y = make_tensor(with_features(x, layout, problem.out_features()), x);
  PlanCache::instance().run(problem, device, given,
                            {.x = input.tensor.data_ptr(),
                             .y = y.data_ptr(),
                             .bias = dense_bias ? dense_bias->data_ptr() : nullptr,
                             .stream = current_stream(device)});
  return y;
}

Tensor multiply(const Tensor& x, const Tensor& values, const std::optional<Tensor>& bias,
                std::string_view activation, std::string_view layout, std::string_view mode,
                std::string_view packing) {
  return product(Operation::multiply, x, values_of(x, values, packing), bias, parse_activation(activation),
                 parse_layout(layout), parse_mode(mode));
}

/// multiply without what a small product would feel: names to parse, derivatives to pass by, and the
/// version to ask torch for. Settings are the numbers of activation, layout, mode and packing, a byte each.
Tensor multiply_plain(const Tensor& x, const Tensor& values, const std::optional<Tensor>& bias,
                      std::int64_t settings, std::int64_t version) {
  const auto setting = [settings]<class Enum>(int byte, Enum last) {
    const auto number = static_cast<std::uint64_t>(settings) >> (8 * byte) & 0xffU;
    if (number > static_cast<std::uint64_t>(last) || settings >> 32 != 0)
      throw Error(ErrorCode::invalid_argument,
                  "settings: " + std::to_string(settings) +
                      " given, must be four bytes, each the number of a setting");
    return static_cast<Enum>(number);
  };
  const auto activation = setting(0, Activation::silu);
  const auto layout = setting(1, Layout::batch_last);
  const auto mode = setting(2, Mode::tf32);
  const auto packing = setting(3, Packing::frozen);
  return product(Operation::multiply, x, Values{values, x, packing, version}, bias, activation, layout, mode);
}

Tensor adjoint(const Tensor& x, const Tensor& values, std::string_view layout, std::string_view mode,
               std::string_view packing) {
  return product(Operation::adjoint, x, values_of(x, values, packing), std::nullopt, Activation::none,
                 parse_layout(layout), parse_mode(mode));
}

Tensor gradient(const Tensor& x, const Tensor& g, std::int64_t a, std::int64_t b, std::int64_t c,
                std::int64_t d, std::string_view layout_name, std::string_view mode_name) {
  const Layout layout = parse_layout(layout_name);
  const Device device = device_of("x", x);
  const DType dtype = dtype_of("x", x);
  check_same_device("g", g, device);
  check_same_dtype("g", g, dtype);

  Problem problem{.pattern = {a, b, c, d}, .dtype = dtype, .layout = layout};
  problem.operation = Operation::gradient;
  problem.mode = dtype == DType::f32 ? parse_mode(mode_name) : Mode::fp32;
  problem.pattern.validate();

  const Matrix input = as_matrix("x", x, layout, problem.pattern.cols());
  const Matrix output = as_matrix("g", g, layout, problem.pattern.rows());
  if (input.batch != output.batch)
    throw Error(ErrorCode::size_mismatch, "g: batch of " + std::to_string(output.batch) +
                                              " given, must be that of x, " + std::to_string(input.batch));
  problem.batch = input.batch;
  problem.cols_stride = input.stride;
  problem.rows_stride = output.stride;

  Tensor y = make_tensor({a, b, c, d}, x);
  PlanCache::instance().run(problem, device, std::nullopt,
                            {.x = input.tensor.data_ptr(),
                             .y = y.data_ptr(),
                             .g = output.tensor.data_ptr(),
                             .stream = current_stream(device)});
  return y;
}

void mark_stale(const Tensor& values) { PlanCache::instance().mark_stale(values); }
void mark_all_stale() { PlanCache::instance().mark_all_stale(); }
void drop_plans(const Tensor& values) { PlanCache::instance().drop(values); }
void plan_cache_clear() { PlanCache::instance().clear(); }
void plan_cache_resize(std::int64_t capacity) { PlanCache::instance().resize(capacity); }

/// In the order of PlanCacheInfo's members.
std::vector<std::int64_t> plan_cache_info() {
  const PlanCacheInfo info = PlanCache::instance().info();
  return {info.plans, info.capacity, info.bytes, info.made, info.packed};
}

}  // namespace

// NOLINTBEGIN(bugprone-throwing-static-initialization): torch reports what fails while a library loads.
STABLE_TORCH_LIBRARY(kronsparse, library) {
  library.def(
      "multiply(Tensor x, Tensor values, Tensor? bias=None, str activation='none', str layout='batch_first', "
      "str mode='fp32', str packing='each_call') -> Tensor");
  library.def(
      "adjoint(Tensor x, Tensor values, str layout='batch_first', str mode='fp32', "
      "str packing='each_call') -> Tensor");
  library.def(
      "gradient(Tensor x, Tensor g, int a, int b, int c, int d, str layout='batch_first', "
      "str mode='fp32') -> Tensor");
  library.def("multiply_plain(Tensor x, Tensor values, Tensor? bias, int settings, int version) -> Tensor");
  library.def("mark_stale(Tensor values) -> ()");
  library.def("mark_all_stale() -> ()");
  library.def("drop_plans(Tensor values) -> ()");
  library.def("plan_cache_clear() -> ()");
  library.def("plan_cache_resize(int capacity) -> ()");
  library.def("plan_cache_info() -> int[]");
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CPU, library) {
  library.impl("multiply", TORCH_BOX(&multiply));
  library.impl("multiply_plain", TORCH_BOX(&multiply_plain));
  library.impl("adjoint", TORCH_BOX(&adjoint));
  library.impl("gradient", TORCH_BOX(&gradient));
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CUDA, library) {
  library.impl("multiply", TORCH_BOX(&multiply));
  library.impl("multiply_plain", TORCH_BOX(&multiply_plain));
  library.impl("adjoint", TORCH_BOX(&adjoint));
  library.impl("gradient", TORCH_BOX(&gradient));
}

STABLE_TORCH_LIBRARY_IMPL(kronsparse, CompositeExplicitAutograd, library) {
  library.impl("mark_stale", TORCH_BOX(&mark_stale));
  library.impl("mark_all_stale", TORCH_BOX(&mark_all_stale));
  library.impl("drop_plans", TORCH_BOX(&drop_plans));
  library.impl("plan_cache_clear", TORCH_BOX(&plan_cache_clear));
  library.impl("plan_cache_resize", TORCH_BOX(&plan_cache_resize));
  library.impl("plan_cache_info", TORCH_BOX(&plan_cache_info));
}
// NOLINTEND(bugprone-throwing-static-initialization)

}  // namespace kronsparse::binding
