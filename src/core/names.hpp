// The words of the enumerations, each in the order of its enumerators.
#pragma once

#include <array>
#include <string_view>

namespace kronsparse {

inline constexpr std::array<std::string_view, 6> dtype_names = {"f32",  "f64",       "f16",
                                                                "bf16", "complex64", "complex128"};
inline constexpr std::array<std::string_view, 2> layout_names = {"batch_first", "batch_last"};
inline constexpr std::array<std::string_view, 4> operation_names = {"multiply", "transposed", "adjoint",
                                                                    "gradient"};
inline constexpr std::array<std::string_view, 5> activation_names = {"none", "relu", "gelu", "gelu_tanh",
                                                                     "silu"};
inline constexpr std::array<std::string_view, 3> mode_names = {"fp32", "ieee", "tf32"};
inline constexpr std::array<std::string_view, 3> backend_names = {"cpu", "cuda", "opencl"};

}  // namespace kronsparse
