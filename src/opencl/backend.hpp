// The implementations of OpenCL, and their refusals and costs that are the same for all.
#pragma once

#include <string>

#include "core/implementation.hpp"
#include "opencl/runtime.hpp"

namespace kronsparse::opencl {

[[nodiscard]] Implementation private_implementation();
[[nodiscard]] Implementation local_implementation();

inline constexpr const char* other_order = "does not read values in the order they are packed in";

/// Why a device cannot compute with a dtype; empty where it can.
[[nodiscard]] std::string dtype_refusal(const Problem& problem, const DeviceFacts& facts);
/// Predicted: values are read and written once.
[[nodiscard]] double packing_seconds(const Problem& problem, const DeviceFacts& facts);

}  // namespace kronsparse::opencl
