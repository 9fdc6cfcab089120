// Wrong calls with operands. Each has its exact error code and its exact message,
// and none touches its output. (What the C API adds is in tests/c_api.)
#include "wrong_calls.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"

namespace kronsparse {
namespace {

constexpr float sentinel = 42.0F;

// Operands of "f32 batch_first B=7 2x3x4x5", with room to spare, at addresses
// that the expected messages can name.
alignas(64) std::array<float, 1024> values{};
alignas(64) std::array<float, 1024> x{};
alignas(64) std::array<float, 1024> bias{};
alignas(64) std::array<float, 1024> g{};
alignas(64) std::array<float, 1024> y{};

const Pattern pattern{2, 3, 4, 5};
const Chain chain{{1, 2, 3, 4}, {4, 3, 5, 1}};  // 8 x 20

std::string address(const void* base, std::ptrdiff_t bytes = 0) {
  std::ostringstream stream;
  stream << static_cast<const void*>(static_cast<const char*>(base) + bytes);
  return stream.str();
}

template <class T>
T* shifted(T* pointer, std::ptrdiff_t bytes) {
  const auto number = reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes);
  return reinterpret_cast<T*>(number);
}

void run(const std::string& problem, const Operands& operands) {
  const Problem parsed = Problem::parse(problem);
  Plan(parsed, parsed.operation == Operation::gradient ? nullptr : values.data()).run(operands);
}

// The message for a device that no machine has, whatever this build and machine have.
std::string missing(Device device) {
  std::string present;
  for (const DeviceInfo& info : devices()) present += (present.empty() ? "" : ", ") + info.device.to_string();
  const std::string why = device.backend == Backend::cpu ? "there is no such device" : why_unusable(device);
  return "device: " + device.to_string() + " cannot be used, " + why + "; present: " + present;
}

std::vector<WrongCall> wrong_plans() {
  std::string names;
  for (const ImplementationInfo& info : implementations())
    if (info.backend == Backend::cpu) names += (names.empty() ? "" : ", ") + info.name;
  return {
      {"null values", ErrorCode::bad_pointer, "values: null given, must point to f32 elements",
       [] { Plan(Problem::parse(text), nullptr); }},
      {"misaligned values", ErrorCode::bad_pointer,
       "values: address " + address(values.data(), 2) + " given, must be a multiple of 4 for f32",
       [] { Plan(Problem::parse(text), shifted(values.data(), 2)); }},
      {"misaligned complex values", ErrorCode::bad_pointer,
       "values: address " + address(values.data(), 4) + " given, must be a multiple of 8 for complex128",
       [] { Plan(Problem::parse("complex128 batch_first B=7 2x3x4x5"), shifted(values.data(), 4)); }},
      {"new values null", ErrorCode::bad_pointer, "values: null given, must point to f32 elements",
       [] { Plan(Problem::parse(text), values.data()).set_values(nullptr); }},
      {"values of a gradient", ErrorCode::invalid_argument,
       "values: given to a plan of gradient f32 batch_first B=7 2x3x4x5 that was made without any",
       [] { Plan(Problem::parse("gradient " + text), nullptr).set_values(values.data()); }},
      {"run of a plan that was moved from", ErrorCode::invalid_argument, "plan: used after it was moved from",
       [] {
         Plan plan(Problem::parse(text), values.data());
         const Plan other(std::move(plan));
         plan.run({.x = x.data(), .y = y.data()});  // NOLINT(bugprone-use-after-move): the point
       }},
      {"values for a plan that was moved from", ErrorCode::invalid_argument,
       "plan: used after it was moved from",
       [] {
         Plan plan(Problem::parse(text), values.data());
         const Plan other(std::move(plan));
         plan.set_values(values.data());  // NOLINT(bugprone-use-after-move): the point
       }},
      {"invalid problem", ErrorCode::invalid_argument, "batch: -1 given, must be at least 0",
       [] {
         Problem problem = Problem::parse(text);
         problem.batch = -1;
         Plan(problem, values.data());
       }},
      {"unknown implementation", ErrorCode::invalid_argument,
       "implementation: 'turbo' is neither an implementation for cpu nor a family of them; there are " +
           names,
       [] { Plan(Problem::parse(text), values.data(), {}, "turbo"); }},
      {"unknown implementation in the variable", ErrorCode::invalid_argument,
       "KRONSPARSE_IMPL: 'turbo' is neither an implementation for cpu nor a family of them; there are " +
           names,
       [] {
         setenv("KRONSPARSE_IMPL", "turbo", 1);
         Plan(Problem::parse(text), values.data());
       }},
      {"CPU that is not there", ErrorCode::device, missing({Backend::cpu, 1}),
       [] {
         Plan(Problem::parse(text), values.data(), {Backend::cpu, 1});
       }},
      {"backend that is not built", ErrorCode::device, missing({Backend::opencl, 999}),
       [] {
         Plan(Problem::parse(text), values.data(), {Backend::opencl, 999});
       }},
      {"candidates of a device that is not there", ErrorCode::device, missing({Backend::cuda, 999}),
       [] {
         (void)candidates(Problem::parse(text), {Backend::cuda, 999});
       }},
      {"device that is none", ErrorCode::parse,
       "device: 'gpu' given, must be one of cpu, cuda, opencl, with a number as in cuda:1 or without",
       [] { (void)Device::parse("gpu"); }},
      {"device number that is none", ErrorCode::parse, "device: '-1' in 'cuda:-1'" + number_rule,
       [] { (void)Device::parse("cuda:-1"); }},
      {"device number too large", ErrorCode::overflow,
       "device: the number of 'cuda:2147483648' must be at most 2147483647",
       [] { (void)Device::parse("cuda:2147483648"); }},
  };
}

std::vector<WrongCall> wrong_runs() {
  const std::string overlap_rule = "; the output must not share memory with an input";
  return {
      {"null x", ErrorCode::bad_pointer, "x: null given, must point to f32 elements",
       [] { run(text, {.y = y.data()}); }},
      {"null y", ErrorCode::bad_pointer, "y: null given, must point to f32 elements",
       [] { run(text, {.x = x.data()}); }},
      {"misaligned x", ErrorCode::bad_pointer,
       "x: address " + address(x.data(), 1) + " given, must be a multiple of 4 for f32",
       [] { run(text, {.x = shifted(x.data(), 1), .y = y.data()}); }},
      {"misaligned y", ErrorCode::bad_pointer,
       "y: address " + address(y.data(), 3) + " given, must be a multiple of 4 for f32",
       [] { run(text, {.x = x.data(), .y = shifted(y.data(), 3)}); }},
      {"misaligned f16", ErrorCode::bad_pointer,
       "x: address " + address(x.data(), 1) + " given, must be a multiple of 2 for f16",
       [] { run("f16 batch_first B=7 2x3x4x5", {.x = shifted(x.data(), 1), .y = y.data()}); }},
      {"misaligned bias", ErrorCode::bad_pointer,
       "bias: address " + address(bias.data(), 2) + " given, must be a multiple of 4 for f32",
       [] { run(text + " +bias", {.x = x.data(), .y = y.data(), .bias = shifted(bias.data(), 2)}); }},
      {"no bias", ErrorCode::bad_pointer, "bias: null given, f32 batch_first B=7 2x3x4x5 +bias needs it",
       [] { run(text + " +bias", {.x = x.data(), .y = y.data()}); }},
      {"bias not asked for", ErrorCode::invalid_argument,
       "bias: given, must be null because f32 batch_first B=7 2x3x4x5 does not use it",
       [] { run(text, {.x = x.data(), .y = y.data(), .bias = bias.data()}); }},
      {"g not asked for", ErrorCode::invalid_argument,
       "g: given, must be null because f32 batch_first B=7 2x3x4x5 does not use it",
       [] { run(text, {.x = x.data(), .y = y.data(), .g = g.data()}); }},
      {"gradient without g", ErrorCode::bad_pointer, "g: null given, must point to f32 elements",
       [] { run("gradient " + text, {.x = x.data(), .y = y.data()}); }},
      {"gradient of an empty batch without y", ErrorCode::bad_pointer,
       "y: null given, must point to f32 elements", [] { run("gradient f32 batch_first B=0 2x3x4x5", {}); }},
      {"x is y", ErrorCode::overlap,
       "y: bytes " + address(y.data()) + " to " + address(y.data(), 840) + " overlap x, bytes " +
           address(y.data()) + " to " + address(y.data(), 1120) + overlap_rule,
       [] { run(text, {.x = y.data(), .y = y.data()}); }},
      {"y begins in the last element of x", ErrorCode::overlap,
       "y: bytes " + address(y.data(), 1116) + " to " + address(y.data(), 1956) + " overlap x, bytes " +
           address(y.data()) + " to " + address(y.data(), 1120) + overlap_rule,
       [] { run(text, {.x = y.data(), .y = y.data() + 279}); }},
      {"y in a gap of x with another stride", ErrorCode::overlap,
       "y: bytes " + address(y.data(), 160) + " to " + address(y.data(), 400) + " overlap x, bytes " +
           address(y.data()) + " to " + address(y.data(), 560) + overlap_rule,
       [] { run("f32 batch_first B=2 2x3x4x5 cols_stride=100", {.x = y.data(), .y = y.data() + 40}); }},
      {"bias in y", ErrorCode::overlap,
       "y: bytes " + address(y.data()) + " to " + address(y.data(), 840) + " overlap bias, bytes " +
           address(y.data(), 836) + " to " + address(y.data(), 956) + overlap_rule,
       [] { run(text + " +bias", {.x = x.data(), .y = y.data(), .bias = y.data() + 209}); }},
      {"g is y", ErrorCode::overlap,
       "y: bytes " + address(y.data()) + " to " + address(y.data(), 480) + " overlap g, bytes " +
           address(y.data()) + " to " + address(y.data(), 840) + overlap_rule,
       [] { run("gradient " + text, {.x = x.data(), .y = y.data(), .g = y.data()}); }},
  };
}

std::vector<WrongCall> wrong_multiplications() {
  const ConstVector good_values{values.data(), 120};
  const ConstMatrix good_x{x.data(), 7, 40};
  const Matrix good_y{y.data(), 7, 30};
  const auto call = [=](ConstVector v, ConstMatrix in, Matrix out, MultiplyOptions options = {}) {
    return [=] { multiply(pattern, v, in, out, options); };
  };
  const auto with_bias = [](ConstVector vector) {
    MultiplyOptions options;
    options.bias = vector;
    return options;
  };
  return {
      {"values too few", ErrorCode::size_mismatch,
       "values: 119 elements given, must be 120, the values of 2x3x4x5",
       call({values.data(), 119}, good_x, good_y)},
      {"values of another dtype", ErrorCode::size_mismatch, "values: dtype f64 given, must be f32 as x is",
       call({values.data(), DType::f64, 120}, good_x, good_y)},
      {"values null", ErrorCode::bad_pointer, "values: null given, must point to f32 elements",
       call({nullptr, DType::f32, 120}, good_x, good_y)},
      {"x too narrow", ErrorCode::size_mismatch,
       "x: 7 x 39 given, must be 7 x 40, batch 7 of 40 features, the columns of 2x3x4x5",
       call(good_values, {x.data(), 7, 39}, good_y)},
      {"x not transposed", ErrorCode::size_mismatch,
       "x: 7 x 40 given, must be 7 x 30, batch 7 of 30 features, the rows of 2x3x4x5",
       call(good_values, good_x, good_y, {.operation = Operation::transposed})},
      {"x in the other layout", ErrorCode::size_mismatch,
       "x: 7 x 40 given, must be 40 x 40, batch 40 of 40 features, the columns of 2x3x4x5",
       call(good_values, good_x, good_y, {.layout = Layout::batch_last})},
      {"x with a short stride", ErrorCode::invalid_argument,
       "x: row stride 39 given, must be at least the 40 columns",
       call(good_values, {x.data(), 7, 40, 39}, good_y)},
      {"x with a negative batch", ErrorCode::invalid_argument, "batch: -7 given, must be at least 0",
       call(good_values, {x.data(), -7, 40}, {y.data(), -7, 30})},
      {"x null", ErrorCode::bad_pointer, "x: null given, must point to f32 elements",
       call(good_values, {nullptr, DType::f32, 7, 40}, good_y)},
      {"y of another batch", ErrorCode::size_mismatch,
       "y: 8 x 30 given, must be 7 x 30, batch 7 of 30 features, the rows of 2x3x4x5",
       call(good_values, good_x, {y.data(), 8, 30})},
      {"y of another dtype", ErrorCode::size_mismatch, "y: dtype f16 given, must be f32 as x is",
       call(good_values, good_x, {y.data(), DType::f16, 7, 30})},
      {"y misaligned", ErrorCode::bad_pointer,
       "y: address " + address(y.data(), 2) + " given, must be a multiple of 4 for f32",
       call(good_values, good_x, {shifted(y.data(), 2), 7, 30})},
      {"y is x", ErrorCode::overlap,
       "y: bytes " + address(y.data()) + " to " + address(y.data(), 840) + " overlap x, bytes " +
           address(y.data()) + " to " + address(y.data(), 1120) +
           "; the output must not share memory with an input",
       call(good_values, {y.data(), 7, 40}, good_y)},
      {"bias too long", ErrorCode::size_mismatch, "bias: 31 elements given, must be 30, the rows of 2x3x4x5",
       call(good_values, good_x, good_y, with_bias({bias.data(), 31}))},
      {"bias null", ErrorCode::bad_pointer, "bias: null given, must point to f32 elements",
       call(good_values, good_x, good_y, with_bias({nullptr, DType::f32, 30}))},
      {"bias with transposed", ErrorCode::invalid_argument,
       "bias: given with operation transposed, allowed with multiply only",
       [=] {
         MultiplyOptions options = with_bias({bias.data(), 30});
         options.operation = Operation::transposed;
         multiply(pattern, good_values, {x.data(), 7, 30}, {y.data(), 7, 40}, options);
       }},
      {"gradient as an operation", ErrorCode::invalid_argument,
       "operation: gradient given, must be multiply, transposed or adjoint; see kronsparse::gradient",
       call(good_values, good_x, good_y, {.operation = Operation::gradient})},
      {"pattern of zero", ErrorCode::invalid_argument, "pattern: c of 2x3x0x5 is 0, must be at least 1",
       [=] {
         multiply(Pattern{2, 3, 0, 5}, good_values, good_x, good_y);
       }},
      {"device that is not there", ErrorCode::device, missing({Backend::cuda, 999}),
       call(good_values, good_x, good_y, {.device = {Backend::cuda, 999}})},
  };
}

std::vector<WrongCall> wrong_chains_and_gradients() {
  const auto multiply_chain = [](std::vector<ConstVector> arrays, ConstMatrix in, Matrix out) {
    return [=] { multiply(chain, arrays, in, out); };
  };
  const auto call_gradient = [](ConstMatrix in, ConstMatrix grad, Matrix out) {
    return [=] { gradient(pattern, in, grad, out); };
  };
  const ConstVector first{values.data(), 24};
  const ConstVector second{values.data(), 60};
  const ConstMatrix chain_x{x.data(), 3, 20};
  const Matrix chain_y{y.data(), 3, 8};
  const ConstMatrix good_x{x.data(), 7, 40};
  const ConstMatrix good_g{g.data(), 7, 30};
  const Matrix good_y{y.data(), 6, 20};
  return {
      {"chain with too few arrays", ErrorCode::size_mismatch,
       "values: 1 arrays given, must be 2, one for each factor of 1x2x3x4*4x3x5x1",
       multiply_chain({first}, chain_x, chain_y)},
      {"chain with arrays in the wrong order", ErrorCode::size_mismatch,
       "values[0]: 60 elements given, must be 24, the values of 1x2x3x4",
       multiply_chain({second, first}, chain_x, chain_y)},
      {"chain with another dtype", ErrorCode::size_mismatch,
       "values[1]: dtype bf16 given, must be f32 as x is",
       multiply_chain({first, {values.data(), DType::bf16, 60}}, chain_x, chain_y)},
      {"chain with x too wide", ErrorCode::size_mismatch,
       "x: 3 x 21 given, must be 3 x 20, batch 3 of 20 features, the columns of 1x2x3x4*4x3x5x1",
       multiply_chain({first, second}, {x.data(), 3, 21}, chain_y)},
      {"chain with null values", ErrorCode::bad_pointer, "values[0]: null given, must point to f32 elements",
       multiply_chain({{nullptr, DType::f32, 24}, second}, chain_x, chain_y)},
      {"chain with y null", ErrorCode::bad_pointer, "y: null given, must point to f32 elements",
       multiply_chain({first, second}, chain_x, {nullptr, DType::f32, 3, 8})},
      {"chain with x in y", ErrorCode::overlap,
       "y: bytes " + address(y.data()) + " to " + address(y.data(), 96) + " overlap x, bytes " +
           address(y.data()) + " to " + address(y.data(), 240) +
           "; the output must not share memory with an input",
       multiply_chain({first, second}, {y.data(), 3, 20}, chain_y)},
      {"gradient with g too narrow", ErrorCode::size_mismatch,
       "g: 7 x 29 given, must be 7 x 30, batch 7 of 30 features, the rows of 2x3x4x5",
       call_gradient(good_x, {g.data(), 7, 29}, good_y)},
      {"gradient with g of another batch", ErrorCode::size_mismatch,
       "g: 6 x 30 given, must be 7 x 30, batch 7 of 30 features, the rows of 2x3x4x5",
       call_gradient(good_x, {g.data(), 6, 30}, good_y)},
      {"gradient with g of another dtype", ErrorCode::size_mismatch,
       "g: dtype f64 given, must be f32 as x is",
       call_gradient(good_x, {g.data(), DType::f64, 7, 30}, good_y)},
      {"gradient as one row", ErrorCode::size_mismatch,
       "grad_values: 1 x 120 given, must be 6 x 20, (a*b) x (c*d) of 2x3x4x5",
       call_gradient(good_x, good_g, {y.data(), 1, 120})},
      {"gradient with gaps", ErrorCode::invalid_argument,
       "grad_values: row stride 24 given, must be the 20 columns, without gaps",
       call_gradient(good_x, good_g, {y.data(), 6, 20, 24})},
      {"gradient into null", ErrorCode::bad_pointer, "grad_values: null given, must point to f32 elements",
       call_gradient(good_x, good_g, {nullptr, DType::f32, 6, 20})},
  };
}

TEST_P(WrongCalls, HaveTheirErrorAndTouchNothing) {
  y.fill(sentinel);
  unsetenv("KRONSPARSE_IMPL");
  expect_error(GetParam().code, GetParam().message, GetParam().call);
  unsetenv("KRONSPARSE_IMPL");
  EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float value) { return value == sentinel; }))
      << "y was written";
}

INSTANTIATE_TEST_SUITE_P(Plan, WrongCalls, testing::ValuesIn(wrong_plans()), test_name);
INSTANTIATE_TEST_SUITE_P(Run, WrongCalls, testing::ValuesIn(wrong_runs()), test_name);
INSTANTIATE_TEST_SUITE_P(Multiply, WrongCalls, testing::ValuesIn(wrong_multiplications()), test_name);
INSTANTIATE_TEST_SUITE_P(ChainAndGradient, WrongCalls, testing::ValuesIn(wrong_chains_and_gradients()),
                         test_name);

}  // namespace
}  // namespace kronsparse
