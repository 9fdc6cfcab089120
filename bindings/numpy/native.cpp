// The module kronsparse._native: products on NumPy arrays, and what this build and machine have.
// Thin: sizes and dtypes are read off the arrays, the core checks them.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kronsparse/kronsparse.h"
#include "kronsparse/kronsparse.hpp"

namespace nb = nanobind;

namespace kronsparse::binding {
namespace {

using Array = nb::ndarray<nb::device::cpu>;
using ConstArray = nb::ndarray<nb::ro, nb::device::cpu>;

DType dtype_of(const char* argument, nb::dlpack::dtype dtype) {
  using nb::dlpack::dtype_code;
  const auto is = [&](dtype_code code, int bits) {
    return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1;
  };
  if (is(dtype_code::Float, 32)) return DType::f32;
  if (is(dtype_code::Float, 64)) return DType::f64;
  if (is(dtype_code::Float, 16)) return DType::f16;
  if (is(dtype_code::Complex, 64)) return DType::complex64;
  if (is(dtype_code::Complex, 128)) return DType::complex128;
  throw Error(ErrorCode::invalid_argument,
              std::string(argument) +
                  ": dtype not supported, must be float16, float32, float64, complex64 or complex128");
}

template <class Any>
void check_dimensions(const char* argument, const Any& array, std::size_t dimensions) {
  if (array.ndim() != dimensions)
    throw Error(ErrorCode::size_mismatch, std::string(argument) + ": " + std::to_string(array.ndim()) +
                                              " dimensions given, must be " + std::to_string(dimensions));
}

/// A matrix whose rows have no gaps inside; the caller copies others.
template <class AsMatrix, class Any>
AsMatrix matrix(const char* argument, const Any& array) {
  check_dimensions(argument, array, 2);
  const auto rows = static_cast<std::int64_t>(array.shape(0));
  const auto cols = static_cast<std::int64_t>(array.shape(1));
  if (rows == 0 || cols == 0)  // NumPy's strides of empty arrays say nothing
    return AsMatrix(array.data(), dtype_of(argument, array.dtype()), rows, cols);
  if (cols > 1 && array.stride(1) != 1)
    throw Error(ErrorCode::invalid_argument, std::string(argument) + ": elements of a row " +
                                                 std::to_string(array.stride(1)) +
                                                 " apart given, must be adjacent");
  return AsMatrix(array.data(), dtype_of(argument, array.dtype()), rows, cols,
                  rows > 1 ? array.stride(0) : cols);
}

template <class Any>
ConstVector vector(const char* argument, const Any& array) {
  std::int64_t dense_stride = 1;
  for (std::size_t dimension = array.ndim(); dimension-- > 0;) {
    if (array.shape(dimension) > 1 && array.stride(dimension) != dense_stride)
      throw Error(ErrorCode::invalid_argument,
                  std::string(argument) + ": an array with gaps given, must be C-contiguous");
    dense_stride *= static_cast<std::int64_t>(array.shape(dimension));
  }
  return {array.data(), dtype_of(argument, array.dtype()), dense_stride};
}

template <class Any>
Pattern pattern_of(const Any& values) {
  check_dimensions("values", values, 4);
  const auto size = [&](std::size_t dimension) { return static_cast<std::int64_t>(values.shape(dimension)); };
  return {size(0), size(1), size(2), size(3)};
}

/// Arrays of the host in the memory of a device: the same addresses on the CPU, else copies that live as
/// long.
class Mirror {
 public:
  explicit Mirror(Device device) : device_(device) {}

  ConstVector operator()(const char* argument, ConstVector host) {
    host.data = copied(argument, host.data, bytes(host.size, host.dtype));
    return host;
  }
  template <class AsMatrix>
  AsMatrix operator()(const char* argument, AsMatrix host) {
    const std::int64_t extent = host.rows == 0 ? 0 : (host.rows - 1) * host.stride + host.cols;
    host.data = copied(argument, host.data, bytes(extent, host.dtype));
    return host;
  }
  /// The last that was copied, back to where it came from.
  void copy_back(void* to) const {
    if (!buffers_.empty()) buffers_.back().copy_to_host(to, buffers_.back().bytes());
  }

 private:
  static std::size_t bytes(std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  }
  void* copied(const char* argument, const void* host, std::size_t bytes) {
    if (device_.backend == Backend::cpu) return const_cast<void*>(host);
    try {
      buffers_.emplace_back(bytes, device_);
    } catch (const Error& error) {
      throw Error(error.code(), std::string(argument) + ": no room on the device, " + error.what());
    }
    buffers_.back().copy_from_host(host, bytes);
    return buffers_.back().data();
  }

  Device device_;
  std::vector<Buffer> buffers_;
};

/// `values` has an array for each factor, left factor first.
void multiply_into(const Array& y, const ConstArray& x, const std::vector<ConstArray>& values,
                   const std::optional<ConstArray>& bias, const std::string& activation,
                   const std::string& layout, const std::string& operation, const std::string& device) {
  MultiplyOptions options;
  options.device = Device::parse(device);
  options.layout = parse_layout(layout);
  options.operation = parse_operation(operation);
  options.activation = parse_activation(activation);
  if (bias) options.bias = vector("bias", *bias);
  std::vector<Pattern> factors;
  std::vector<ConstVector> vectors;
  for (const ConstArray& one : values) {
    factors.push_back(pattern_of(one));
    vectors.push_back(vector("values", one));
  }
  const Chain chain(std::move(factors));
  const auto input = matrix<ConstMatrix>("x", x);
  const auto output = matrix<Matrix>("y", y);
  const nb::gil_scoped_release released;
  Mirror mirror(options.device);
  for (ConstVector& one : vectors) one = mirror("values", one);
  if (options.bias) options.bias = mirror("bias", *options.bias);
  const ConstMatrix input_there = mirror("x", input);
  multiply(chain, vectors, input_there, mirror("y", output), options);
  mirror.copy_back(output.data);
}

void gradient_into(const Array& grad_values, const ConstArray& x, const ConstArray& g,
                   const std::string& layout, const std::string& device) {
  const Pattern pattern = pattern_of(grad_values);
  const ConstVector checked = vector("grad_values", grad_values);
  const Matrix output(grad_values.data(), checked.dtype, pattern.a * pattern.b, pattern.c * pattern.d);
  const auto input = matrix<ConstMatrix>("x", x);
  const auto given = matrix<ConstMatrix>("g", g);
  GradientOptions options;
  options.layout = parse_layout(layout);
  options.device = Device::parse(device);
  const nb::gil_scoped_release released;
  Mirror mirror(options.device);
  const ConstMatrix input_there = mirror("x", input);
  const ConstMatrix given_there = mirror("g", given);
  gradient(pattern, input_there, given_there, mirror("grad_values", output), options);
  mirror.copy_back(output.data);
}

/// Writes the factors into `values`, arrays of the chain's patterns. Returns error, lower and upper bound,
/// and the errors of the splits.
std::tuple<double, double, double, std::vector<double>> factorize_into(
    const std::vector<Array>& values, const ConstArray& w, const std::string& order,
    const std::vector<std::size_t>& splits, bool orthonormal, int polish, bool certify,
    const std::optional<nb::callable>& progress) {
  FactorizeOptions options;
  options.order = parse_split_order(order);
  options.splits = splits;
  options.orthonormal = orthonormal;
  options.polish = polish;
  options.certify = certify;
  options.progress = [&](double done) {
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C
    if (progress) (*progress)(done);
  };
  std::vector<Pattern> factors;
  std::vector<ConstVector> places;
  for (const Array& one : values) {
    factors.push_back(pattern_of(one));
    places.push_back(vector("values", one));
  }
  const Chain chain(std::move(factors));
  const auto input = matrix<ConstMatrix>("w", w);
  for (const ConstVector& place : places)
    if (place.dtype != input.dtype)
      throw Error(ErrorCode::size_mismatch, "values: another dtype than that of w given");
  const nb::gil_scoped_release released;
  const Factorization found = factorize(input, chain, options);
  for (std::size_t index = 0; index < values.size(); ++index)
    std::memcpy(values[index].data(), found.values[index].data(), found.values[index].size());
  return {found.error, found.lower_bound, found.upper_bound, found.split_errors};
}

std::vector<std::pair<std::string, std::string>> list_devices() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const DeviceInfo& info : devices()) found.emplace_back(info.device.to_string(), info.description);
  return found;
}

std::vector<std::tuple<std::string, std::string, double>> list_candidates(const std::string& problem,
                                                                          const std::string& device) {
  std::vector<std::tuple<std::string, std::string, double>> found;
  for (const Candidate& candidate : candidates(Problem::parse(problem), Device::parse(device)))
    found.emplace_back(candidate.implementation, candidate.refusal, candidate.predicted_seconds);
  return found;
}

/// Seconds of a run and of the packing that comes before it, for a chain of any length.
std::pair<double, double> predict(const std::string& problem, const std::string& device) {
  const Problem parsed = Problem::parse(problem);
  const Plan plan(parsed, Device::parse(device));
  const Batch batch{parsed.batch, parsed.cols_stride, parsed.rows_stride};
  return {plan.predicted_seconds(batch), plan.predicted_packing_seconds(batch)};
}

std::vector<std::int64_t> radices(std::int64_t n, const std::string& dtype, const std::string& device) {
  return transform_radices(n, parse_dtype(dtype), Device::parse(device));
}

PyObject* python_type_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::parse:
    case ErrorCode::size_mismatch:
    case ErrorCode::overlap:
    case ErrorCode::overflow:
      return PyExc_ValueError;
    case ErrorCode::out_of_memory:
      return PyExc_MemoryError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace
}  // namespace kronsparse::binding

NB_MODULE(_native, module) {
  using namespace kronsparse::binding;
  using namespace nb::literals;

  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const kronsparse::Error& error) {
      PyErr_SetString(python_type_of(error.code()), error.what());
    }
  });

  module.attr("__version__") = KRONSPARSE_VERSION;
  module.attr("loaded_version") = kronsparse_version();  // of the library that was loaded
  module.def("multiply_into", &multiply_into, "y"_a, "x"_a, "values"_a, "bias"_a, "activation"_a, "layout"_a,
             "operation"_a, "device"_a = "cpu");
  module.def("gradient_into", &gradient_into, "grad_values"_a, "x"_a, "g"_a, "layout"_a, "device"_a = "cpu");
  module.def("factorize_into", &factorize_into, "values"_a, "w"_a, "order"_a, "splits"_a, "orthonormal"_a,
             "polish"_a, "certify"_a, "progress"_a.none());
  module.def("devices", &list_devices);
  module.def(
      "why_unusable",
      [](const std::string& device) { return kronsparse::why_unusable(kronsparse::Device::parse(device)); },
      "device"_a);
  module.def("candidates", &list_candidates, "problem"_a, "device"_a);
  module.def("predict", &predict, "problem"_a, "device"_a);
  module.def("transform_radices", &radices, "n"_a, "dtype"_a, "device"_a);
}
