// Memory of OpenCL devices as addresses.
//
// The core computes with addresses: it adds offsets and compares ranges. An OpenCL buffer has none, so each
// gets a range of the process's address space that nothing else uses and nobody can touch, as long as the
// buffer. An address in it stands for that place in the buffer.
#pragma once

#include <cstddef>

#include "core/memory_ops.hpp"
#include "opencl/api.hpp"

namespace kronsparse::opencl {

[[nodiscard]] MemoryOps memory_ops();

/// A place in a buffer.
struct Placed {
  cl_mem buffer = nullptr;
  std::size_t offset = 0;  ///< bytes
};

/// The place that an address stands for; null stays null. Error bad_pointer, with the operand's name, where
/// it is not memory of the device or less than `bytes` remain.
[[nodiscard]] Placed place_of(Device device, const void* address, std::size_t bytes,
                              std::string_view argument);

/// An address for a buffer of the caller's, which is retained until forget().
[[nodiscard]] void* address_of(Device device, cl_mem buffer);
/// Error bad_pointer where it is not such an address.
void forget(Device device, void* address);

}  // namespace kronsparse::opencl
